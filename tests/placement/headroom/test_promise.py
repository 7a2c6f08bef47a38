"""What is called kept is kept: in any order, wherever pods go, and as ``explain loss`` says it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.forecast.clusters import APPS, HOST, Json, apart, filler, node, owned, snapshot, together
from tests.forecast.oracle import thorough
from tests.placement.headroom.fleets import headroom, machine, starting
from webhook.forecast.losses import Losses
from webhook.placement.headroom.headroom import Headroom
from webhook.placement.headroom.layout import POD
from webhook.placement.headroom.model import Model, round_up
from webhook.placement.headroom.pods import PlacedPod
from webhook.placement.nodes import bitset_positions

NODES = ["n0", "n1", "n2", "n3", "n4"]
SIZES = st.sampled_from(["512Mi", "1Gi", "2Gi", "3Gi"])


@st.composite
def specs(draw: st.DrawFn) -> Json:
    """What a VM asks for, with rules between pods or without."""
    spec: Json = {"labels": {"app": draw(APPS)}, "cpu": draw(st.sampled_from(["100m", "500m"]))}
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"zone": draw(st.sampled_from("ab"))}
    match draw(st.sampled_from(["free", "free", "free", "apart", "together"])):
        case "apart":
            spec["affinity"] = apart(draw(st.sampled_from([HOST, "zone"])), app=draw(APPS))
        case "together":
            spec["affinity"] = together(draw(st.sampled_from([HOST, "zone"])), app=draw(APPS))
    return spec


@st.composite
def fleets(draw: st.DrawFn, *, rules: bool = True) -> tuple[list[Json], list[Any], list[Json], Json]:
    """Nodes, VMs that run, other pods, and what a new VM asks for."""
    names = NODES[: draw(st.integers(2, 5))]
    nodes = [
        node(
            name,
            memory=draw(st.sampled_from(["4Gi", "6Gi", "8Gi"])),
            cpu=draw(st.sampled_from(["1", "2"])),
            cordoned=draw(st.integers(0, 5)) == 0,
            zone=draw(st.sampled_from("ab")),
        )
        for name in names
    ]
    plain = st.fixed_dictionaries({"cpu": st.sampled_from(["100m", "500m"])})
    spec = specs() if rules else plain
    vms = [
        machine(f"vm-{number}", draw(st.sampled_from(names)), draw(SIZES), **draw(spec))
        for number in range(draw(st.integers(0, 9)))
    ]
    fillers = [filler(f"pod-{number}", draw(st.sampled_from(names))) for number in range(draw(st.integers(0, 3)))]
    return nodes, vms, fillers, {"memory": draw(SIZES), **draw(spec)}


def model_of(found: Headroom) -> Model:
    return found._current()


def where(found: Headroom, pod: PlacedPod) -> list[str]:
    """The nodes that a pod fits on."""
    model = model_of(found)
    feasible = model.simulation.filter(pod.simulated, model.eligibility(pod)).feasible
    return [model.names[position] for position in bitset_positions(feasible)]


def starts_at_random(found: Headroom, lost: str, chance: random.Random) -> bool:
    """Whether all VMs of a node find another, in any order, and each on any node with room."""
    model = model_of(found)
    position = model.index.position(lost)
    assert position is not None
    bit = 1 << position
    simulation = model.simulation
    on = [pod for pod in found._pods.values() if pod.node == lost]
    again = [pod for pod in on if model.starts_anew(pod)]
    chance.shuffle(again)
    for pod in on:
        model.remove((POD, *pod.name))
    simulation.lose(bit)
    bound = []
    left = []
    for pod in again:
        feasible = simulation.filter(pod.simulated, model.eligibility(pod).without(bit)).feasible
        if not feasible:
            left.append(pod)
            continue
        at = chance.choice(list(bitset_positions(feasible)))
        simulation.bind(pod.simulated, at)
        bound.append((pod.simulated, at))
    for simulated, at in reversed(bound):
        simulation.unbind(simulated, at)
    simulation.lose(bit)
    for pod in on:
        model.put((POD, *pod.name), pod)
    return not any(pod.vm for pod in left)


def can_leave_a_vm_down(found: Headroom, lost: str) -> bool:
    """Whether some order, and some choice among the nodes with room, leaves a VM of a node without one."""
    model = model_of(found)
    position = model.index.position(lost)
    assert position is not None
    bit = 1 << position
    simulation = model.simulation
    on = [pod for pod in found._pods.values() if pod.node == lost]
    for pod in on:
        model.remove((POD, *pod.name))
    simulation.lose(bit)

    def search(waiting: list[PlacedPod]) -> bool:
        # Others start before VMs, and those of higher priority first.
        first = min((each.turn[:2] for each in waiting), default=None)
        for pod in [each for each in waiting if each.turn[:2] == first]:
            feasible = simulation.filter(pod.simulated, model.eligibility(pod).without(bit)).feasible
            rest = [each for each in waiting if each is not pod]
            if not feasible and pod.vm:
                return True
            if not feasible and search(rest):
                return True
            for at in bitset_positions(feasible):
                simulation.bind(pod.simulated, at)
                is_found = search(rest)
                simulation.unbind(pod.simulated, at)
                if is_found:
                    return True
        return False

    try:
        return search([pod for pod in on if model.starts_anew(pod)])
    finally:
        simulation.lose(bit)
        for pod in on:
            model.put((POD, *pod.name), pod)


@thorough
@given(fleet=fleets())
def test_a_start_that_another_order_breaks_is_broken_by_one(fleet: Any) -> None:
    nodes, vms, fillers, new = fleet
    found, pod = headroom(nodes, vms, pods=fillers, also=["new"]), starting("new", **new)
    verdict = found.judge(pod)
    if verdict.how != "another-order":
        return
    found.put_pod(replace(pod, node=verdict.node))
    assume(sum(each.node == verdict.lost for each in found._pods.values()) <= 6)
    assert can_leave_a_vm_down(found, verdict.lost), verdict


@thorough
@given(fleet=fleets(rules=False), seed=st.integers(0, 2**32))
def test_what_room_shows_holds_in_every_order_and_wherever_pods_go(fleet: Any, seed: int) -> None:
    nodes, vms, fillers, new = fleet
    found, pod, chance = headroom(nodes, vms, pods=fillers, also=["new"]), starting("new", **new), random.Random(seed)
    verdict = found.judge(pod)
    if (verdict.kind, verdict.how) != ("kept", "room"):
        return
    for place in where(found, pod):
        found.put_pod(replace(pod, node=place))
        for each in nodes:
            assert all(starts_at_random(found, each["metadata"]["name"], chance) for _ in range(3))


@thorough
@given(fleet=fleets())
def test_explain_loss_finds_no_more_vms_down_after_a_start_that_keeps_it(fleet: Any) -> None:
    nodes, vms, fillers, new = fleet
    found, pod = headroom(nodes, vms, pods=fillers, also=["new"]), starting("new", **new)
    verdict = found.judge(pod)
    owners = [owned(each) for each in vms]
    before = Losses(snapshot(nodes, vms, pods=fillers, owners=owners))
    if verdict.kind == "no-room" or verdict.how == "another-order":
        return
    if verdict.kind == "broken":
        # With the VM on that node, that loss leaves more down.
        places, lost = [verdict.node], [verdict.lost]
    else:
        assert verdict.kind == "kept"
        model = model_of(found)
        places = [model.names[position] for position in bitset_positions(model.choices(pod)[0])]
        assert places
        lost = [each["metadata"]["name"] for each in nodes]
    for place in places:
        fresh = machine("new", place, **new)
        after = Losses(snapshot(nodes, [*vms, fresh], pods=fillers, owners=[*owners, owned(fresh)]))
        for name in lost:
            down = [
                max(len(losses.lose([name], by_size=by_size, explains=False).waiting_vms) for by_size in (False, True))
                for losses in (before, after)
            ]
            assert (down[1] > down[0]) == (verdict.kind == "broken"), (place, name, verdict)


@thorough
@given(fleet=fleets(), steps=st.integers(0, 400))
def test_an_answer_leaves_the_cluster_as_it_was_wherever_it_ends(fleet: Any, steps: int) -> None:
    nodes, vms, fillers, new = fleet
    found, pod = headroom(nodes, vms, pods=fillers, also=["new"]), starting("new", **new)
    fresh = headroom(nodes, vms, pods=fillers, also=["new"])
    found.judge(pod, steps)
    assert found.judge(pod) == fresh.judge(pod)
    resources = [
        {model.names[at]: model.simulation.resources(at).free for at in model.names}
        for model in (model_of(found), model_of(fresh))
    ]
    assert resources[0] == resources[1]


@pytest.mark.parametrize(
    ("amount", "rounded"), [(0, 0), (1, 1), (7, 7), (8, 8), (9, 10), (100, 112), (2**30 + 1, 5 * 2**28)]
)
def test_sizes_are_rounded_up_to_few_digits(amount: int, rounded: int) -> None:
    assert round_up(amount) == rounded
