"""How texts for users are worded: which words and forms none of them has, in any catalogue."""

from __future__ import annotations

import re
from typing import Final

# Words that only this project would use, where Kubernetes has one of its own, and people who are not named.
_WORDS: Final = (
    *("we", "us", "our", "ours", "told", "asked", "somebody", "nobody", "anybody", "whoever"),
    *("judge", "judged", "judges", "decide on", "decides on", "refuse", "refused", "refuses", "veto", "vetoed"),
    *("mark", "marks", "marked", "job", "let through", "admit", "admitted", "carry over", "carried over"),
    *("look-out", "unenforced", "parity", "guard", "dead", "alive", "rights", "told apart", "at a time", "for ever"),
    *("a second time", "malformed"),
)
_FORMS: Final = r"n't\b|\b(?:it|that|there)'s\b|(?<!there )\bis no\b(?! longer)"
_FORBIDDEN: Final = re.compile(rf"\b(?:{'|'.join(map(re.escape, _WORDS))})\b|{_FORMS}", re.IGNORECASE)


def mistakes(text: str) -> list[str]:
    """What is wrong with the wording of a text, one clause each; empty for a good one."""
    found = [f"has the word {match[0]!r}" for match in _FORBIDDEN.finditer(text)]
    if text.endswith("."):
        found.append("ends in a full stop")
    if text != text.strip() or "  " in text:
        found.append("has a space too many")
    return found
