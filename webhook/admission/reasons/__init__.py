"""What each reason code means, and what to do about it: for ``kubevirt-webhook explain reason`` and docs/messages.md.

The sentences that carry the codes are in the policies' ``messages`` modules; here stands what does not change with the
object that a sentence is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from webhook.admission.reasons import eviction, instancetypes, migration, scheduling, shared
from webhook.admission.reasons.meaning import Kind, Meaning

__all__ = ["MEANINGS", "Kind", "Meaning", "similar"]

MEANINGS: Final[Mapping[str, Meaning]] = {
    **shared.MEANINGS,
    **scheduling.MEANINGS,
    **instancetypes.MEANINGS,
    **migration.MEANINGS,
    **eviction.MEANINGS,
}


def similar(code: str) -> list[str]:
    """The codes that a mistyped one may mean, the most similar first; at most three."""
    return get_close_matches(code, MEANINGS, n=3, cutoff=0.4)
