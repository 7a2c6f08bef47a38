"""Which nodes are eligible, what keeps the others out, and what is noted about the eligible ones."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import read_node
from tests.placement.samples import clusters, node, reasons_by_node, selectors, vmi, vmis
from webhook.placement.eligibility import eligibility_notes, source_notes
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LauncherPod, Migration, Vmi
from webhook.placement.nodes import Departure, Node, Tolerated
from webhook.placement.requirements import Origin, Untainted
from webhook.placement.target_pods import target_pod_requirements

LABELS = {"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/x": "true"}
CLUSTER = [
    node("n1", LABELS),
    node("n2", {**LABELS, "zone": "a"}),
    node("n3", {**LABELS, "zone": "a"}),
    node("n4", {**LABELS, "zone": "a"}, cordoned=True),
    node("n5", {**LABELS, "zone": "b"}, taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]),
    node("n6", {**LABELS, "zone": "b"}),
]
VERDICT = NodeIndex(CLUSTER).review(
    target_pod_requirements(
        vmi(None, {"cpu": {"model": "x"}}, nodeName="n1"), Migration.adding({"zone": "b"}), source_node=CLUSTER[0]
    )
)


def test_counts_openings_and_groups() -> None:
    assert (VERDICT.total, VERDICT.count, VERDICT.names()) == (6, 1, ["n6"])
    assert [(failure.count, failure.requirement.origin) for failure in VERDICT.failures] == [
        (4, Origin.ADDED),
        (1, Origin.SOURCE_NODE),
        (1, Origin.TAINTS),
        (1, Origin.CORDONED),
    ]
    tainted = VERDICT.failures[2]
    assert str(tainted.taint) == "dedicated=gpu:NoSchedule"
    assert str(tainted.taint) in tainted.lacking
    assert all(str(failure) == f"{failure.count} node(s) {failure.lacking}" for failure in VERDICT.failures)
    # The most helpful change comes first, and the largest group.
    openings = [(opening.count, opening.failures[0].requirement.origin) for opening in VERDICT.openings()]
    assert openings == [(2, Origin.ADDED), (1, Origin.TAINTS)]
    groups = [(group.count, len(group.failures), VERDICT.names(group)) for group in VERDICT.groups()]
    assert groups == [(2, 1, ["n2", "n3"]), (1, 2, ["n1"]), (1, 2, ["n4"]), (1, 1, ["n5"]), (1, 0, ["n6"])]
    # Without nodes.
    eligibility = NodeIndex().review(target_pod_requirements(vmi()))
    assert (eligibility.total, eligibility.count, eligibility.failures, eligibility.names()) == (0, 0, (), [])
    assert (eligibility.openings(), eligibility.groups()) == ((), ())


def test_a_node_with_the_same_hostname_is_not_where_the_vm_runs() -> None:
    """By that label KubeVirt keeps the target pod away (kubevirt 18946)."""
    twins = [node(name, LABELS | {"kubernetes.io/hostname": "n1"}) for name in ("n1", "n2")]
    required = target_pod_requirements(vmi(None, {"cpu": {"model": "x"}}, nodeName="n1"), source_node=twins[0])
    (failure,) = NodeIndex(twins).review(required).failures
    assert (failure.count, "same kubernetes.io/hostname" in failure.lacking) == (2, True)
    (alone,) = NodeIndex(twins[:1]).review(required).failures
    assert "hostname" not in alone.lacking


def test_kube_scheduler_may_choose_a_source_without_a_hostname() -> None:
    def notes(labels: dict[str, str], **spec: Any) -> list[str]:
        source = read_node({"metadata": {"name": "n1", "labels": labels}, "spec": spec})
        found = vmi(None, {"cpu": {"model": "x"}}, nodeName="n1")
        return [*source_notes(target_pod_requirements(found, source_node=source), source)]

    (note,) = notes(LABELS)
    assert "kubernetes.io/hostname" in note
    # It is excluded by something else.
    assert notes(LABELS, unschedulable=True) == notes({}) == []
    assert notes(LABELS | {"kubernetes.io/hostname": "n1"}) == []


def test_a_cpu_that_not_even_its_own_node_has_any_more() -> None:
    """After an update KubeVirt labels nodes with other features (kubevirt 17812, harvester 9715)."""
    feature, model = "cpu-feature.node.kubevirt.io/ht", "cpu-model-migration.node.kubevirt.io/x"
    source = node("n1", LABELS | {"kubernetes.io/hostname": "n1", model: "true"})
    found = vmi(None, {"cpu": {"model": "host-model"}}, nodeName="n1")
    pod = msgspec.convert({"spec": {"nodeSelector": {feature: "true", model: "true"}}}, LauncherPod)
    required = target_pod_requirements(found, source_pod=pod, source_node=source)
    (note,) = source_notes(required, source)
    assert (feature in note, model in note, "restart" in note) == (True, False, True)
    # A restart would not help where the node's own model is one to which no node migrates.
    source = node("n1", LABELS | {"kubernetes.io/hostname": "n1", "host-model-cpu.node.kubevirt.io/x": "true"})
    assert [*source_notes(target_pod_requirements(found, source_node=source), source)] == []


@given(vm=vmis, added=selectors, cluster=clusters)
def test_an_opening_is_what_dropping_the_requirement_brings(vm: Vmi, added: Any, cluster: list[Node]) -> None:
    index, requirements = NodeIndex(cluster), target_pod_requirements(vm, Migration.adding(added))
    eligibility = index.review(requirements)
    openings = {(each.failures[0].requirement, each.failures[0].taint): each.count for each in eligibility.openings()}

    for failure in eligibility.failures:
        if isinstance(failure.requirement, Untainted):
            tolerated = Tolerated(failure.requirement.tolerations)
            tainted = [[taint for taint in each.taints if not tolerated.covers(taint)] for each in cluster]
            others = index.review(tuple(each for each in requirements if each != failure.requirement)).names()
            gained = sum(
                taints == [failure.taint] and each.name in others for each, taints in zip(cluster, tainted, strict=True)
            )
        else:
            left = list(requirements)
            left.remove(failure.requirement)
            gained = index.review(tuple(left)).count - eligibility.count
        assert openings.get((failure.requirement, failure.taint), 0) == gained
    assert [each.count for each in eligibility.openings()] == sorted(openings.values(), reverse=True)


@given(vm=vmis, added=selectors, cluster=clusters, few=st.integers(0, 3))
def test_a_node_is_in_the_one_group_of_its_reasons(vm: Vmi, added: Any, cluster: list[Node], few: int) -> None:
    eligibility = NodeIndex(cluster).review(target_pod_requirements(vm, Migration.adding(added)))
    groups, names = eligibility.groups(), eligibility.names()
    matrix = reasons_by_node(eligibility, cluster)
    assert sorted(name for group in groups for name in eligibility.names(group)) == sorted(matrix)
    assert len({group.failures for group in groups}) == len(groups)
    for group in groups:
        described = [(each.requirement.clause, str(each.taint or "")) for each in group.failures]
        for name in eligibility.names(group):
            assert [(each.requirement.clause, each.has.partition(" taint ")[2]) for each in matrix[name]] == described
    # However many count as a few.
    with patch("webhook.placement.eligibility._FEW", few):
        assert (eligibility.groups(), eligibility.names()) == (groups, names)
        assert reasons_by_node(eligibility, cluster) == matrix


# -- notes: the words are held by `test_wording` -----------------------------------------------------------------------

NODES = [node("n1", {"zone": "a"}), node("n2", {"zone": "b"})]


def test_nothing_to_say_but_of_nodes_that_vms_leave() -> None:
    preferred: Any = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}
    anyway = [{"whenUnsatisfiable": "ScheduleAnyway"}, None]
    for spec in ({}, {"affinity": preferred}, {"topologySpreadConstraints": anyway}):
        assert eligibility_notes(vmi(spec), NODES) == ()
    drained = Departure("Drained", True)
    going = [msgspec.structs.replace(NODES[0], name=f"m{number}", departure=drained) for number in range(5)]
    notes = eligibility_notes(vmi(), [NODES[1], *going])
    assert [note.split()[0] for note in notes] == ["m0", "m1", "m2", "2"]
