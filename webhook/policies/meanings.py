"""All reason codes: what each means, what to do about it, and which policies give it.

``kubevirt-webhook explain reason``, docs/messages.md, the rules of SARIF and the page read `MEANINGS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Final

import msgspec

from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Kind
from webhook.names import PolicyName
from webhook.policies.registry import POLICIES
from webhook.policy import AnyPolicy

# Letters.
_SHORT_WORD: Final = 3


class CodeMeaning(msgspec.Struct, frozen=True):
    """A reason code for people.

    Attributes:
        policies: the policies that give the code.
        kind: as in `Meaning`, as are the rest.
    """

    policies: tuple[PolicyName, ...]
    kind: Kind
    meaning: str
    remedy: str


def meanings_of(policies: Iterable[AnyPolicy]) -> dict[str, CodeMeaning]:
    """What the codes of some policies mean, by code: a closed, documented set, which other programs rely on.

    Raises:
        ValueError: two policies define the same code.
    """
    listed = tuple(policies)
    names = tuple(policy.name for policy in listed)
    codes = [(code, meaning, names) for code, meaning in common.FOR_ALL.items()]
    for code, meaning in common.SHARED.items():
        if givers := tuple(policy.name for policy in listed if code in policy.shared_reasons):
            codes.append((code, meaning, givers))
    for policy in listed:
        codes += [(code, meaning, (policy.name,)) for code, meaning in policy.reasons.items()]
    found: dict[str, CodeMeaning] = {}
    for code, meaning, givers in codes:
        if code in found:
            raise ValueError(f"the reason code {code} is defined twice")
        found[code] = CodeMeaning(givers, meaning.kind, meaning.meaning, meaning.remedy)
    return found


MEANINGS: Final[Mapping[str, CodeMeaning]] = meanings_of(POLICIES)


def similar(code: str, codes: Collection[str] = MEANINGS) -> list[str]:
    """The codes that a mistyped one may mean, the most similar first; at most three.

    Without any that is similar as a whole, those that have one of its words, or a similar one.
    """
    if near := get_close_matches(code.lower(), codes, n=3, cutoff=0.6):
        return near
    words = Counter(word for each in codes for word in each.split("-"))
    # A short word is similar to too many.
    typed = {
        word: get_close_matches(word, words, n=3, cutoff=0.6 if len(word) > _SHORT_WORD else 1.0)
        for word in re.findall("[a-z]{3,}", code.lower())
    }

    def score(each: str) -> tuple[int, float]:
        """How many of the typed words it has; of equal codes, one that has a word of few codes says more."""
        own = set(each.split("-"))
        found = [[word for word in near if word in own] for near in typed.values()]
        return sum(map(bool, found)), sum(max((1 / words[word] for word in near), default=0.0) for near in found)

    scores = {each: score(each) for each in codes}
    near = sorted((each for each in codes if scores[each][0]), key=scores.__getitem__, reverse=True)[:3]
    return near or get_close_matches(code.lower(), codes, n=3, cutoff=0.4)
