"""In which order parallel workers run the tests: whole modules of what takes longest first, all else in between.

xdist's scheduler ``worksteal`` gives every worker an equal part of the tests as they stand, one after the other, and
takes from the end of the longest queue for a worker with nothing left. As they are collected, all that takes minutes
would stand together, and the last worker would end alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest

# Tests with one of these use a control plane that is not the shared one, a module's once for all of them.
OWN, OF_MODULE = "own_plane", "module_plane"
# So many ordinary tests last as long as one that gets a plane.
WEIGHT = 20


def dealt(items: Sequence[pytest.Item], slow: frozenset[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in the order in which so many workers should get them.

    The first begins with its part of those that are slow and has the others for later; the last begins with half of
    the others. Slow tests mostly wait: where all workers waited at once, the processors would have nothing to do.
    """
    modules = [list(found) for _, found in groupby((item for item in items if item in slow), lambda item: item.path)]
    piles: list[list[pytest.Item]] = [[] for _ in range(workers)]
    weights = [0] * workers
    # Those with planes first, so that a worker gives its plane from one to the next.
    for module in sorted(modules, key=lambda module: (any(map(uses_planes, module)), _weight(module)), reverse=True):
        lightest = weights.index(min(weights))
        piles[lightest] += module
        weights[lightest] += _weight(module)
    others = [item for item in items if item not in slow]
    left = len(items)
    for number, pile in enumerate(piles):
        # The part that worksteal will cut off.
        room = max(0, left // (workers - number) - len(pile))
        before = room * number // (2 * workers - 2)
        pile[:0] = others[:before]
        pile.extend(others[before:room])
        del others[:room]
        left -= len(pile)
    return [item for pile in piles for item in pile] + others


def uses_planes(item: pytest.Item) -> bool:
    """Whether it uses a control plane that is not the shared one."""
    return not {OWN, OF_MODULE}.isdisjoint(getattr(item, "fixturenames", ()))


def _weight(module: Sequence[pytest.Item]) -> int:
    names = [getattr(item, "fixturenames", ()) for item in module]
    return sum(WEIGHT if OWN in name else 1 for name in names) + WEIGHT * any(OF_MODULE in name for name in names)
