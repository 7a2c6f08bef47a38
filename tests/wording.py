"""How texts are worded: which words and forms no text for users has, in any catalogue, and no comment of the source."""

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

# Of comments and docstrings, which may be about code, and so about marks, jobs and guards.
_DIALECT: Final = re.compile(
    r"\b(?:we|us|ours?|ourselves|nobody|somebody|anybody|whoever|told|judg\w*|veto\w*|look-?outs?|parity watch"
    r"|lets? through|carr(?:y|ies|ied) over|for ever|told apart|a second time|not judged|(?<!connection )refus\w*)\b",
    re.IGNORECASE,
)


def dialect(comment: str) -> list[str]:
    """The words of a comment that only this project would use, or that do not name who acts; empty for a good one."""
    return _DIALECT.findall(comment)


def mistakes(text: str) -> list[str]:
    """The errors in the wording of a text, one clause each; empty for a good one."""
    found = [f"has the word {match[0]!r}" for match in _FORBIDDEN.finditer(text)]
    if text.endswith("."):
        found.append("ends in a full stop")
    if text != text.strip() or "  " in text:
        found.append("has a space too many")
    return found
