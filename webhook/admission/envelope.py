"""What surrounds the objects of an AdmissionReview, read without looking into them.

A parser that recurses, as msgspec's does, can neither decode nor skip an object that is nested deeply enough. The API
server accepts 10,000 levels (sigs.k8s.io/json), so any user who may create a VM can send one. Without the review's uid
there is no answer but an HTTP error, which a failurePolicy of Ignore turns into an admission. So where decoding failed,
the objects are cut out of the bytes, in a loop, and the rest is decoded as usual.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.k8s.json_tree import RUN, STRING

# What is read of a request besides its objects.
_READ: Final = ("uid", "kind", "resource", "subResource", "name", "namespace", "operation", "userInfo", "dryRun")
_OF_REQUEST: Final = frozenset(f'"{name}"'.encode() for name in _READ)

# Brackets, runs of them, and keys that are looked at, before a value counts as endless. Honest objects have some
# hundreds; the API server takes 3 MB, which could be millions.
MAX_STEPS: Final = 100_000

_TOKEN: Final = re.compile(
    rb'[^"\[\]{}]*+(?:(?P<string>' + STRING + rb")(?P<colon>[ \t\r\n]*+:)?|(?P<bracket>[\[\]{}]))", re.DOTALL
)


class Envelope(msgspec.Struct, frozen=True):
    """A review without the objects in it.

    Attributes:
        text: the review's bytes with ``null`` for each value that was cut out; empty where they have no
            end.
        depths: levels of containers in each member of the request that was cut out, by its name.
        whole: False: a member had no end within `MAX_STEPS`; what follows it is left out.
    """

    text: bytes
    depths: Mapping[str, int]
    whole: bool


def envelope(body: bytes) -> Envelope:
    """The envelope of a review. It holds the body's own bytes, unchecked: invalid JSON is kept."""
    pieces: list[bytes] = []
    depths: dict[str, int] = {}
    depth = position = copied = 0
    key, steps = b"", MAX_STEPS
    while steps and (match := _TOKEN.match(body, position)):
        position, steps = match.end(), steps - 1
        string, bracket = match["string"], match["bracket"]
        if match["colon"] is not None:
            key = string
        elif bracket in (b"}", b"]"):
            depth -= 1
        elif _is_kept(depth, key, bracket is not None):
            depth += bracket is not None
        else:
            begin = match.start("string" if bracket is None else "bracket")
            pieces += (body[copied:begin], b"null")
            if bracket is not None:
                value = _measure(body, begin, steps)
                name, steps = key[1:-1].decode("ascii", "replace"), value.steps
                depths[name] = max(value.levels, depths.get(name, 0))
                if not value.end:
                    # Cut off where the steps ended, the envelope is what came before. A value without an end is none.
                    return Envelope(b"" if steps else b"".join(pieces) + b"}" * depth, depths, whole=False)
                position = value.end
            copied = position
    # Without steps left, the envelope itself is endless, which no API server sends.
    return Envelope(b"".join((*pieces, body[copied:])) if steps else b"", depths, whole=steps > 0)


def _is_kept(depth: int, key: bytes, is_container: bool) -> bool:
    """Whether a member's value stays, a string or a container that begins at a depth.

    A key counts as the review's or its request's only there: below, nothing is taken out any more.
    """
    if depth == 1:
        return not is_container or key == b'"request"'
    return depth != 2 or key in _OF_REQUEST


class _Value(msgspec.Struct, frozen=True):
    """A container in the body.

    Attributes:
        levels: levels of containers, itself included.
        end: the position behind it; 0: there is none, or the steps did not suffice.
        steps: the steps that are left.
    """

    levels: int
    end: int
    steps: int


def _measure(body: bytes, begin: int, steps: int) -> _Value:
    depth = levels = 0
    position = begin
    while steps and (match := RUN.match(body, position)):
        position, run, steps = match.end(), match["run"], steps - 1
        if run[0] in b"{[":
            depth += len(run)
            levels = max(levels, depth)
        elif depth <= len(run):
            return _Value(levels, match.start("run") + depth, steps)
        else:
            depth -= len(run)
    return _Value(levels, 0, steps)
