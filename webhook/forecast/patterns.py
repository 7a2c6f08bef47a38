r"""Patterns of CustomResourceDefinitions, which are Go's regular expressions, on Python's engine.

Go's engine takes time in proportion to the text. Python's can take time without a bound, so a pattern with which it
could is not evaluated, and neither is one that Python does not have, such as ``\p{L}``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import lru_cache
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

# Steps that an engine that goes back may take for one text.
_MOST_STEPS: Final = 30_000_000
_REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT)
_SIMPLE: Final = (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN, ops.AT)
# A repeat of no more than this counts as written out.
_FEW: Final = 16


class _Pattern(NamedTuple):
    """A pattern that Python has, and how its time grows: with the length of the text to a power."""

    compiled: re.Pattern[str]
    power: int


def matches(pattern: str, text: str) -> bool | None:
    """Whether a text matches a pattern somewhere; None where that cannot be found out in bounded time."""
    known = _known(pattern)
    if known is None or (len(text) + 1) ** known.power > _MOST_STEPS:
        return None
    return known.compiled.search(text) is not None


@lru_cache(maxsize=256)
def _known(pattern: str) -> _Pattern | None:
    # In Python, `$` also matches before a line feed at the end. Only Go has \z, and only Python what begins with (?<.
    source = pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") and not pattern.endswith(r"\$") else pattern
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            compiled, parsed = re.compile(source, re.ASCII), parser.parse(source, re.ASCII)
    except (re.error, FutureWarning, OverflowError, RecursionError):
        return None
    repeats = _count_repeats(parsed, nested=False)
    if repeats is None:
        return None
    # A search begins anywhere, unless the pattern says that it begins where the text does.
    return _Pattern(compiled, repeats + (not source.startswith("^")))


def _count_repeats(items: Iterable[Any], *, nested: bool) -> int | None:
    """How many repeats without a small bound follow each other; None where one is in another: its time may explode."""
    count = 0
    for op, arguments in items:
        if op in _SIMPLE:
            continue
        if op in _REPEATS:
            _, most, body = arguments
            is_long = most > _FEW
            inside = None if is_long and nested else _count_repeats(body, nested=nested or is_long)
            inside = inside if inside is None or is_long else inside * most
            count += is_long
        elif op is ops.SUBPATTERN:
            inside = _count_repeats(arguments[-1], nested=nested)
        elif op is ops.BRANCH:
            counts = [_count_repeats(each, nested=nested) for each in arguments[1]]
            inside = None if None in counts else max(each or 0 for each in counts)
        else:
            # What Go does not have, such as a reference to a group.
            inside = None
        if inside is None:
            return None
        count += inside
    return count
