"""What a reason code means: its shape, the catalogue of all codes, and the words that several meanings share."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from webhook.names import EVICTION, INSTANCETYPES, MIGRATION, SCHEDULING, Policy

# What a code stands for: a change, a denial, a request that is left alone, or a fault on the way to a decision.
Kind = Literal["changed", "denied", "allowed", "skipped", "failed"]

ALL: Final = (SCHEDULING, INSTANCETYPES, MIGRATION, EVICTION)
TEMPLATE: Final = "A changed template requires a restart of a running VM, so nothing new is added to a VM after CREATE."
OPT_OUT: Final = "To keep kubevirt-webhook from setting one, set"
LOG: Final = "See the log of kubevirt-webhook; `kubevirt-webhook doctor` shows what it cannot read."


class Meaning(msgspec.Struct, frozen=True):
    """A reason code for people.

    Attributes:
        policies: the policies that use the code.
        kind: what the policy does in mode ``enforce``; a setting may make a denial a warning.
        meaning: what happened, in a sentence or two.
        remedy: what to do about it; empty where nothing needs to be done.
    """

    policies: tuple[Policy, ...]
    kind: Kind
    meaning: str
    remedy: str = ""


# By code; a closed, documented set, which other programs rely on.
MEANINGS: Final[dict[str, Meaning]] = {}


def define(code: str, policies: tuple[Policy, ...], kind: Kind, meaning: str, remedy: str = "") -> str:
    """A code, which is in `MEANINGS` from now on.

    Args:
        code: the code, words in lower case with dashes.
        policies: the policies that use the code.
        kind: what the policy does in mode ``enforce``.
        meaning: what happened, in a sentence or two.
        remedy: what to do about it; empty where nothing needs to be done.

    Raises:
        ValueError: the code is defined already.
    """
    if code in MEANINGS:
        raise ValueError(f"the reason code {code} is defined twice")
    MEANINGS[code] = Meaning(policies, kind, meaning, remedy)
    return code
