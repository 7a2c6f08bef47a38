"""A cluster at the moment, and the places that it has for VMs whose node is lost.

A pod certainly starts that has more places than pods start with it: each of the others takes one place at most,
wherever it goes and whatever comes first. A node has as many places as it has room for the largest of the pods. This
needs no simulation, and holds for every order and for every choice of the scheduler among the nodes. For all nodes at
once it is kept by kinds of nodes: those whose largest pods are about the same size, and that require the same.

Where places do not suffice, `losses` simulates the loss.

All reviews share a model, so whatever changes it does so outside of their budgets of steps (`outside_budgets`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from webhook.admission.step_budget import StepBudget, outside_budgets
from webhook.k8s.resources import NamespacedName
from webhook.placement.headroom.layout import POD, Key, Layout, Nodes, PlaceOfPod
from webhook.placement.headroom.pods import PlacedPod
from webhook.placement.nodes import HOSTNAME, bitset_positions, bitset_union
from webhook.placement.simulate import SimulatedPod

# Of a node, so many places count at most.
_MOST_PLACES: Final = 8
# With fewer places to spare they are counted again before they are asked for.
_LEAST_MARGIN: Final = 16
# After so many steps no more pods without a node are looked at; an everyday one takes some 50.
_MOST_STEPS_OF_WAITING: Final = 20_000
# Of a follower that takes nothing in, so many changes are kept.
_MOST_UNSEEN: Final = 50_000

# The changes that a follower has yet to take in: where each pod is now; None: it is gone.
Changes: TypeAlias = deque[tuple[Key, PlaceOfPod | None]]


class _Kind(NamedTuple):
    """Nodes whose loss asks for about the same.

    Attributes:
        sizes: what the largest of the pods requests of each resource, rounded up.
        eligible: the nodes that meet what the VMs require, as a bitset for each requirement.
    """

    sizes: tuple[tuple[str, int], ...]
    eligible: frozenset[int]


class Doubts(NamedTuple):
    """For the loss of which nodes it is not certain that all VMs start anew once one more pod has started.

    Attributes:
        nodes: as a bitset; that of each other one leaves no VM down, wherever the pod goes.
        of_empty: whether that of a node is in doubt where nothing else starts anew, if the pod goes there.
        of_own: whether that of each node is, if the pod goes there.
    """

    nodes: int
    of_empty: bool
    of_own: bool


class _Demand(NamedTuple):
    """What the loss of one node asks for.

    Attributes:
        kind: None: places say nothing of it, because of rules between pods.
        pods: how many start anew.
    """

    kind: _Kind | None
    pods: int


class _Added(NamedTuple):
    """Pods that may go to any node that they fit on, and those of them that start anew."""

    pods: list[PlacedPod]
    starting: list[PlacedPod]


_NOTHING: Final = _Demand(None, 0)


class Model(Layout):
    """The cluster at a moment; its nodes stay, pods come and go.

    Args:
        nodes: the nodes.
        restarts: returns whether KubeVirt starts a VM again that has been lost, by its namespace and name.

    Attributes:
        unbound: what has no node yet; as far as it fits anywhere, it is assumed where the scheduler would send it now.
    """

    def __init__(self, nodes: Nodes, restarts: Callable[[NamespacedName], bool]) -> None:
        super().__init__(nodes)
        self.unbound: Final[dict[Key, PlacedPod]] = {}
        self._restarts: Final = restarts
        self._demands: Final[dict[int, _Demand]] = {}
        self._kinds: Final[dict[_Kind, Counter[int]]] = {}
        self._nodes_of: Final[dict[_Kind | None, int]] = {}
        self._changed: Final[set[int]] = set()
        # By position, how many places more than needed the pods of a node had, and after how many moves.
        self._margins: Final[dict[int, tuple[int, int]]] = {}
        self._moves = 0
        # The moves after which those without a node were last looked at.
        self._looked_at: int | None = None
        # Of what has no node, how much was not looked at since anything has moved.
        self._not_looked_at = 0
        self._prepared_at: int | None = None
        self._has_wide_rules = False
        self._changes: Changes | None = None

    # -- what is where -------------------------------------------------------------------------------------------------

    @outside_budgets
    def put(self, key: Key, pod: PlacedPod) -> None:
        """Have a pod take room: on its node, or, as long as it has none, where the scheduler would send it now."""
        self.remove(key)
        self.changes += 1
        position = self.index.position(pod.node) if pod.node else None
        self.track(pod.simulated)
        if position is None:
            if pod.node and not self.starts_anew(pod):
                return  # it is gone with its node
            self.unbound[key] = pod
            position = self._choose(pod)
        if position is not None:
            self.bind(key, PlaceOfPod(pod, position, self.starts_anew(pod)))

    def remove(self, key: Key) -> None:
        """Have something take no room any more."""
        self.unbound.pop(key, None)
        self.unbind(key)

    @outside_budgets
    def bind(self, key: Key, place: PlaceOfPod) -> None:
        """See `Layout.bind`."""
        super().bind(key, place)
        self._notice_change(key, place, place)

    @outside_budgets
    def unbind(self, key: Key) -> PlaceOfPod | None:
        """See `Layout.unbind`."""
        place = super().unbind(key)
        if place is not None:
            self._notice_change(key, place, None)
        return place

    @outside_budgets
    def track(self, pod: SimulatedPod) -> None:
        """See `Layout.track`."""
        super().track(pod)
        self._has_wide_rules = self._has_wide_rules or self._is_wide(pod)

    @outside_budgets
    def place_waiting(self, most: int) -> None:
        """Look again for a node for what has none, for as many VMs and as many pods as that, unless nothing has moved.

        Whatever was looked at goes behind the others of its kind, so that pods which fit nowhere hold up nobody.
        """
        waiting = [key for key in self.unbound if key not in self.places]
        left = len(waiting) if self._looked_at != self._moves else min(self._not_looked_at, len(waiting))
        pods = [key for key in waiting if key[0] == POD]
        vms = [key for key in waiting if key[0] != POD]
        # It counts, and never ends.
        steps = StepBudget(2**62)
        for key in (*vms[:most], *pods[:most]) if left else ():
            pod = self.unbound[key] = self.unbound.pop(key)
            left -= 1
            position = steps.run(self._choose, pod)
            if position is not None:
                self.bind(key, PlaceOfPod(pod, position, self.starts_anew(pod)))
            if steps.spent > _MOST_STEPS_OF_WAITING:
                break
        self._looked_at, self._not_looked_at = self._moves, max(left, 0)

    @outside_budgets
    def notice(self, keys: Iterable[Key]) -> None:
        """Whether KubeVirt starts these again has changed."""
        for key in keys:
            place = self.places.get(key)
            if place is not None:
                self.unbind(key)
                self.bind(key, place._replace(starts_anew=self.starts_anew(place.pod)))

    def starts_anew(self, pod: PlacedPod) -> bool:
        """Whether a pod is created in the place of one that is lost."""
        return self._restarts(pod.of_vm) if pod.vm else pod.is_recreated

    def follow(self) -> Changes:
        """All that is there, and from now on each change, for one follower, which takes them out; it replaces another.

        One that takes nothing in for too long is followed by none.
        """
        self._changes = deque(self.places.items())
        return self._changes

    def is_followed_by(self, changes: Changes) -> bool:
        """Whether the changes that a follower has are still kept."""
        return self._changes is changes

    def _choose(self, pod: PlacedPod) -> int | None:
        nodes, position = self.choices(pod)
        return position if nodes else None

    def _notice_change(self, key: Key, place: PlaceOfPod, after: PlaceOfPod | None) -> None:
        self._moves += 1
        self._changed.add(place.position)
        info = place.pod.simulated.info
        if info.rules.anti_affinity:
            self._changed.update(self.simulation.rules.kept_away(info))
        if self._changes is not None:
            self._changes.append((key, after))
            if len(self._changes) > len(self.places) + _MOST_UNSEEN:
                self._changes = None

    def _is_wide(self, pod: SimulatedPod) -> bool:
        """Whether a pod keeps others away from more nodes than its own."""
        terms = pod.info.rules.anti_affinity
        return bool(terms) and not (self.nodes.hosts_are_nodes and all(near.key == HOSTNAME for near in terms))

    # -- room ----------------------------------------------------------------------------------------------------------

    def count_changed(self) -> Iterator[None]:
        """Count again what the loss of nodes asks for on which something has changed, in slices."""
        while self._changed:
            self._count(self._changed.pop())
            yield

    @outside_budgets
    def _count(self, position: int) -> None:
        before, after = self._demands.get(position, _NOTHING), self._demand(position)
        bit = 1 << position
        if before.pods:
            self._nodes_of[before.kind] ^= bit
            if before.kind:
                counts = self._kinds[before.kind]
                counts[before.pods] -= 1
                if not counts[before.pods]:
                    del counts[before.pods]
                if not counts:
                    del self._kinds[before.kind]
        if after.pods:
            self._nodes_of[after.kind] = self._nodes_of.get(after.kind, 0) ^ bit
            if after.kind:
                self._kinds.setdefault(after.kind, Counter())[after.pods] += 1
        self._demands[position] = after
        self._margins.pop(position, None)

    def prepare(self) -> Iterator[None]:
        """Find out how many places the pods of nodes have to spare for which rules between pods count, in slices."""
        yield from self.count_changed()
        if self._has_wide_rules or self._prepared_at == self._moves:
            return
        self._prepared_at = self._moves
        for position in bitset_positions(self._nodes_of.get(None, 0)):
            margin, moves = self._margins.get(position, (0, self._moves))
            if margin - (self._moves - moves) < _LEAST_MARGIN:
                yield from self._count_margin(position)

    def _count_margin(self, position: int) -> Iterator[None]:
        moves, margin = self._moves, None
        for spare in self.spare_places(position, self.starting(position)):
            margin = spare.nodes if margin is None else min(margin, spare.nodes)
            if margin <= 0:
                return
            yield
            if position in self._changed:
                return
        if margin is not None:
            self._margins[position] = margin, moves

    def doubtful(self, pod: PlacedPod, *, starts_anew: bool) -> Doubts:
        """Where it is not certain, by room alone, that all VMs start anew once one more pod has started somewhere.

        What has no node yet may go to any that it fits on, and so may the pod.
        """
        for _ in self.count_changed():
            pass
        unbound = [each for key, each in self.unbound.items() if key in self.places]
        if any(self._is_wide(each.simulated) for each in (pod, *unbound)):
            return Doubts(bitset_union(self._nodes_of.values()), of_empty=True, of_own=True)
        starting = [each for each in unbound if self.starts_anew(each)]
        added = _Added([pod, *unbound], [pod, *starting] if starts_anew else starting)
        free: dict[tuple[str, int], int] = {}
        nodes = self._without_margin(self._nodes_of.get(None, 0), len(added.pods))
        for kind, counts in self._kinds.items():
            if not self._has_places(kind, max(counts), added, free):
                nodes |= self._nodes_of[kind]
        own = _demand_kind([pod.simulated], [self.eligibility(pod).bitset])
        has_rules = self.has_rules(pod)
        return Doubts(nodes, has_rules or not self._has_places(own, 0, added, free), has_rules)

    def _without_margin(self, nodes: int, unbound: int) -> int:
        """Those of the nodes of whose pods it was not found out that they have places to spare, or too long ago.

        Each pod that has come or gone since, and each that has no node yet, takes one place at most.
        """
        if self._has_wide_rules:
            return nodes
        for position, (margin, moves) in self._margins.items():
            if margin - (self._moves - moves) >= 2 * unbound:
                nodes &= ~(1 << position)
        return nodes

    def _has_places(self, kind: _Kind, pods: int, added: _Added, free: dict[tuple[str, int], int]) -> bool:
        """Whether there are places for the pods of a node, wherever those go that have no node yet."""
        sizes = dict(kind.sizes)
        eligible = set(kind.eligible)
        for each in added.pods:
            for name, amount in each.simulated.requests.items():
                sizes[name] = max(amount, sizes.get(name, 0))
        eligible.update(self.eligibility(each).bitset for each in added.starting if not self.has_rules(each))
        # Each that is added may start anew, too, and takes one place, or all of a node where it keeps others away.
        keeping = sum(bool(each.simulated.info.rules.anti_affinity) for each in added.pods)
        needed = pods + 2 * len(added.pods) - keeping
        found = dict.fromkeys(eligible, 0)
        for number in range(1, _MOST_PLACES + 1):
            nodes = -1
            for name, amount in sizes.items():
                key = name, number * amount
                if key not in free:
                    free[key] = self.simulation.with_free(*key)
                nodes &= free[key]
            for among in found:
                found[among] += (nodes & among).bit_count()
            # Those of the lost node itself do not count.
            if all(places - number >= needed + keeping * number for places in found.values()):
                return True
            if not nodes:
                break
        return False

    def _demand(self, position: int) -> _Demand:
        starting = [pod for _, pod in self.starting(position)]
        if not starting:
            return _NOTHING
        if any(map(self.has_rules, starting)):
            return _Demand(None, len(starting))
        # Where no VM is, others are in the way of the first one that comes.
        eligible = [self.eligibility(each).bitset for each in starting if each.vm]
        return _Demand(_demand_kind([each.simulated for each in starting], eligible), len(starting))


def _demand_kind(pods: list[SimulatedPod], eligible: list[int]) -> _Kind:
    sizes: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            sizes[name] = max(amount, sizes.get(name, 0))
    rounded = ((name, round_up(amount)) for name, amount in sorted(sizes.items()))
    return _Kind(tuple(rounded), frozenset(eligible))


def round_up(amount: int) -> int:
    """A number of which only the first three binary digits are not zero, the next one up."""
    shift = max(amount.bit_length() - 3, 0)
    return -(-amount >> shift) << shift
