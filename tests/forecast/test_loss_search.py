from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.forecast import clusters
from tests.forecast.clusters import (
    CLUSTERS_WITH_PRIORITIES,
    NAMES,
    TIMED,
    Json,
    apart,
    node,
    quota,
    random_clusters,
    snapshot,
    timed,
    vm,
)
from tests.forecast.oracle import thorough
from tests.forecast.test_losses import owned
from webhook.errors import InputError
from webhook.forecast import loss_search
from webhook.forecast.loss import losses_without
from webhook.forecast.loss_report import LossPlan
from webhook.forecast.loss_search import _Room, _weight, search, search_zones
from webhook.forecast.losses import Losses
from webhook.forecast.snapshot import ClusterObjects
from webhook.kubevirt.config import ClusterConfig
from webhook.placement.nodes import ZONE, bitset_positions


def down(objects: ClusterObjects, lost: tuple[str, ...]) -> int:
    """How many VMs a loss leaves down, of a cluster that is made for it."""
    return len(losses_without(objects, lost).lose(lost).waiting_vms)


def fleet(nodes: int, vms: int, memory: str = "1Gi", **spec: Any) -> ClusterObjects:
    """Nodes of 8 GiB, each a zone, and on each so many VMs."""
    names = [f"n{number}" for number in range(nodes)]
    on = [vm(f"{name}-{number}", name, memory, **spec) for name in names for number in range(vms)]
    return owned(snapshot([node(name, zone=name) for name in names], on))


WITH_HURDLES = random_clusters(with_hurdles=True)


@thorough
@given(objects=st.one_of(random_clusters(), CLUSTERS_WITH_PRIORITIES))
def test_a_search_finds_what_each_loss_by_itself_leads_to(objects: ClusterObjects) -> None:
    assert_searched(objects)


@thorough
@given(objects=WITH_HURDLES)
def test_a_search_finds_what_keeps_vms_from_starting_though_there_is_room(objects: ClusterObjects) -> None:
    assert_searched(objects)


def assert_searched(objects: ClusterObjects) -> None:
    """Assert that a search finds what each loss of one node or two leads to."""
    objects = owned(objects)
    found = search(objects, 2)
    by_one: dict[tuple[str, ...], int] = {(name,): number for name in NAMES if (number := down(objects, (name,)))}
    sound = [name for name in NAMES if (name,) not in by_one]
    by_two: dict[tuple[str, ...], int] = {
        pair: number for pair in combinations(sound, 2) if (number := down(objects, pair))
    }
    every: dict[tuple[str, ...], int] = {**by_one, **by_two}
    assert {each.nodes: each.waits for each in found.failing} == every
    smallest = sorted(every, key=lambda lost: (len(lost), -every[lost], lost))
    assert (found.nodes, found.waits) == ((smallest[0], every[smallest[0]]) if every else ((), 0))
    examined = found.examined
    assert examined is not None
    assert (examined.losses, examined.left_out) == (15, 0)
    assert examined.by_room + examined.simulated + examined.implied == examined.losses
    assert examined.implied == 10 - len([*combinations(sound, 2)])
    assert examined.stays_down == sum(len(losses_without(objects, (name,)).lose([name]).down) for name in NAMES)


@thorough
@given(objects=st.one_of(random_clusters(), WITH_HURDLES), seed=st.integers(0, 1000), size=st.integers(1, 2))
def test_what_is_certain_holds_in_any_order_and_wherever_each_pod_goes(
    objects: ClusterObjects, seed: int, size: int
) -> None:
    objects, dice = owned(objects), random.Random(seed)
    losses = Losses(objects)
    room = _Room(losses, size)
    weights = {name: _weight(losses, room, name) for name in NAMES}
    for lost in combinations(NAMES, size):
        starting = sum(weights[name].starts for name in lost)
        if not all(weights[name].certifies(starting - weights[name].starts, size) for name in lost):
            continue
        without = losses_without(objects, lost)
        starts, _ = without.starting(lost)
        for start in dice.sample(starts, len(starts)):
            assert without.denial(start) is None
            feasible = without.simulation.filter(start.pod, without.eligibility(start)).feasible
            assert feasible
            without.simulation.bind(start.pod, dice.choice([*bitset_positions(feasible)]))


def counts(found: LossPlan) -> tuple[int, int, int, int, int]:
    assert found.examined is not None
    each = found.examined
    return each.losses, each.by_room, each.simulated, each.implied, each.left_out


def test_where_there_is_room_to_spare_nothing_is_simulated() -> None:
    assert counts(search(fleet(9, 1), 2)) == (45, 45, 0, 0, 0)
    # Of hosts, anti-affinity takes one node from each other at most.
    assert counts(search(fleet(9, 1, labels={"app": "x"}, affinity=apart(app="y")), 2)) == (45, 45, 0, 0, 0)
    assert counts(search(fleet(9, 1, labels={"app": "x"}, affinity=apart("zone", app="y")), 1)) == (9, 0, 9, 0, 0)
    # Who keeps off all others has nowhere to go.
    assert counts(search(fleet(3, 1, labels={"app": "x"}, affinity=apart(app="x")), 2)) == (6, 0, 3, 3, 0)


