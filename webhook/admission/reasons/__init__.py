"""The catalog of reasons: for each code what it means, what to do about it, and the sentences that carry it.

A module a policy, and `common` for the codes of several policies. ``kubevirt-webhook explain reason``,
docs/messages.md, the rules of SARIF and the page read `MEANINGS`.
"""

from __future__ import annotations

from difflib import get_close_matches

from webhook.admission.reasons import common, eviction, instancetypes, migration, scheduling
from webhook.admission.reasons.catalog import MEANINGS, Kind, Meaning

__all__ = ["MEANINGS", "Kind", "Meaning", "common", "eviction", "instancetypes", "migration", "scheduling", "similar"]


def similar(code: str) -> list[str]:
    """The codes that a mistyped one may mean, the most similar first; at most three."""
    return get_close_matches(code, MEANINGS, n=3, cutoff=0.4)
