"""Decisions that become Events."""

from __future__ import annotations

from webhook.admission.decision import Decision, Denial, Reason

DENIED = Decision((Reason("no", "it cannot be"),), denial=Denial(403, "it cannot be [node-a]"))
