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

_SHOWN: Final = 4


class Finding(msgspec.Struct, frozen=True):
    """One sentence about one thing.

    Attributes:
        check: which check, a word.
        subject: what was looked at, for example ``Secret kubevirt-webhook/kubevirt-webhook-ca``.
        verdict: ``unknown``: it could not be looked at.
        found: a clause.
        todo: a clause, an order; empty where there is nothing to do.
    """

    check: str
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
    """What could not be read, with the right that is missing where it is one."""
    todo = (
        "grant that to whoever runs doctor"
        if isinstance(why, Forbidden)
        else "run doctor again; if it stays, look at the API server"
    )
    return Finding(check, subject, "unknown", why.why, todo)


def several(things: Sequence[str]) -> str:
    """A list for people: the first few, and how many more there are."""
    shown = ", ".join(things[:_SHOWN])
    return f"{shown} and {len(things) - _SHOWN} more" if len(things) > _SHOWN else shown


def pluralize(number: int, singular: str, plural: str = "") -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"
