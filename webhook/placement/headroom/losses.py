"""The loss of a node, simulated as ``explain loss`` does it: by priority, other pods before VMs, and VMs by name.

It is simulated once more with the smallest first, and, as far as steps are left, in other orders. Of more than
`layout.MOST_SCORED` nodes kube-scheduler scores only some; there each pod is taken to go where most memory is free.

A simulation takes pods away and puts them elsewhere, and takes longer than a review may keep others waiting. So it has
a layout of its own, which follows the model between two of them, and everything here is a generator: whoever drives it
lets others have their turn where it yields.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

from webhook.admission.step_budget import StepBudget, outside_budgets
from webhook.placement.headroom.layout import Key, Layout, PlaceOfPod
from webhook.placement.headroom.model import Changes, Model
from webhook.placement.headroom.pods import PlacedPod
from webhook.placement.nodes import CPU, MEMORY, bitset_positions
from webhook.placement.simulate import SimulatedPod

T = TypeVar("T")
Slices: TypeAlias = Generator[None, None, T]

# A schedule takes about so many steps, and a look at the room for a pod.
_STEPS_TO_PLACE: Final = 20
_STEPS_TO_LOOK: Final = 5
# Of so many nodes each takes one step more.
_NODES_TO_PLACE: Final = 4
_NODES_TO_LOOK: Final = 32
# Orders in which a loss is simulated beside those of `explain loss`, as far as steps are left.
_OTHER_ORDERS: Final = 16
_LARGEST: Final = 4
# Of a slice, so many small things.
_SLICE: Final = 50

_Starting: TypeAlias = list[tuple[Key, PlacedPod]]
_Left: TypeAlias = tuple[Key, ...]
# By resource, and what is free of each on nodes, by position.
_Amounts: TypeAlias = Mapping[str, int]
_Free: TypeAlias = Mapping[int, _Amounts]
# A pod, and the position of the node that it goes to.
_Move: TypeAlias = tuple[PlacedPod, int]


class OutOfSteps(Exception):  # noqa: N818 - a state of affairs
    """An answer would take more steps, or longer, than it may."""


class Steps:
    """The steps that an answer may take; what is spent below counts, too, and ends nothing half-way.

    Args:
        limit: how many.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._own = 0
        self._budget: Final = StepBudget(2**62)

    def take(self, number: int) -> None:
        """Take steps, or raise `OutOfSteps` where so many are not left."""
        self._own += number
        if self._own + self._budget.spent > self._limit:
            raise OutOfSteps

    def pay(self, work: Slices[T]) -> Slices[T]:
        """Have these steps pay for what is spent in the slices of some work; what it is sent and told is passed on."""
        advance = partial(next, work)
        try:
            while True:
                try:
                    self._budget.run(advance)
                except StopIteration as returned:
                    result: T = returned.value
                    return result
                try:
                    yield
                    advance = partial(next, work)
                except OutOfSteps as error:
                    advance = partial(work.throw, error)
        finally:
            work.close()


class Shortage(NamedTuple):
    """What all other nodes have too little of if one is lost.

    Attributes:
        position: the node that is lost.
        needed: what its VMs request together, in kube-scheduler's unit.
        free: what the others have.
    """

    position: int
    resource: str
    needed: int
    free: int


