"""The order for parallel workers: nothing is lost, and every worker begins with a fair part of what lasts."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from .support.order import dealt


class Item:
    """As much of a test as is looked at."""

    def __init__(self, path: str, fixtures: tuple[str, ...]) -> None:
        self.path = Path(path)
        self.fixturenames = fixtures


def module(name: str, tests: int, *fixtures: str) -> list[pytest.Item]:
    return cast("list[pytest.Item]", [Item(name, fixtures) for _ in range(tests)])


def shares(items: list[pytest.Item], workers: int) -> list[list[str]]:
    """The first tests of each worker under worksteal, by the names of the modules."""
    names = [item.path.name for item in items]
    cut = []
    for number in range(workers):
        part = len(names) // (workers - number)
        cut.append(names[:part])
        del names[:part]
    return cut


@pytest.mark.parametrize("workers", [2, 3, 4, 7])
def test_every_worker_begins_with_its_part_of_what_lasts(workers: int) -> None:
    long = [module(f"long-{n}", 2, "own_plane") for n in range(workers)]
    short = [module(f"short-{n}", 3) for n in range(workers)]
    slow = [item for each in (*short, *long) for item in each]
    items = [*module("unit", 100), *slow, *module("more", 31)]

    order = dealt(items, frozenset(slow), workers)

    assert sorted(map(id, order)) == sorted(map(id, items))
    assert [item for item in order if item not in slow] == [item for item in items if item not in slow]
    for part in shares(order, workers):
        kinds = [name.partition("-")[0] for name in part]
        assert kinds[:5] == ["long"] * 2 + ["short"] * 3
        assert len(set(part[:5])) == 2, "whole modules"
        assert set(kinds[5:]) <= {"unit", "more"}


@pytest.mark.parametrize("workers", [2, 3])
def test_what_lasts_may_be_all_there_is(workers: int) -> None:
    slow = [*module("one", 9, "module_plane"), *module("two", 1)]

    assert sorted(map(id, dealt(slow, frozenset(slow), workers))) == sorted(map(id, slow))
    assert dealt([], frozenset(), workers) == []
