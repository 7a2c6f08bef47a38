"""A loss is what an oracle makes of it that looks at every rule the plain way, and it leaves the cluster as it was."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.forecast import clusters
from tests.forecast.clusters import CLUSTERS_WITH_PRIORITIES, NAMES, REQUIRED, random_clusters
from tests.forecast.oracle import Simulated, thorough
from webhook.admission.step_budget import StepBudget
from webhook.forecast.loss import losses_without
from webhook.forecast.losses import Losses, Outcome
from webhook.forecast.snapshot import ClusterObjects
from webhook.forecast.starts import POD, VM
from webhook.k8s.types.meta import OwnerReference

LOST = st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3)


def owned(objects: ClusterObjects) -> ClusterObjects:
    """The same, with a VirtualMachine for each VMI, whose runStrategy is Always because it is not known."""
    owner = [OwnerReference("kubevirt.io/v1", "VirtualMachine", "any", "any", True)]
    vmis = tuple(replace(vmi, metadata=replace(vmi.meta, owner_references=owner)) for vmi in objects.vmis)
    return replace(objects, vmis=vmis)


def said(losses: Losses, outcome: Outcome) -> dict[str, Any]:
    """What a loss leads to, by what does not depend on how nodes are numbered."""
    return {
        "placed": {key: (losses.names[each.position], each.turn) for key, each in outcome.placed.items()},
        "victims": {
            key: [each.pod.meta.name for each in placed.victims.pods]
            for key, placed in outcome.placed.items()
            if placed.victims
        },
        "left": {key: (each.code, each.reason) for key, each in outcome.left.items()},
        "alone": {key: sorted(each.eligibility.names()) for key, each in outcome.alone.items()},
        "others": outcome.others,
    }


@thorough
@given(objects=CLUSTERS_WITH_PRIORITIES, lost=LOST)
def test_nodes_that_are_taken_away_are_as_if_they_had_never_been_there(
    objects: ClusterObjects, lost: list[str]
) -> None:
    """Rules between pods, domains and scores included; and afterwards they are back."""
    objects = owned(objects)
    losses, without = Losses(objects), losses_without(objects, lost)
    first = said(losses, losses.lose(lost))
    assert first == said(without, without.lose(lost))
    losses.lose(NAMES[:2])
    assert said(losses, losses.lose(lost)) == first


@thorough
@given(objects=random_clusters(), lost=LOST)
def test_every_vm_starts_where_an_oracle_finds_room_and_those_that_do_not_have_none(
    objects: ClusterObjects, lost: list[str]
) -> None:
    objects = owned(objects)
    losses, oracle = Losses(objects), Simulated(objects, ())
    outcome = losses.lose(lost)
    on_lost = {name for name, node in oracle.on.items() if node in lost}
    oracle.lose(lost)
    left = [name for name in NAMES if name not in lost]

    assert {key[2] for key in (*outcome.placed, *outcome.left) if key[0] == VM} == on_lost
    for key, placed in sorted(outcome.placed.items(), key=lambda item: item[1].turn):
        node = losses.names[placed.position]
        assert key[0] == POD or not oracle.problem(key[2], node)
        oracle.appear(key[2] if key[0] == POD else f"virt-launcher-{key[2]}", node)
    for key in outcome.waiting_vms:
        assert [node for node in left if not oracle.problem(key[2], node)] == []


@given(objects=random_clusters())
def test_a_loss_of_nothing_loses_nothing(objects: ClusterObjects) -> None:
    outcome = Losses(owned(objects)).lose([])
    assert (outcome.placed, outcome.left, outcome.down, outcome.others) == ({}, {}, [], 0)


def crowd(
    waiting: int, starting: int, affinities: int = 0, *, is_alike: bool = False, **options: Any
) -> ClusterObjects:
    """So many VMs that find no node, before others that do; each may want to be near as many pods that are nowhere."""
    nodes = [clusters.node(name, memory="1000Gi", cpu="1000") for name in "ab"]
    for each in nodes:
        each["status"]["allocatable"]["pods"] = "2000"
    vms = []
    for number in range(waiting):
        terms = [clusters.together(app=f"{0 if is_alike else number}-{at}")["podAffinity"] for at in range(affinities)]
        near = {"podAffinity": {REQUIRED: [term for each in terms for term in each[REQUIRED]]}}
        spec: Any = {"affinity": near} if affinities else {"nodeSelector": {"no": "where"}}
        vms.append(clusters.vm(f"a{number:03}", "a", "1Gi", **spec))
    vms += [clusters.vm(f"b{number:03}", "a", "1Mi", cpu="1m") for number in range(starting)]
    return owned(clusters.snapshot(nodes, vms, **options))


def steps(objects: ClusterObjects) -> tuple[int, int]:
    """How many VMs wait after a loss, and how many steps that takes."""
    losses, budget = Losses(objects), StepBudget(10**6)
    return len(budget.run(losses.lose, ["a"], explains=False).waiting_vms), budget.spent


def calls(objects: ClusterObjects) -> int:
    """How many calls the same takes, of functions and of what they are made of."""
    losses, number = Losses(objects), 0

    def count(*_: Any) -> None:
        nonlocal number
        number += 1

    sys.setprofile(count)
    try:
        losses.lose(["a"], explains=False)
    finally:
        sys.setprofile(None)
    return number


QUOTA = clusters.quota(pods=("900", "500"))


@pytest.mark.parametrize("options", [{}, {"affinities": 1, "is_alike": True}, {"quotas": [QUOTA]}], ids=str)
def test_a_loss_of_more_vms_takes_no_more_of_each(options: Any) -> None:
    """Whether they wait for a node or start, by rules that all of them have, and in a namespace with a quota."""
    assert calls(crowd(160, 160, **options)) < 6 * calls(crowd(40, 40, **options))


@pytest.mark.parametrize("affinities", [1, 3])
def test_comparing_what_starts_with_what_waits_takes_steps(affinities: int) -> None:
    """A tenant says how many rules there are."""
    waits, spent = steps(crowd(30, 40, affinities))
    assert waits == 30
    assert spent >= 30 * 40 * affinities


def test_quotas_count_what_has_started_before() -> None:
    """One that has been lowered since has room for half of them."""
    assert steps(crowd(0, 50, quotas=[clusters.quota(pods=("25", "50"))]))[0] == 25


def test_what_ties_is_chosen_by_whoever_asks() -> None:
    objects = owned(clusters.snapshot([clusters.node(name) for name in "abc"], [clusters.vm("web", "a")]))
    dice = random.Random(1)
    found = set()
    for _ in range(20):
        losses = Losses(objects, lambda _, ties: dice.choice([at for at in range(3) if ties >> at & 1]))
        (placed,) = losses.lose(["a"]).placed.values()
        found.add(losses.names[placed.position])
    assert found == {"b", "c"}
