"""A search for few moves after which no node stands out, by numbers alone: what VMs take, and who may take them.

It looks at several ways beside each other, a move at a time, and goes on with those that are best so far. A move may
make another node stand out, from which a smaller VM then goes on. The first number of moves that is enough for one of
the ways ends it. Where none is, the way that ends lowest is taken, and of those with a node from which nothing can go
the one that leaves least above the target.

What it does not look at, such as rules between VMs that both move, whoever asks has to check.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from webhook.admission.step_budget import spend
from webhook.k8s.resources import NamespacedName

# CPU and memory by which nodes are compared, and as pods request them, in percent of what is allocatable of a node.
Share: TypeAlias = tuple[float, float, float, float]
# Less is not worth a migration, in percentage points.
LEAST_GAIN: Final = 0.1
# How many ways are looked at beside each other, in clusters of up to so many nodes and in larger ones.
_WIDTHS: Final = ((64, 48), (512, 24))
_LEAST_WIDTH: Final = 8
# After so many moves, a few ways have to do: in such a plan one move more or less decides little.
_MOST_WIDE: Final = 20
_FEW: Final = 2
# Of the nodes that stand out, those that give VMs away; and of those below, those that take some.
_MOST_SOURCES: Final = 4
_MOST_TARGETS: Final = 12
# How much an even cluster counts beside one in which no node stands out.
_EVENNESS: Final = 0.01
# What has to be less above the target, as `Search` adds it up, for a move that does not lower the highest node.
_LEAST_LESS: Final = 1.0
# So many moves that make nothing better end the search.
_MOST_IN_VAIN: Final = 3
_WHOLE: Final = 100.0 + 1e-9


class Candidate(NamedTuple):
    """A VM that may be moved.

    Attributes:
        leaves: what is free on its node once it has left, in percent of that node.
        takes: what it takes of a node, in percent of that one.
        nodes: the nodes to which it may go where they have room, as a bitset of their positions.
        memory: what is to be copied, in bytes.
    """

    key: NamespacedName
    leaves: Share
    takes: Callable[[int], Share]
    nodes: int
    memory: int


class Step(NamedTuple):
    """A VM that moves from a node to another, by their positions."""

    candidate: Candidate
    source: int
    to: int


class _Way(NamedTuple):
    """Some moves, and what they come to.

    Attributes:
        loads: of the nodes that they touch.
        cost: how much nodes stand out then, and how uneven they are, which is to be small.
        above: how much of it is above the target.
        highest: how far above the mean the node is that stands out most.
    """

    steps: tuple[Step, ...]
    loads: Mapping[int, Share]
    cost: float
    above: float
    memory: int
    highest: float

    @property
    def rank(self) -> tuple[float, float, int]:
        """Sorts the way first that ends lowest."""
        return round(self.highest, 1), self.above, self.memory

    def is_worth(self, other: _Way) -> bool:
        """Whether it ends so much lower than another one that its further moves are worth it."""
        further = len(self.steps) - len(other.steps)
        if other.highest - self.highest >= LEAST_GAIN * further:
            return True
        return self.highest <= other.highest and other.above - self.above >= _LEAST_LESS * further


class Search:
    """Some nodes, with what is used of each and the mean of all, in percent.

    Args:
        used: what is used of each node, by its position.
        means: of all nodes together, which moves leave as they are.
        target: how far above the mean a node may be, in percentage points.
        candidates: the VMs on a node that may be moved, the same ones each time.
    """

    def __init__(
        self,
        used: Mapping[int, Share],
        means: tuple[float, float],
        target: float,
        candidates: Callable[[int], Sequence[Candidate]],
    ) -> None:
        self._used: Final = used
        self._means: Final = means
        self._target: Final = target
        self._candidates: Final = candidates
        # Those first that stand out most.
        self._order: Final = sorted(used, key=lambda node: (-self._excess(used[node]), node))
        widths = (width for nodes, width in _WIDTHS if len(used) <= nodes)
        self._width: Final = next(widths, _LEAST_WIDTH)

    def find(self, most: int) -> tuple[Step, ...]:
        """At most so many moves; none where the target is reached, or nothing is worth it."""
        above = sum(self._above(load) for load in self._used.values())
        best = _Way((), {}, above, above, 0, self.highest({}))
        ways, cheapest, in_vain = [best], above, 0
        while len(ways[0].steps) < most and best.highest > self._target and in_vain < _MOST_IN_VAIN:
            ways = self._next(ways)
            if not ways:
                break
            reached = [way for way in ways if way.highest <= self._target]
            lowest = min(reached, key=_by_memory) if reached else min(ways, key=lambda way: way.rank)
            is_better = lowest.is_worth(best)
            cost = min(way.cost for way in ways)
            in_vain = 0 if is_better or cost <= cheapest - LEAST_GAIN else in_vain + 1
            cheapest = min(cheapest, cost)
            best = lowest if reached or is_better else best
        return best.steps

    def _next(self, ways: Sequence[_Way]) -> list[_Way]:
        """The best of the ways with one move more."""
        found: dict[frozenset[tuple[int, Share]], tuple[float, int, _Way, Step, Share, Share]] = {}
        for way in ways:
            for step in self._steps(way):
                _, source, to = step
                from_load, to_load = self._load(way, source), self._load(way, to)
                from_after, to_after = after(step, from_load, to_load)
                changes = ((from_after, 1), (to_after, 1), (from_load, -1), (to_load, -1))
                cost = way.cost + sum(sign * self._cost(load) for load, sign in changes)
                memory = way.memory + step.candidate.memory
                key = frozenset({**way.loads, source: from_after, to: to_after}.items())
                if key not in found or (cost, memory) < found[key][:2]:
                    found[key] = cost, memory, way, step, from_after, to_after
        width = self._width if len(ways[0].steps) < _MOST_WIDE else _FEW
        best = heapq.nsmallest(width, found.values(), key=lambda each: each[:2])
        return [self._way(*each) for each in best]

    def _way(self, cost: float, memory: int, way: _Way, step: Step, source: Share, to: Share) -> _Way:
        changes = ((source, 1), (to, 1), (self._load(way, step.source), -1), (self._load(way, step.to), -1))
        above = way.above + sum(sign * self._above(load) for load, sign in changes)
        loads = {**way.loads, step.source: source, step.to: to}
        return _Way((*way.steps, step), loads, cost, above, memory, self.highest(loads))

    def _steps(self, way: _Way) -> Iterator[Step]:
        """The moves that may follow."""
        moved = {step.candidate.key for step in way.steps}
        sources = [node for node in self._fullest(way) if self._excess(self._load(way, node)) > self._target]
        targets = self._emptiest(way)
        for source in sources[:_MOST_SOURCES]:
            alike = set()
            for candidate in self._candidates(source):
                same = candidate.leaves, candidate.nodes, candidate.memory
                if candidate.key in moved or same in alike:
                    continue
                alike.add(same)
                spend(1, "moves that are compared")
                left = _MOST_TARGETS
                for to in targets:
                    if not left:
                        break
                    if to != source and candidate.nodes >> to & 1:
                        left -= 1
                        load, takes = self._load(way, to), candidate.takes(to)
                        if load[2] + takes[2] <= _WHOLE and load[3] + takes[3] <= _WHOLE:
                            yield Step(candidate, source, to)

    def _fullest(self, way: _Way) -> list[int]:
        """Some nodes, those first that stand out most, with all that moves have touched."""
        untouched = [node for node in self._order[: _MOST_SOURCES + len(way.loads)] if node not in way.loads]
        return sorted((*untouched, *way.loads), key=lambda node: -self._excess(self._load(way, node)))

    def _emptiest(self, way: _Way) -> list[int]:
        """Nodes, those first that stand out least; far more than VMs are tried on, for not all take every VM."""
        most = 8 * _MOST_TARGETS + len(way.loads)
        untouched = [node for node in self._order[-most:] if node not in way.loads]
        return sorted((*untouched, *way.loads), key=lambda node: self._excess(self._load(way, node)))

    def highest(self, loads: Mapping[int, Share]) -> float:
        """How far above the mean the node is that stands out most, with other loads of some nodes."""
        untouched = next((node for node in self._order if node not in loads), None)
        touched = [self._excess(load) for load in loads.values()]
        return max((*touched, *([] if untouched is None else [self._excess(self._used[untouched])])), default=0.0)

    def _load(self, way: _Way, node: int) -> Share:
        return way.loads.get(node) or self._used[node]

    def _excess(self, load: Share) -> float:
        """How far above the mean a node is, of the resource that stands out more."""
        return max(load[0] - self._means[0], load[1] - self._means[1])

    def _cost(self, load: Share) -> float:
        """How much a node stands out, and how far it is from the mean: of both resources, the squares."""
        return self._above(load) + _EVENNESS * sum((load[at] - self._means[at]) ** 2 for at in (0, 1))

    def _above(self, load: Share) -> float:
        """How much a node stands out: of both resources, the squares of what is above the target."""
        return sum(max(0.0, load[at] - self._means[at] - self._target) ** 2 for at in (0, 1))


def after(step: Step, source: Share, to: Share) -> tuple[Share, Share]:
    """The loads of both nodes of a step after it."""
    leaves, takes = step.candidate.leaves, step.candidate.takes(step.to)
    return (
        (source[0] - leaves[0], source[1] - leaves[1], source[2] - leaves[2], source[3] - leaves[3]),
        (to[0] + takes[0], to[1] + takes[1], to[2] + takes[2], to[3] + takes[3]),
    )


def _by_memory(way: _Way) -> tuple[int, float]:
    return way.memory, way.highest
