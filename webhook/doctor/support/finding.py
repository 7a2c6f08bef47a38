"""What a check found, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from webhook.errors import Unavailable
from webhook.k8s.client.api import Forbidden

# The worst first.
Verdict = Literal["failure", "warning", "unknown", "ok"]
VERDICTS: Final[tuple[Verdict, ...]] = ("failure", "warning", "unknown", "ok")

# What a check could not read.
UNREADABLE: Final = "unreadable"

_SHOWN: Final = 4


class Finding(msgspec.Struct, frozen=True):
    """One sentence about one thing.

    Attributes:
        check: the name of the check.
        code: what was found, for programs; the same in every version, while `found` may be reworded.
        subject: the object or setting, for example ``Secret kubevirt-webhook/kubevirt-webhook-ca``.
        verdict: ``unknown`` means that the check could not look at the subject.
        found: a clause about the subject.
        todo: a clause in the imperative; empty where there is nothing to do.
    """

    check: str
    code: str
    subject: str
    verdict: Verdict
    found: str
    todo: str = ""


class Measurement(Finding, frozen=True):
    """A finding with figures, which the JSON form shows.

    Attributes:
        figures: plain JSON, of a bounded size.
    """

    figures: dict[str, Any] = {}


def unreadable(check: str, subject: str, why: Unavailable) -> Finding:
    """The finding for what a check could not read; it names the permission if one is missing."""
    todo = (
        "grant this permission to the user that runs doctor"
        if isinstance(why, Forbidden)
        else "run doctor again; if the result does not change, check the API server"
    )
    return Finding(check, UNREADABLE, subject, "unknown", why.why, todo)


def abbreviate(things: Sequence[str], shown: int = _SHOWN) -> str:
    """The first few of a list, and how many more it has."""
    text = ", ".join(things[:shown])
    return f"{text} and {len(things) - shown} more" if len(things) > shown else text
