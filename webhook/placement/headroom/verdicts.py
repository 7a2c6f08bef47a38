"""What one more start does to "any one node may be lost": shown by room at once, or by simulations, in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import msgspec

from webhook.errors import quote
from webhook.k8s.resources import NamespacedName
from webhook.placement.headroom.layout import Key, Layout, PlaceOfPod
from webhook.placement.headroom.losses import Losses, OutOfSteps, Slices, Steps
from webhook.placement.headroom.model import Doubts, Model
from webhook.placement.headroom.obstacles import (
    MORE_NODES,
    Cause,
    Fix,
    either,
    explain_no_node,
    free_some,
    group_between,
    is_tied,
)
from webhook.placement.headroom.pods import PlacedPod
from webhook.placement.nodes import bitset_positions, format_amount
from webhook.placement.requirements import Origin

# Of those that have no node yet, so many are looked at again for each answer.
_MOST_WAITING: Final = 20


class Verdict(msgspec.Struct, frozen=True):
    """What one more start does to "any one node may be lost".

    Attributes:
        kind: ``kept``: it stays true of each node of which it was. ``broken``: it does not. ``no-room``: no node has
            room for the VM even now. ``not-proven``: to find out takes too many steps, or too long.
        how: what shows that: the room that there is; a simulation, in the orders of ``explain loss``; or one in another
            order, or with other choices of kube-scheduler among the nodes that tie.
        node: where the VM would start, if it is broken then.
        lost: the node whose loss would leave VMs down.
        vms: these, by namespace and name.
        before: how many VMs that loss leaves down already.
        shortage: what all other nodes together have too little of, a clause; then the VMs are not known.
        why: why no node can take the VM, of ``no-room``.
        fix: what would help.
    """

    kind: Literal["kept", "broken", "no-room", "not-proven"]
    how: Literal["room", "simulation", "another-order", ""] = ""
    node: str = ""
    lost: str = ""
    vms: tuple[NamespacedName, ...] = ()
    before: int = 0
    shortage: str = ""
    why: Cause = Cause()
    fix: Fix = Fix()

    @property
    def denies(self) -> bool:
        """Whether the VM may not start."""
        return self.kind in ("broken", "no-room")


class Start(msgspec.Struct, frozen=True):
    """A VM's start.

    Attributes:
        starts_anew: whether KubeVirt starts the VM again once its node is lost.
    """

    key: Key
    pod: PlacedPod
    starts_anew: bool


def judge_by_room(model: Model, start: Start) -> Verdict | Doubts:
    """The verdict, or the losses that are in doubt. What starts has no room in the model."""
    model.place_waiting(_MOST_WAITING)
    if not model.feasible(start.pod):
        why, fix = explain_no_node(model, start.pod)
        return Verdict("no-room", why=why, fix=fix)
    doubts = model.doubtful(start.pod, starts_anew=start.starts_anew)
    if not doubts.nodes and not (start.starts_anew and doubts.of_empty):
        return Verdict("kept", "room")
    return doubts


def judge_by_simulation(losses: Losses, start: Start, doubts: Doubts, steps: Steps) -> Slices[Verdict]:
    """The verdict, by simulating the losses that are in doubt, of what has caught up with the model."""
    with losses.without(start.key):
        losses.track(start.pod.simulated)
        positions, _ = losses.choices(start.pod)
        try:
            yield
            for place, lost in _in_doubt(losses, start, doubts, positions):
                if broken := (yield from _broken(losses, start.key, place, lost, losses.left, steps)):
                    return broken
        except OutOfSteps:
            short = None
            with suppress(OutOfSteps):
                short = yield from _short(losses, start, positions)
            return short or Verdict("not-proven")
        with suppress(OutOfSteps):
            for place, lost in _in_doubt(losses, start, doubts, positions):
                find = losses.left_in_other_orders
                if broken := (yield from _broken(losses, start.key, place, lost, find, steps)):
                    return msgspec.structs.replace(broken, how="another-order")
        return Verdict("kept", "simulation")


def _in_doubt(losses: Losses, start: Start, doubts: Doubts, positions: int) -> Iterator[tuple[PlaceOfPod, int]]:
    """Where the pod may go, and which loss has to be simulated then; that of the same node comes first."""
    for position in bitset_positions(positions):
        place = PlaceOfPod(start.pod, position, start.starts_anew)
        has_others = any(each.pod.vm and each.starts_anew for each in losses.at(position).values())
        is_first = doubts.of_own or (doubts.of_empty and not has_others)
        if doubts.nodes >> position & 1 or (start.starts_anew and is_first):
            yield place, position
        for lost in bitset_positions(doubts.nodes):
            if lost != position:
                yield place, lost


def _short(losses: Losses, start: Start, positions: int) -> Slices[Verdict | None]:
    """What there is too little of, wherever VMs go; None: nothing that there was enough of."""
    if not positions:
        return None
    place = PlaceOfPod(start.pod, (positions & -positions).bit_length() - 1, start.starts_anew)
    short = yield from losses.shortage(place)
    if short is None:
        return None
    lost, resource = losses.names[short.position], short.resource
    needed, free = (format_amount(resource, each) for each in (short.needed, short.free))
    what = f"its VMs request {needed} of {resource}, and all other nodes have {free} free"
    fix = Fix(f"add a node like {lost}", "add a node")
    return Verdict("broken", "room", losses.names[place.position], lost, shortage=what, fix=fix)


_Find: TypeAlias = Callable[[int, Steps], Slices[tuple[Key, ...]]]


def _broken(
    losses: Losses, key: Key, place: PlaceOfPod, lost: int, find: _Find, steps: Steps
) -> Slices[Verdict | None]:
    """How the loss of a node leaves more VMs down with one more on some node; None: it does not."""
    with losses.having(key, place):
        left = yield from find(lost, steps)
    if not left:
        return None
    before = yield from find(lost, steps)
    if len(left) <= len(before):
        return None
    # Those that have had a place; what would help the others is no help for them.
    named = [each for each in left if each not in before]
    vms = tuple(place.pod.of_vm if each == key else losses.places[each].pod.of_vm for each in named)
    with losses.having(key, place):
        fix = _fix(losses, losses.places[named[0]].pod, lost, place.pod.name[0])
    names = losses.names[place.position], losses.names[lost]
    return Verdict("broken", "simulation", *names, vms, len(before), fix=fix)


def _fix(layout: Layout, pod: PlacedPod, lost: int, namespace: str) -> Fix:
    """The cheapest change by which a VM of a lost node has a place; its group is for its own namespace to know."""
    everywhere = layout.eligibility(pod)
    eligibility = everywhere.without(1 << lost)
    filtered = layout.simulation.filter(pod.simulated, eligibility)
    for opening in eligibility.openings():
        if opening.failures[0].requirement.origin == Origin.CORDONED:
            for position in bitset_positions(opening.nodes & filtered.with_free & ~filtered.forbidden):
                return Fix(f"uncordon node {quote(layout.names[position])}", "uncordon a node")
    added = MORE_NODES if is_tied(pod, everywhere) else Fix(f"add a node like {layout.names[lost]}", "add a node")
    if not eligibility.count:
        return either([added, MORE_NODES])
    room = free_some(layout, pod, eligibility.bitset & ~filtered.forbidden)
    fixes = [room, added] if room else [added]
    if pod.name[0] == namespace and (group := group_between(layout, pod, filtered)):
        # Of the VM that finds no place, which need not be the one that starts.
        plain = "take a VM out of the group of the one that finds no place"
        fixes.append(Fix(f"take a VM out of group {quote(group)}", plain))
    return either(fixes)
