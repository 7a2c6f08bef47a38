from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.text import (
    abbreviate,
    duration,
    parse_duration,
    pluralize,
    shorten,
    shorten_middle,
    visible,
    visible_json,
    visible_lines,
)

INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Default_Ignorable_Code_Point beyond those categories (Unicode, DerivedCoreProperties.txt).
IGNORABLE = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)}


@pytest.mark.control("text-on-a-terminal")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *(("web01", "web01"), ("Zürich 東京 مدينة ❤", "Zürich 東京 مدينة ❤"), ("red\x1b[31m", "red\\x1b[31m")),
        *(("\x9b31m", "\\x9b31m"), ("a\u202egpj.exe", "a\\u202egpj.exe"), ("a\u2066b\u2069", "a\\u2066b\\u2069")),
        *(("a\u200bb\ufeff", "a\\u200bb\\ufeff"), ("one\r\ntwo\tthree", "one\\r\\ntwo\\tthree")),
        *(("one\u2028two", "one\\u2028two"), ("\ud800", "\\ud800"), ("\U000e0041", "\\U000e0041")),
        ("\x7f\x00", "\\x7f\\x00"),
    ],
)
def test_what_is_not_seen_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.control("text-on-a-terminal")
def test_every_character_of_unicode_is_either_shown_or_escaped() -> None:
    shown = []
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        category = unicodedata.category(char)
        if category in INVISIBLE or code in IGNORABLE or 0xE0000 <= code <= 0xE0FFF:
            assert visible(char).isascii(), hex(code)
            assert visible(char).isprintable(), hex(code)
        elif category != "Cn":
            shown.append(char)
    assert visible("".join(shown)) == "".join(shown)


@given(st.text(st.characters(exclude_categories=())))
def test_twice_is_the_same_as_once(text: str) -> None:
    assert visible(visible(text)) == visible(text)
    assert visible_lines(text).split("\n") == [visible(line) for line in text.split("\n")]


@given(st.text())
def test_json_keeps_its_meaning(text: str) -> None:
    encoded = json.dumps({text: text}, ensure_ascii=False).encode()
    shown = visible_json(encoded)
    assert json.loads(shown) == {text: text}
    assert visible(shown.decode()) == shown.decode()


def test_a_long_text_is_cut() -> None:
    assert (shorten("abcd", 4), shorten("abcde", 4)) == ("abcd", "abc…")
    assert (shorten_middle("abcdef", 6), shorten_middle("abcdefg", 6)) == ("abcdef", "ab…efg")
    assert shorten_middle("abcdefgh", 5) == "a…fgh"


@pytest.mark.parametrize(
    ("number", "nouns", "shown"),
    [(1, ("node",), "1 node"), (0, ("node",), "0 nodes"), (2, ("entry", "entries"), "2 entries")],
)
def test_a_noun_agrees_with_its_number(number: int, nouns: tuple[str, ...], shown: str) -> None:
    assert pluralize(number, *nouns) == shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.0, "3s"), (0.05, "50ms"), (1.5, "1.5s"), (0.0, "0ms"), (-1.0, "0ms"), (180, "180s")]
)
def test_durations_are_written_as_in_kubernetes(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("1m30.5s", 90.5), ("+.5h", 1800.0), ("-5m", -300.0), ("0", 0.0), ("-0", 0.0), ("1.s", 1.0), ("10ms", 0.01)),
        *(("1µs", 1e-6), ("1\u03bcs", 1e-6), ("2562047h", 2562047 * 3600.0)),
        *((text, None) for text in ("2562048h", "9" * 400 + "h", "", "+", "-", "1", "h", ".s", "+-5m", "--5m", "5m ")),
        *((text, None) for text in ("1d", "1e3s", "\u0663m", "1m-2s")),
    ],
)
def test_what_go_takes_for_a_duration(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


def test_of_many_names_the_first_ones_are_shown() -> None:
    assert [abbreviate(names) for names in ("", "abcdef", "abcdefg")] == [
        "",
        "a, b, c, d, e, f",
        "a, b, c, d, e and 2 more",
    ]
