"""The two ways in which knowledge fails: people's mistakes, and facts that could not be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from webhook.text import SURROGATE, shorten, visible

# Characters of an `InputError`'s sentence, whatever it quotes. Its parts are cut one by one, so that it always says
# what is wrong, where, and what to do.
MAX_SENTENCE: Final = 4096
_MAX_WHAT: Final = 2400
_MAX_WHERE: Final = 800
_MAX_FIX: Final = 800


def quote(text: str) -> str:
    """A user's text for a message: in quotes, on one line, not too long."""
    short = SURROGATE.sub("\ufffd", text if len(text) <= 60 else text[:57] + "...")
    return visible(msgspec.json.encode(short).decode())


class InputError(Exception):
    """A mistake of the calling person or program, in one sentence.

    The command line answers it with exit status 2, the server with a 4xx status; never with a traceback.

    Args:
        what: what is wrong, as a clause without a full stop.
        where: the place, for example ``settings.yaml:12`` or ``request.object.spec``; may be empty.
        fix: what to do about it; may be empty.
    """

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        super().__init__(what, where, fix)
        self.what: Final = what
        self.where: Final = where
        self.fix: Final = fix

    def __str__(self) -> str:
        # One line, whatever a file's name or a value in it holds: what is printed here was often written by others.
        what, where, fix = _part(self.what, _MAX_WHAT), _part(self.where, _MAX_WHERE), _part(self.fix, _MAX_FIX)
        sentence = f"{where}: {what}" if where else what
        return f"{sentence}; {fix}" if fix else sentence


def _part(text: str, length: int) -> str:
    """A part of a sentence, made visible; cut before, so that no work is done on what is not shown, and after."""
    return shorten(visible(shorten(text, length)), length)


class InputErrors(InputError):  # noqa: N818 - several of them
    """Several mistakes in one input, reported together so that one run shows all of them.

    Args:
        mistakes: the mistakes, in the order of the input.
    """

    def __init__(self, mistakes: Iterable[InputError]) -> None:
        self.mistakes: Final = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))

    def __str__(self) -> str:
        return "\n".join(str(mistake) for mistake in self.mistakes)


class Unavailable(msgspec.Struct, frozen=True):
    """A fact that could not be read: a value, so that types force a policy to handle it.

    Attributes:
        why: the cause as a clause, fit for a warning that a user sees; holds no object's content.
    """

    why: str


class FileGap(Unavailable, frozen=True):
    """What objects in files do not show.

    Attributes:
        code: ``needs-cluster`` for what only a running cluster answers, ``not-in-files`` for objects that are missing,
            ``unreadable`` for a malformed one.
        todo: what to do, a clause in the imperative.
    """

    code: str
    todo: str
