"""What to do about a denial or warning, from the reason codes that it ends in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from webhook.admission.reasons import MEANINGS
from webhook.cli.review.result import Result

_CODE: Final = re.compile(r"\[([a-z-]+)\]$", re.MULTILINE)


def remedies_of(text: str) -> Iterator[str]:
    """A sentence for each code that a line of the text ends in, if there is something to do about it."""
    for code in dict.fromkeys(_CODE.findall(text)):
        if code in MEANINGS and MEANINGS[code].remedy:
            yield f"What to do: {MEANINGS[code].remedy}"


def remedies(result: Result) -> tuple[str, ...]:
    """What to do about an object that needs attention; empty for others."""
    if result.severity == "fine":
        return ()
    return tuple(remedies_of("\n".join([result.summary, *result.warnings])))
