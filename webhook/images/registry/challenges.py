"""``WWW-Authenticate`` headers: how a registry wants clients to authenticate (RFC 9110, section 11.6.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

_MAX_CHARACTERS: Final = 4096
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
# All quantifiers are possessive: there is no backtracking, whatever the header holds.
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"|({_WORD}))[ \t]*+')
_SCHEME: Final = re.compile(rf"({_WORD})(?:[ \t]++|$|(?=,))")
_SEPARATOR: Final = re.compile(r"[ \t,]*+")


class Challenge(msgspec.Struct, frozen=True):
    """One way to authenticate.

    Attributes:
        scheme: in lower case, for example ``bearer``.
        parameters: by their names in lower case.
    """

    scheme: str
    parameters: dict[str, str]


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """The challenges in the values of all ``WWW-Authenticate`` headers; what is not valid ends a header."""
    return [challenge for header in headers for challenge in _parse(header[:_MAX_CHARACTERS])]


def _parse(header: str) -> Iterator[Challenge]:
    position = _skip(header, 0)
    while position < len(header):
        scheme = _SCHEME.match(header, position)
        if scheme is None:
            return
        parameters: dict[str, str] = {}
        position = _skip(header, scheme.end())
        while parameter := _PARAMETER.match(header, position):
            name, quoted, plain = parameter.groups()
            parameters.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if plain is None else plain)
            position = _skip(header, parameter.end())
        yield Challenge(scheme[1].lower(), parameters)


def _skip(header: str, position: int) -> int:
    separator = _SEPARATOR.match(header, position)
    assert separator
    return separator.end()
