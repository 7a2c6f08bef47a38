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

# What a code stands for: a change, a denial, a request that is left alone, or a fault on the way to a decision.
Kind = Literal["changed", "denied", "allowed", "skipped", "failed"]

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

    It stands where ``template`` has ``%s``, once or more often; in quotation marks, it is quoted as `quote` does it.
    """
    is_quoted = '"%s"' in template
    plain = template.replace('"%s"', "%s")

    def reason(text: str) -> Reason:
        return Reason(code, plain.replace("%s", quote(text) if is_quoted else text))

    return reason


def about_two(code: str, template: str) -> Callable[[str, str], Reason]:
    """As `about`, for sentences that differ in two texts."""
    is_first_quoted, is_second_quoted = (mark != "%s" for mark in re.findall('"%s"|%s', template))
    plain = template.replace('"%s"', "%s")

    def reason(first: str, second: str) -> Reason:
        texts = quote(first) if is_first_quoted else first, quote(second) if is_second_quoted else second
        return Reason(code, plain % texts)

    return reason
