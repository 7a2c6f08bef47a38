"""JSON as strings and brackets: enough to find its depth, in a loop and whatever its content is."""

from __future__ import annotations

import re
from typing import Final

# All quantifiers are possessive: there is no backtracking, whatever the bytes are.
STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Up to the next brackets of one kind without anything between them.
RUN: Final = re.compile(rb'[^"\[\]{}]*+(?:' + STRING + rb'[^"\[\]{}]*+)*+(?P<run>[\[{]++|[\]}]++)', re.DOTALL)


def flatten(body: bytes, levels: int) -> bytes:
    """JSON with ``null`` for every container that stands below so many levels of others.

    What a parser that recurses cannot read, it can read then. Its cost grows with the bytes, at some 0.5 µs a bracket:
    run it in a thread of its own.
    """
    pieces: list[bytes] = []
    depth = position = copied = 0
    while match := RUN.match(body, position):
        position, run = match.end(), match["run"]
        if run[0] in b"{[":
            if depth <= levels < depth + len(run):
                pieces += (body[copied : match.start("run") + levels - depth], b"null")
                copied = len(body)
            depth += len(run)
        else:
            if depth - len(run) <= levels < depth:
                copied = match.start("run") + depth - levels
            depth -= len(run)
    # Without brackets that match, it is no JSON, and is handed on as that.
    return b"".join((*pieces, body[copied:]))