def test_quotas_are_never_certain() -> None:
    world = owned(snapshot([node(name) for name in "abc"], [vm("web", "a")], quotas=[quota(pods=("9", "1"))]))
    assert counts(search(world, 1)) == (3, 2, 1, 0, 0)


def test_a_vm_whose_scheduler_is_down_is_never_certain() -> None:
    """There is room for it everywhere, and its pod waits for the scheduler."""
    six = [node(f"n{number}") for number in range(6)]
    world = owned(snapshot(six, [vm("web", "n0", schedulerName="custom")]))
    assert counts(search(world, 1)) == (6, 6, 0, 0, 0)
    found = search(replace(world, schedulers_down={"custom": "Lease expired 12s ago"}), 2)
    assert ([each.nodes for each in found.failing], found.waits) == ([("n0",)], 1)
    assert counts(found) == (21, 15, 1, 5, 0)
    assert [each.code for each in found.vms] == ["scheduler-down"]


def windows(name: str, on: str) -> tuple[Json, Json]:
    """A VM that needs a TSC frequency."""
    made = vm(name, on)
    made[0]["spec"]["domain"]["features"] = TIMED
    return made


def test_a_frequency_that_depends_on_the_loss_is_never_certain() -> None:
    """Without the slowest node, KubeVirt takes the frequency of the next one, which it alone has."""
    nodes = [node("n0", **timed(1000)), node("n2", memory="512Mi", **timed(2000, [1000]))]
    nodes += [node(f"n{number}", **timed(3000, [1000])) for number in (1, *range(3, 10))]
    world = owned(snapshot(nodes, [windows("web", "n1")]))
    assert search(world, 1).failing == ()
    found = search(world, 2)
    assert ([each.nodes for each in found.failing], found.waits) == ([("n0", "n1")], 1)
    assert [each.code for each in found.vms] == ["no-eligible-node"]


@pytest.mark.parametrize("slow", [0, 3])
def test_a_frequency_that_no_loss_changes_is_certain(slow: int) -> None:
    """The lowest is that of more nodes than are lost, or KubeVirt's configuration says it."""
    names = [f"n{number}" for number in range(9)]
    nodes = [node(name, **timed(1000 if at < slow else 3000, [1000])) for at, name in enumerate(names)]
    world = owned(snapshot(nodes, [windows(f"vm-{name}", name) for name in names]))
    assert counts(search(world, 2)) == (45, 45, 0, 0, 0)
    one = [node("n0", **timed(1000)), *(node(name, **timed(3000, [1000])) for name in names[1:])]
    world = owned(snapshot(one, [windows(f"vm-{name}", name) for name in names]))
    assert counts(search(world, 2)) == (45, 0, 45, 0, 0)
    # Of one node, it is that of the loss.
    assert counts(search(world, 1)) == (9, 9, 0, 0, 0)
    configuration = ClusterConfig.of({"developerConfiguration": {"minimumClusterTSCFrequency": 1000}})
    world = replace(world, kubevirt=configuration)
    assert counts(search(world, 2)) == (45, 45, 0, 0, 0)


def test_a_loss_that_leaves_vms_down_only_with_another() -> None:
    """Three nodes with two VMs of 2 GiB each: two of them hold all, and one does not."""
    found = search(fleet(3, 2, "2Gi"), 2)
    assert (found.nodes, found.waits, len(found.failing)) == (("n0", "n1"), 2, 3)
    assert search(fleet(3, 2, "2Gi"), 1).failing == ()


def test_what_was_not_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_search, "_SEARCH_STEPS", 3000)
    world = fleet(30, 1, labels={"app": "x"}, affinity=apart("zone", app="y"))
    losses, by_room, simulated, implied, left_out = counts(search(world, 2))
    assert (losses, by_room, implied) == (465, 0, 0)
    assert (simulated > 30, left_out > 0, simulated + left_out) == (True, True, losses)


def test_zones() -> None:
    zones: list[Json] = [{ZONE: zone} for zone in "aab"]
    nodes = [node(name, **labels) for name, labels in zip(("a1", "a2", "b1"), zones, strict=True)]
    world = owned(snapshot(nodes, [vm("web", "a1", "5Gi"), vm("db", "a2", "5Gi"), vm("low", "b1")]))
    found = search_zones(world)
    (failing,) = found.failing
    assert (failing.zone, failing.nodes, failing.waits, failing.vms) == ("a", ("a1", "a2"), 1, ("shop/web",))
    assert (found.by_zone, found.nodes, found.waits, counts(found)) == (True, ("a1", "a2"), 1, (2, 0, 2, 0, 0))
    with pytest.raises(InputError, match="no node has the label"):
        search_zones(snapshot([node("a")], []))


@pytest.mark.parametrize("size", [1, 2])
def test_large_clusters_take_bounded_steps(size: int) -> None:
    """Whatever rules their VMs have."""
    spread = clusters.large(400)
    found = search(owned(spread), size)
    assert found.examined is not None
    assert found.examined.losses == 400 if size == 1 else 80_200
