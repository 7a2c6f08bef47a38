"""Objects for hypothesis that are drawn by a single number: to draw each part by itself costs more than their tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from hypothesis import strategies as st


def one_of_each(options: Mapping[str, Sequence[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with one of the options for each field, where ``...`` leaves it out.

    Of more than 2**24 combinations hypothesis draws mostly the first ones.
    """

    def chosen(number: int) -> dict[str, Any]:
        found = {}
        for name, values in options.items():
            number, place = divmod(number, len(values))
            found[name] = values[place]
        return {name: value for name, value in found.items() if value is not ...}

    return st.integers(0, prod(map(len, options.values())) - 1).map(chosen)


def some_of(options: Sequence[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """A list of so many of the options, or of fewer."""
    each = (*[...] * len(options), *options)
    return one_of_each({str(number): each for number in range(most)}).map(lambda found: list(found.values()))
