"""Other people's text, made safe to show: what cannot be seen, or acts on the text around it, is written as its escape.

A terminal obeys escape sequences, a bidirectional override lets ``kubectl`` print one name and mean another, and a line
feed begins a line of the attacker's own. Every other character stays as it is: names in any script remain readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

SURROGATE: Final = re.compile("[\ud800-\udfff]")

# Control characters (Cc), format characters (Cf), line and paragraph separators (Zl, Zp), surrogates (Cs), and all else
# that Unicode lets a renderer leave out (Default_Ignorable_Code_Point: fillers, variation selectors, tags).
_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_HIDDEN_IN_JSON: Final = re.compile(_HIDDEN.pattern.replace("\x00-\x1f", "", 1))


def visible(text: str) -> str:
    r"""The text on one line, with nothing in it that is not seen: that becomes ``\n``, ``\x1b``, ``\u202e``.

    A text that has none is returned as it is.
    """
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def visible_lines(text: str) -> str:
    """A text with hidden characters written as escapes, except for line feeds, which are the program's own."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(data: bytes) -> bytes:
    """Encoded JSON with hidden characters written as JSON's own escapes; its value does not change."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return _HIDDEN_IN_JSON.sub(_json_escape, data.decode()).encode()


def shorten(text: str, length: int) -> str:
    """The text, or the start of it with an ellipsis, of at most ``length`` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def shorten_middle(text: str, length: int) -> str:
    """The text, or its start and its end around an ellipsis, of at most ``length`` characters.

    For errors that quote their causes: the last cause is at the end.
    """
    start = length // 3
    return text if len(text) <= length else f"{text[:start]}…{text[start + 1 - length :]}"


def duration(seconds: float) -> str:
    """A duration as Kubernetes writes it: ``3s``, ``1.5s``, ``50ms``."""
    return f"{max(seconds, 0) * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}".removesuffix(".0") + "s"


# A part of a duration; its digits are never tried again, so that a text takes steps in proportion to its length.
_PART: Final = re.compile(r"([0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_SECONDS: Final = 2**63 / 1e9


def parse_duration(text: str) -> float | None:
    """Seconds of a duration, for example ``1m30s`` (Go, time.ParseDuration); None: it is not a valid one."""
    unsigned = text[1:] if text.startswith(("+", "-")) else text
    seconds, end = 0.0, 0
    while part := _PART.match(unsigned, end):
        seconds, end = seconds + float(part[1]) * _UNITS[part[2]], part.end()
    if (unsigned != "0" and (not end or end < len(unsigned))) or seconds >= _MOST_SECONDS:
        return None
    return -seconds if text.startswith("-") else seconds


def pluralize(number: int, singular: str, plural: str = "") -> str:
    """A count and its noun: ``1 node``, ``2 nodes``.

    Args:
        number: the count.
        singular: the noun for one.
        plural: the noun for several; empty: the singular with an "s".
    """
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def choices_of(words: Sequence[str]) -> str:
    """Words as a choice, for example ``a, b or c``."""
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def abbreviate(listed: Iterable[str], shown: int = 5) -> str:
    """Names in a row; of many the first ones, and how many more there are, which is never one."""
    every = list(listed)
    if len(every) <= shown + 1:
        return ", ".join(every)
    return f"{', '.join(every[:shown])} and {len(every) - shown} more"


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
