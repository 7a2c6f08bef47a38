"""The scalar values that Go's structs read of JSON, and what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.errors import InputError
from webhook.k8s import quantity


class WrongValue(Exception):  # noqa: N818 - never leaves this package
    """A value of the wrong kind; the path is put together on the way out, so that success costs nothing.

    Args:
        what: what is wrong with it, as a clause without a subject.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


def kind_of(value: Any) -> str:
    """What JSON calls a value's type, with its article."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def check_string(value: Any) -> str:
    """The value, which must be a string."""
    if not isinstance(value, str):
        raise WrongValue(f"is {kind_of(value)}, not a string")
    return value


def check_boolean(value: Any) -> bool:
    """The value, which must be true or false."""
    if type(value) is not bool:
        raise WrongValue(f"is {kind_of(value)}, not true or false")
    return value


def integer_check(least: int, most: int) -> Callable[[Any], int]:
    """A check for whole numbers between two bounds, both included.

    Args:
        least: the lower bound.
        most: the upper bound.
    """

    def check(value: Any) -> int:
        if type(value) is not int:
            raise WrongValue("is not a whole number" if type(value) is float else f"is {kind_of(value)}, not a number")
        if not least <= value <= most:
            raise WrongValue(f"is not between {least} and {most}")
        return value

    return check


def check_quantity(value: Any) -> str:
    """The value in Kubernetes' canonical form of a quantity."""
    if type(value) is quantity.Computed:
        return str(value)
    try:
        return quantity.canonical(value)
    except InputError as error:
        raise WrongValue(error.what) from None


def check_int_or_string(value: Any) -> int | str:
    """The value, which must be a string or an int32."""
    return value if type(value) is str else integer_check(-(2**31), 2**31 - 1)(value)
