"""From plain JSON to views, with a sentence for what is none."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from webhook.errors import InputError

T = TypeVar("T", bound=msgspec.Struct)


def read(view: type[T], json: Any, name: str) -> T:
    """Plain JSON as a view.

    Args:
        view: the class to convert to.
        json: the decoded object.
        name: the name of the object in messages, for example ``vmi``.

    Raises:
        InputError: a value has a type that the API server would not have accepted.
    """
    try:
        return msgspec.convert(json, view)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        clause = message[:1].lower() + message[1:]
        raise InputError(clause, name + path.strip("`").removeprefix("$")) from None
