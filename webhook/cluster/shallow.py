"""The upper levels of a JSON text, however deep it is.

A decoder that recurses gives up on a text with a thousand levels, and a custom resource may have more of them. What
must still be known of such an object, so that a watch or a list goes on after it, lies in its upper levels.
"""

from __future__ import annotations

import re
from typing import Final

# Possessive: a long string must not be tried again from its middle.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_OPENING: Final = frozenset(b"[{")
_CLOSING: Final = frozenset(b"]}")


def prune(text: bytes, levels: int) -> bytes:
    """The text with every object and array below so many levels replaced by ``null``; linear in its length."""
    parts = []
    level = begin = 0
    for token in _TOKEN.finditer(text):
        character = text[token.start()]
        if character in _OPENING:
            level += 1
            if level == levels + 1:
                parts += [text[begin : token.start()], b"null"]
        elif character in _CLOSING:
            if level == levels + 1:
                begin = token.end()
            level -= 1
    if level <= levels:
        parts.append(text[begin:])
    return b"".join(parts)
