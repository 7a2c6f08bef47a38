"""What a reason code means, and sentences that carry one.

In `common` and in each policy's ``reasons``, a code is in capitals, and below it are its sentences: a `Reason`, or a
function that returns one for what the sentence names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from webhook.admission.decision import Reason
from webhook.errors import quote

# What a code stands for: a change, a denial, a request that is left alone, a mistake of which is warned while the
# request is evaluated all the same, or a fault on the way to a decision.
Kind = Literal["changed", "denied", "allowed", "skipped", "warned", "failed"]

TEMPLATE: Final = "A changed template requires a restart of a running VM, so nothing new is added to a VM after CREATE."
OPT_OUT: Final = "To keep kubevirt-webhook from setting one, set"
LOG: Final = "See the log of kubevirt-webhook; `kubevirt-webhook doctor` shows what it cannot read."


class Meaning(msgspec.Struct, frozen=True):
    """A reason code for people.

    Attributes:
        kind: what the policy does in mode ``enforce``; a setting may make a denial a warning.
        meaning: what happened, in a sentence or two.
        remedy: what to do about it; empty where nothing needs to be done.
    """

    kind: Kind
    meaning: str
    remedy: str = ""


# Codes of kind ``failed``, whoever gives them: what evaluates reviews knows no policy.
_FAILURES: Final[set[str]] = set()


def is_failure(code: str) -> bool:
    """Whether a code says that something kept a request from being evaluated."""
    return code in _FAILURES


def define(among: dict[str, Meaning], kind: Kind, code: str, meaning: str, remedy: str = "") -> str:
    """A code, words in lower case with dashes, which is among these from now on; the rest is as in `Meaning`.

    Raises:
        ValueError: the code is among them already.
    """
    if code in among:
        raise ValueError(f"the reason code {code} is defined twice")
    among[code] = Meaning(kind, meaning, remedy)
    if kind == "failed":
        _FAILURES.add(code)
    return code


def about(code: str, template: str) -> Callable[[str], Reason]:
    """The reasons with a code whose sentences differ in one text.

    It stands where ``template`` has ``%s``, or ``%q`` for what a user wrote: there it is quoted as `quote` does it, as
    Go's verb of that name. Each may stand several times.
    """
    parts = _parts(template)

    def reason(text: str) -> Reason:
        return Reason(code, "".join(_said(part, text) for part in parts))

    return reason


def about_two(code: str, template: str) -> Callable[[str, str], Reason]:
    """As `about`, for sentences that differ in two texts, each of which stands once."""
    before, one, between, other, after = _parts(template)

    def reason(first: str, second: str) -> Reason:
        return Reason(code, f"{before}{_said(one, first)}{between}{_said(other, second)}{after}")

    return reason


def _parts(template: str) -> list[str]:
    """The texts and verbs of a template in turn.

    Raises:
        ValueError: it has another verb, or quotes a text by hand.
    """
    parts = re.split("(%[sq])", template)
    if '"%s"' in template or any("%" in text for text in parts[::2]):
        raise ValueError(f"{template!r}: use %s for a text, and %q for one that is quoted")
    return parts


def _said(part: str, text: str) -> str:
    return quote(text) if part == "%q" else text if part == "%s" else part
