"""Mappings at paths of an object that a user wrote."""

from __future__ import annotations

from typing import Any

from webhook.errors import InputError


def mapping(value: dict[str, Any], *path: str, required: bool = False, where: str = "") -> dict[str, Any]:
    """The mapping at a path below a mapping, whose own path ``where`` is; empty where there is none.

    Raises:
        InputError: something on the path is not a mapping, or the last part is required and missing.
    """
    child: Any = value
    for depth, key in enumerate(path):
        child = child.get(key)
        if child is None and not (required and depth + 1 == len(path)):
            child = {}
        if not isinstance(child, dict):
            place = ".".join(filter(None, (where, *path[: depth + 1])))
            raise InputError("is missing" if child is None else "must be a mapping", place, "see the API reference")
    result: dict[str, Any] = child
    return result