class Losses(Layout):
    """What is on the nodes of a model, to simulate losses with.

    Args:
        model: what it follows.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model.nodes)
        self._changes: Final[Changes] = model.follow()

    def follows(self, model: Model) -> bool:
        """Whether it can catch up with a model."""
        return model.is_followed_by(self._changes)

    @property
    def is_behind(self) -> bool:
        """Whether something has changed in the model that it has not taken in."""
        return bool(self._changes)

    def catch_up(self) -> Iterator[None]:
        """Take in what has changed in the model, in slices."""
        yield from self.load()
        taken = 0
        while self._changes:
            self._take_in(*self._changes.popleft())
            taken += 1
            if taken % _SLICE == 0:
                yield

    @outside_budgets
    def _take_in(self, key: Key, place: PlaceOfPod | None) -> None:
        self.unbind(key)
        if place is not None:
            self.track(place.pod.simulated)
            self.bind(key, place)

    @contextmanager
    def without(self, key: Key) -> Iterator[None]:
        """Have something be on no node for as long as the context lasts."""
        place = self.unbind(key)
        try:
            yield
        finally:
            if place:
                self.bind(key, place)

    @contextmanager
    def having(self, key: Key, place: PlaceOfPod) -> Iterator[None]:
        """Have a pod be on a node for as long as the context lasts."""
        self.bind(key, place)
        try:
            yield
        finally:
            self.unbind(key)

    # -- one loss ------------------------------------------------------------------------------------------------------

    def left(self, position: int, steps: Steps) -> Slices[_Left]:
        """The VMs that do not start anew once a node is lost; raises `OutOfSteps`."""
        starting = self.starting(position)
        if not any(pod.vm for _, pod in starting) or (yield from self._is_certain(position, starting, steps)):
            return ()
        by_name = sorted(starting, key=lambda each: each[1].turn)
        by_size = sorted(starting, key=lambda each: each[1].turn_by_size)
        with self._lost(position):
            left = yield from self._start(position, by_name, steps)
            # Equal sizes in the same order start alike.
            other = (yield from self._start(position, by_size, steps)) if by_size != by_name else ()
        return max(left, other, key=len)

    def left_in_other_orders(self, position: int, steps: Steps) -> Slices[_Left]:
        """As `left`, in some orders as good as any, and with other choices among the nodes that tie."""
        starting = self.starting(position)
        if not any(pod.vm for _, pod in starting) or (yield from self._is_certain(position, starting, steps)):
            return ()
        with self._lost(position):
            left = yield from self._may_be_blocked(position, starting, steps)
            for number, order in enumerate(_other_orders(starting)):
                found = yield from self._start(position, order, steps, number)
                left = max(left, found, key=len)
        return left

    def _is_certain(self, position: int, starting: _Starting, steps: Steps) -> Slices[bool]:
        """Whether each VM has more places than pods start, counted for this node alone."""
        for spare in self.spare_places(position, starting):
            steps.take(_STEPS_TO_LOOK + len(self.names) // _NODES_TO_LOOK)
            if spare.all < 0:
                return False
            yield
        return True

    @contextmanager
    def _lost(self, position: int) -> Iterator[None]:
        """Have a node be lost for as long as the context lasts."""
        simulation, bit = self.simulation, 1 << position
        gone = [place.pod.simulated for place in self.at(position).values()]
        for simulated in gone:
            simulation.unbind(simulated, position)
        simulation.lose(bit)
        try:
            yield
        finally:
            simulation.lose(bit)
            for simulated in gone:
                simulation.bind(simulated, position)

    def _start(self, position: int, starting: _Starting, steps: Steps, choice: int | None = None) -> Slices[_Left]:
        """The VMs that find no node if what was on a lost one starts anew in this order; afterwards all is as before.

        Args:
            position: the node that is lost.
            starting: what starts anew, in its order.
            steps: those that this takes.
            choice: which of the nodes that tie is taken, as a seed; None: the one with most free memory.
        """
        steps.take((_STEPS_TO_PLACE + len(self.names) // _NODES_TO_PLACE) * len(starting))
        simulation, bit = self.simulation, 1 << position
        bound: list[tuple[SimulatedPod, int]] = []
        waiting: _Starting = []

        def start(pod: PlacedPod) -> bool:
            nodes, at = self.choices(pod, self.eligibility(pod).without(bit))
            if nodes:
                if choice is not None and nodes & (nodes - 1):
                    ties = list(bitset_positions(nodes))
                    at = ties[(choice + len(bound)) % len(ties)]
                simulation.bind(pod.simulated, at)
                bound.append((pod.simulated, at))
            return bool(nodes)

        try:
            for key, pod in starting:
                yield
                if not start(pod):
                    waiting.append((key, pod))
                    continue
                # kube-scheduler looks again at those that want to be near it, or are spread with it.
                recent = [pod]
                while helped := next(
                    (each for each in waiting if any(map(each[1].wants, recent)) and start(each[1])), None
                ):
                    waiting.remove(helped)
                    recent.append(helped[1])
            return tuple(key for key, pod in waiting if pod.vm)
        finally:
            for simulated, at in reversed(bound):
                simulation.unbind(simulated, at)

    def _may_be_blocked(self, position: int, starting: _Starting, steps: Steps) -> Slices[_Left]:
        """Those of a lost node's VMs from which the others can take every place, wherever scores send them.

        The largest of the others go where they leave too little, and the rest together. It finds not all such ways.
        """
        blocked = []
        seen = set()
        for key, vm in starting:
            own = vm.simulated.requests
            alike = tuple(sorted(own.items())), vm.requirements
            if not vm.vm or alike in seen:
                continue
            seen.add(alike)
            yield
            steps.take(_STEPS_TO_LOOK * len(starting))
            nodes = self._feasible(position, vm)
            others = [each for other, each in starting if other != key and each.turn[:2] <= vm.turn[:2]]
            # Each of the others takes one node at most.
            if not 0 < nodes.bit_count() <= len(others):
                continue
            free = {
                at: {name: self.simulation.resources(at).free.get(name, 0) for name in own}
                for at in bitset_positions(nodes)
            }
            yield
            for fill in (_fill, _fill_sparingly):
                moves = yield from fill(free, own, others)
                if moves and (yield from self._blocks(position, vm, moves, steps)):
                    blocked.append(key)
                    break
        return tuple(blocked)

    def _feasible(self, position: int, pod: PlacedPod) -> int:
        """The nodes that a pod fits on once one is lost, as a bitset."""
        return self.simulation.filter(pod.simulated, self.eligibility(pod).without(1 << position)).feasible

    def _blocks(self, position: int, vm: PlacedPod, moves: list[_Move], steps: Steps) -> Slices[bool]:
        """Whether a VM of a lost node finds no node once others have gone to some nodes, and whether they can."""
        steps.take((_STEPS_TO_PLACE + len(self.names) // _NODES_TO_PLACE) * len(moves))
        bound: list[_Move] = []
        try:
            for pod, at in sorted(moves, key=lambda move: move[0].turn[:2]):
                yield
                if not self._feasible(position, pod) >> at & 1:
                    return False
                self.simulation.bind(pod.simulated, at)
                bound.append((pod, at))
            return not self._feasible(position, vm)
        finally:
            for pod, at in reversed(bound):
                self.simulation.unbind(pod.simulated, at)

    def shortage(self, place: PlaceOfPod) -> Slices[Shortage | None]:
        """What all other nodes together have too little of for the VMs of a lost node, once a pod has started on one.

        None: nothing that they did have enough of before. That does not say that each VM finds a place.
        """
        for resource in (MEMORY, CPU):
            more = place.pod.simulated.requests.get(resource, 0)
            free = {at: max(0, self.simulation.resources(at).free.get(resource, 0)) for at in self.names}
            yield
            total = sum(free.values())
            for count, at in enumerate(self.names):
                if count % _SLICE == 0:
                    yield
                vms = [each.simulated for _, each in self.starting(at) if each.vm]
                needed = sum(each.requests.get(resource, 0) for each in vms)
                if needed + more <= total - free[at]:
                    continue
                # Those that have no place in any case are no reason.
                alone = [each for each in vms if self._with_free(each) & ~(1 << at)]
                needed = sum(each.requests.get(resource, 0) for each in alone)
                if not needed <= total - free[at] < needed + more:
                    continue
                if at != place.position:
                    return Shortage(at, resource, needed, total - free[at] - more)
                if place.starts_anew:
                    return Shortage(at, resource, needed + more, total - free[at])
        return None

    def _with_free(self, pod: SimulatedPod) -> int:
        """The nodes that have enough free for a pod, as a bitset."""
        nodes = -1
        for resource, amount in pod.requests.items():
            nodes &= self.simulation.with_free(resource, amount)
        return nodes


def _fill(free: _Free, own: _Amounts, pods: Sequence[PlacedPod]) -> Slices[list[_Move] | None]:
    """Where pods can go so that on no node enough is left for ``own`` requests; None: it is not found.

    The largest go where they leave too little, and the others together.
    """
    moves: list[_Move] = []
    small = []
    open_nodes = dict(free)
    for pod in sorted(pods, key=_memory, reverse=True):
        yield
        alone = [at for at, room in open_nodes.items() if _fits(pod, room) and not _is_left(room, own, pod)]
        if alone:
            at = max(alone, key=lambda at: open_nodes[at].get(MEMORY, 0))
            moves.append((pod, at))
            del open_nodes[at]
        else:
            small.append(pod)
    for at in sorted(open_nodes, key=lambda each: open_nodes[each].get(MEMORY, 0)):
        yield
        taken = _crowd(open_nodes[at], own, small)
        if taken is None:
            return None
        moves.extend((pod, at) for pod in taken)
        small = _without(small, taken)
    return moves


def _fill_sparingly(free: _Free, own: _Amounts, pods: Sequence[PlacedPod]) -> Slices[list[_Move] | None]:
    """As `_fill`, each node by the smallest pod that does it alone, or by the largest of those that are left."""
    moves: list[_Move] = []
    left = sorted(pods, key=_memory)
    for at in sorted(free, key=lambda each: free[each].get(MEMORY, 0)):
        yield
        room = free[at]
        alone = next((pod for pod in left if _fits(pod, room) and not _is_left(room, own, pod)), None)
        taken = [alone] if alone else _crowd(room, own, left[::-1])
        if taken is None:
            return None
        moves.extend((pod, at) for pod in taken)
        left = _without(left, taken)
    return moves


def _crowd(room: _Amounts, own: _Amounts, pods: Sequence[PlacedPod]) -> list[PlacedPod] | None:
    """Those of some pods, in this order, that fit on a node together and leave too little; None: they leave enough."""
    taken = []
    room = dict(room)
    for pod in pods:
        if _fits(pod, room):
            room = {name: amount - pod.simulated.requests.get(name, 0) for name, amount in room.items()}
            taken.append(pod)
        if any(own[name] > amount for name, amount in room.items()):
            return taken
    return None


def _without(pods: Sequence[PlacedPod], taken: Sequence[PlacedPod]) -> list[PlacedPod]:
    gone = set(map(id, taken))
    return [pod for pod in pods if id(pod) not in gone]


def _memory(pod: PlacedPod) -> int:
    return pod.simulated.requests.get(MEMORY, 0)


def _fits(pod: PlacedPod, room: _Amounts) -> bool:
    return all(pod.simulated.requests.get(name, 0) <= amount for name, amount in room.items())


def _is_left(room: _Amounts, own: _Amounts, pod: PlacedPod) -> bool:
    """Whether a node has enough for ``own`` requests beside a pod."""
    return all(pod.simulated.requests.get(name, 0) + own[name] <= amount for name, amount in room.items())


def _other_orders(starting: _Starting) -> Iterator[_Starting]:
    """Those first that leave least for one of the largest: it comes last, and of the others the large ones first."""
    by_size = sorted(starting, key=lambda each: each[1].turn_by_size, reverse=True)
    seen: set[tuple[int, bool, int]] = set()
    for last in by_size:
        size = last[1].turn_by_size[:3]
        if last[1].vm and size not in seen and len(seen) < _LARGEST:
            seen.add(size)
            others = [each for each in by_size if each is not last]
            yield sorted([*others, last], key=lambda each: each[1].turn[:2])
    for number in range(_OTHER_ORDERS):
        yield sorted(starting, key=lambda each: (*each[1].turn[:2], _shuffle(number, each[0])))


def _shuffle(number: int, key: Key) -> int:
    """A number that sorts in one of many orders, the same each time."""
    return crc32(f"{number}/{key[1]}/{key[2]}".encode())
