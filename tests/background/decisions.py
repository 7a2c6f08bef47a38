"""Decisions that become Events."""

from __future__ import annotations

from webhook.admission.decision import Decision, Denial, Reason

DENIED = Decision((Reason("no", "it can't be"),), denial=Denial(403, "it can't be [node-a]"))
