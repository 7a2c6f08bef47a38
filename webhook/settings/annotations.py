"""What the annotations of namespaces hold: text, or JSON, for the settings that they replace."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pydantic import BaseModel

from webhook.errors import InputError
from webhook.settings.mistakes import validate_field

# Of an annotation: some hundred tolerations, groups or ranges.
_MAX_CHARACTERS: Final = 16 * 1024


def read_text(text: str, model: type[BaseModel], field: str) -> Any:
    """The value of a setting in an annotation that is plain text; spaces around it do not count.

    Args:
        text: the annotation's value.
        model: the section that has the setting.
        field: the setting, by attribute.

    Raises:
        InputError: it is too long, or what a file would hear of the setting.
    """
    _check_length(text)
    return validate_field(text.strip(), model, field)


def read_json(text: str, model: type[BaseModel], field: str, example: str = "") -> Any:
    """As `read_text`, of an annotation that is JSON."""
    return validate_field(parse_json(text, example), model, field)


def _check_length(text: str) -> None:
    if len(text) > _MAX_CHARACTERS:
        raise InputError(f"it has more than {_MAX_CHARACTERS} characters", fix="shorten it")


def parse_json(text: str, example: str = "") -> Any:
    """The value in an annotation.

    Args:
        text: the annotation's value.
        example: a value that is right; empty: none is named.

    Raises:
        InputError: it is too long, has a number that is, or is not JSON, with the line and the column.
    """
    _check_length(text)
    data = text.encode(errors="replace")
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise InputError("it is nested too deeply") from None
    except msgspec.ValidationError:
        # Of a type that takes all values, only of numbers, which have no place.
        raise InputError("it has a number that is too large", fix="use a smaller one") from None
    except msgspec.DecodeError as error:
        problem, _, byte = str(error).removeprefix("JSON is malformed: ").partition(" (byte ")
        if byte:
            # Of what follows the value, msgspec has read the first byte.
            before = data[: int(byte.removesuffix(")")) - (problem == "trailing characters")]
        else:
            problem, before = "the end is missing", data.rstrip()
        line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode(errors="replace")) + 1
        what = f"it is not JSON ({problem} in line {line}, column {column})"
        raise InputError(what, fix=f"use for example {example}" if example else "") from None
