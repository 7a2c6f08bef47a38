"""A plan honours the limit of migrations that a node receives, by the turns in which KubeVirt begins them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import changed
from tests.builders import settings as any_settings
from tests.forecast.clusters import GIB, Json, node, snapshot, vm
from tests.golden_files import Golden
from webhook import names
from webhook.forecast import drain, update
from webhook.forecast.inbound import in_slots
from webhook.forecast.movers import EquivalenceClasses, mover_of
from webhook.forecast.report import ASSUMED_BANDWIDTH, DrainPlan, Limits
from webhook.forecast.snapshot import PlannedCluster
from webhook.policies.migration.settings import MigrationSettings
from webhook.settings.model import Settings

OPTED_IN = {"labels": {names.policy_label("migration"): "enforce"}}
# The empty node is the one that all VMs of the others would choose.
EMPTY = [
    node("a", memory="64Gi"),
    node("b", memory="64Gi"),
    node("empty", memory="640Gi"),
    node("small", memory="16Gi"),
]


def limit(most: int, **more: Any) -> Settings:
    return changed(any_settings(), migration=changed(MigrationSettings(), max_inbound_per_node=most, **more))


def drained(
    most: int, vms: list[Any], namespace: Json = OPTED_IN, nodes: list[Json] = EMPTY, **limits: Any
) -> DrainPlan:
    world = snapshot(nodes, vms, settings=limit(most), namespace=namespace, limits=limits)
    return drain.plan(world, ["a", "b"])


def goals(plan: DrainPlan) -> Counter[str]:
    return Counter(each.to for each in plan.steps[0].vms)


VMS = [vm(f"web-{number}", "ab"[number % 2]) for number in range(4)]
FOUR: dict[str, Any] = {"parallelMigrationsPerCluster": 4}


def test_at_most_so_many_go_to_a_node_at_the_same_time(golden: Golden) -> None:
    assert goals(drained(0, VMS, **FOUR)) == {"empty": 4}
    assert goals(drained(2, VMS, **FOUR)) == {"empty": 2, "small": 2}
    # When each migration has ended before the next one, the node never receives two.
    assert goals(drained(1, VMS, parallelMigrationsPerCluster=1)) == {"empty": 4}
    golden("\n".join(drained(2, VMS, **FOUR).notes))


def test_nobody_stays_without_a_node_for_it(golden: Golden) -> None:
    """Where no other node is eligible, the limit is exceeded: the target pod would wait for nothing."""
    plan = drained(1, VMS, nodes=EMPTY[:3], **FOUR)
    assert (goals(plan), plan.blocks) == ({"empty": 4}, 0)
    golden("\n".join(plan.notes))


def test_then_the_next_higher_limit_counts() -> None:
    """Without any, three would go to the node that all choose."""
    assert goals(drained(1, VMS, **FOUR)) == {"empty": 2, "small": 2}


@pytest.mark.parametrize("namespace", [{"labels": {}}, {"labels": {names.policy_label("migration"): "audit"}}])
def test_it_counts_only_where_the_policy_is_enforced(namespace: Json) -> None:
    assert goals(drained(1, VMS, namespace, **FOUR)) == {"empty": 4}


def test_a_vm_for_which_only_the_busy_node_has_room_moves_later() -> None:
    """KubeVirt gives its target pod up after five minutes, and tries again."""
    large = [vm(f"large-{number}", "ab"[number % 2], "32Gi") for number in range(4)]
    plan = drained(1, large, **FOUR)
    assert (goals(plan), plan.blocks) == ({"empty": 4}, 0)


def test_an_update_honours_it() -> None:
    updates = {"workloadUpdateMethods": ["LiveMigrate"]}
    world = snapshot(
        EMPTY, VMS, settings=limit(1), namespace=OPTED_IN, updates=updates, limits={"parallelMigrationsPerCluster": 2}
    )
    found = Counter(each.to for each in update.plan(world).vms)
    assert found["empty"] == 2
    assert sum(found.values()) == 4


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 8)), min_size=1, max_size=9),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_slots_are_kubevirts(vms: list[tuple[str, int]], per_cluster: int, per_node: int) -> None:
    """All begin, none before there is a slot in the cluster and on its node."""
    nodes = [node(name, memory="64Gi") for name in "abcd"]
    world = PlannedCluster(snapshot(nodes, [vm(f"vm-{at}", on, f"{size}Gi") for at, (on, size) in enumerate(vms)]))
    classes = EquivalenceClasses(world)
    movers = [(mover_of(each, classes, None), None) for each in world.vmis.values()]
    limits = Limits(per_cluster, per_node, ASSUMED_BANDWIDTH, True, 150, 15, 0)
    begun: list[tuple[str, int]] = []

    def begin(mover: Any, _more: None, receiving: Counter[int]) -> int:
        assert receiving.total() < per_cluster
        # What this one leaves is the node that receives, so that both limits are seen in one count.
        position = "abc".index(mover.vmi.node_name)
        assert receiving[position] < per_node
        begun.append((mover.vmi.node_name, -(-mover.memory // GIB)))
        return position

    in_slots(movers, limits, begin)
    assert sorted(begun) == sorted((on, size) for on, size in vms)
