"""The catalog of reasons: for each code what it means, what to do about it, and the sentences that carry it.

A module a policy, and `common` for the codes of several policies. ``kubevirt-webhook explain reason``,
docs/messages.md, the rules of SARIF and the page read `MEANINGS`.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import get_close_matches

from webhook.admission.reasons import common, eviction, instancetypes, migration, scheduling
from webhook.admission.reasons.catalog import MEANINGS, Kind, Meaning

__all__ = ["MEANINGS", "Kind", "Meaning", "common", "eviction", "instancetypes", "migration", "scheduling", "similar"]


def similar(code: str) -> list[str]:
    """The codes that a mistyped one may mean, the most similar first; at most three.

    Without any that is similar as a whole, those that have one of its words, or a similar one.
    """
    if near := get_close_matches(code.lower(), MEANINGS, n=3, cutoff=0.6):
        return near
    words = Counter(word for each in MEANINGS for word in each.split("-"))
    meant = {match for word in re.findall("[a-z]{4,}", code.lower()) for match in get_close_matches(word, words, n=3)}
    # A word that few codes have says more.
    scores = {each: sum(1 / words[word] for word in meant & set(each.split("-"))) for each in MEANINGS}
    near = sorted((each for each in MEANINGS if scores[each]), key=lambda each: -scores[each])[:3]
    return near or get_close_matches(code.lower(), MEANINGS, n=3, cutoff=0.4)
