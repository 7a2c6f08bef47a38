"""Target pods leave out nodes that receive enough migrations, and are never left without a node for it."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.builders import CONTROLLER, Json, changed, read_node
from tests.policies.migration.world import decide, facts, migration, node, target_pod, terms, vmi
from webhook.admission.decision import Decision
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Key, ListKey, NodesKey, ObjectKey
from webhook.k8s.types.scheduling import REQUIRED
from webhook.placement.index import NodeIndex
from webhook.placement.machines import JOB_UID, LAUNCHER_PODS, MIGRATIONS, UNFINISHED, LauncherPod, Migration, Vmi
from webhook.placement.nodes import HOSTNAME
from webhook.placement.target_pods import foreign_affinity
from webhook.policies.common.migration_targets import Target
from webhook.policies.migration import reasons
from webhook.policies.migration.inbound import MOST, Limit, Receiving, Unbound, limit
from webhook.policies.migration.match_conditions import of_target_pods
from webhook.policies.migration.settings import MigrationSettings

PLACE = "mutate/migration/pods"
NODES = [node("node-a1", "a"), node("node-a2", "a"), node("node-b1", "b")]
ALL = ListKey(UNFINISHED, "")


def under_way(uid: str, phase: str = "Running", namespace: str = "other") -> Migration:
    made = {"metadata": {"name": uid, "namespace": namespace, "uid": uid}, "spec": {"vmiName": "x"}}
    return msgspec.convert(made | {"status": {"phase": phase}}, Migration)


def pod_on(uid: str, node_name: str = "", phase: str = "Running") -> LauncherPod:
    made: Json = {"metadata": {"name": "p", "labels": {JOB_UID: uid}}, "spec": {"nodeName": node_name or None}}
    return msgspec.convert(made | {"status": {"phase": phase}}, LauncherPod)


def receiving(*places: str, nodes: list[Json] = NODES, found: Json | None = None) -> dict[Key[Any], object]:
    """Migrations that are under way, by the nodes of their target pods; empty: not bound yet."""
    known = facts(found, nodes) | {ALL: tuple(under_way(f"u{number}") for number in range(len(places)))}
    for number, place in enumerate(places):
        known[ListKey(LAUNCHER_PODS, "other", f"{JOB_UID}=u{number}")] = (pod_on(f"u{number}", place),)
    return known


def limited(
    world: dict[Key[Any], object], most: int = 1, obj: Json | None = None, added: dict[str, str] | None = None
) -> Decision:
    known = {ObjectKey(MIGRATIONS, "demo", "m1"): msgspec.convert(migration(added), Migration)} | world
    return decide(obj or target_pod(), known, PLACE, CONTROLLER, max_inbound_per_node=most)


def left_out(decision: Decision, obj: Json | None = None) -> list[list[str]]:
    """The hostnames that each term leaves out."""
    if not decision.changes:
        return []
    expressions = [each.get("matchExpressions", []) for each in terms(obj or target_pod(), decision)]
    return [[value for one in each if one["operator"] == "NotIn" for value in one["values"]] for each in expressions]


@pytest.mark.parametrize(
    ("places", "most", "expected"),
    [
        ([], 1, []),
        (["node-a2"], 1, [["node-a2"]]),
        (["node-a2"], 2, []),
        (["node-a2", "node-b1", "node-a2"], 2, [["node-a2"]]),
        # A node that has gone.
        (["node-x"], 1, []),
    ],
)
def test_nodes_that_receive_enough_are_left_out(places: list[str], most: int, expected: list[list[str]]) -> None:
    decision = limited(receiving(*places), most)
    assert left_out(decision) == expected
    assert decision.code == (reasons.INBOUND_LIMITED if expected else reasons.NO_ADDED_SELECTOR)
    assert {change.reason for change in decision.changes} <= {reasons.INBOUND_LIMITED}


def test_every_term_is_narrowed_beside_what_the_migration_adds() -> None:
    one, two = {"key": "disk", "operator": "Exists"}, {"key": "gpu", "operator": "NotIn", "values": ["x"]}
    obj = target_pod([{"matchExpressions": [one]}, {"matchExpressions": [two]}])
    decision = limited(receiving("node-a2"), obj=obj, added={"zone": "b"})
    assert decision.code == reasons.CONSTRAINED
    assert reasons.INBOUND_LIMITED in {each.code for each in decision.reasons}
    zone = {"key": "zone", "operator": "In", "values": ["b"]}
    limit = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-a2"]}
    assert [each["matchExpressions"] for each in terms(obj, decision)] == [[one, zone, limit], [two, zone, limit]]


@pytest.mark.control("forged-inbound-migrations")
def test_a_vm_is_never_left_without_a_node_for_it() -> None:
    """Node-a1 is where it runs."""
    decision = limited(receiving("node-a2", "node-b1"))
    assert not decision.changes
    assert [each.code for each in decision.warnings] == [reasons.INBOUND_EXCEEDED]
    # A node that the VM may not go to is none that is left.
    bound_to_a = vmi({"zone": "a"})
    assert not limited(receiving("node-a2", found=bound_to_a)).changes
    assert limited(receiving("node-b1", found=bound_to_a)).changes
    # Nodes that share a hostname are left out together.
    twin = node("node-b1", "b")
    twin["metadata"]["labels"]["kubernetes.io/hostname"] = "node-a2"
    twins = [*NODES[:2], twin]
    assert not limited(receiving("node-a2", nodes=twins)).changes


def test_what_is_added_holds_though_the_limit_does_not() -> None:
    decision = limited(receiving("node-a2", "node-b1"), added={"zone": "b"})
    assert decision.code == reasons.CONSTRAINED
    assert left_out(decision) == [[]]


@pytest.mark.control("forged-inbound-migrations")
def test_only_migrations_under_way_are_counted() -> None:
    known = receiving("node-a2")
    for phase in ("Succeeded", "Failed"):
        assert not limited(known | {ALL: (under_way("u0", phase),)}).changes, phase
    # virt-controller reports another phase a moment after it has created the target pod.
    for phase in ("", "Pending", "Scheduling", "Running"):
        assert left_out(limited(known | {ALL: (under_way("u0", phase),)})) == [["node-a2"]]
    itself = msgspec.convert({**migration(), "status": {"phase": "Scheduling"}}, Migration)
    assert not limited(known | {ALL: (itself,)}).changes
    gone = {ListKey(LAUNCHER_PODS, "other", f"{JOB_UID}=u0"): (pod_on("u0", "node-a2", "Failed"),)}
    assert not limited(known | gone).changes
    # It waits in KubeVirt's queue, without a target pod.
    waiting = {ListKey(LAUNCHER_PODS, "other", f"{JOB_UID}=u0"): ()}
    assert not limited(known | waiting).changes


APART = ("spec", "affinity", "podAntiAffinity", REQUIRED)
PLENTY = [node(f"node-{name}", "a") for name in ("a1", "a2", "b1", "b2", "b3")]


def terms_apart(decision: Decision) -> list[Any]:
    """What is written into the pod's required anti-affinity."""
    written: Any = next((change.new for change in decision.changes if change.path == APART), [])
    return [*written]


def kept_apart(decision: Decision) -> list[str]:
    """The UIDs of the migrations from whose target pods the pod stays apart."""
    written = terms_apart(decision)
    if not written:
        return []
    (term,) = written
    assert (term["topologyKey"], term["namespaces"]) == ("kubernetes.io/hostname", ["other"])
    (expression,) = term["labelSelector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (JOB_UID, "In")
    values: list[str] = expression["values"]
    return values


@pytest.mark.parametrize(
    ("places", "most", "left", "apart"),
    [
        # Not bound yet: nobody knows where it goes.
        ([""], 1, [], ["u0"]),
        (["", ""], 1, [], ["u0", "u1"]),
        (["", "node-a2"], 1, ["node-a2"], ["u0"]),
        ([""], 2, [], []),
        # One more may go to the same node, and one that is bound there leaves no room for it.
        (["", "node-a2"], 2, ["node-a2"], []),
        (["", ""], 2, [], ["u1"]),
        (["", "node-a2", "node-a2"], 3, ["node-a2"], []),
        (["", "node-a2"], 3, [], []),
    ],
)
def test_those_without_a_node_are_kept_apart_from(
    places: list[str], most: int, left: list[str], apart: list[str]
) -> None:
    decision = limited(receiving(*places, nodes=PLENTY), most)
    found = left_out(decision) if any("nodeAffinity" in change.path for change in decision.changes) else []
    assert found == ([left] if left else [])
    assert kept_apart(decision) == apart


def test_what_the_vm_is_apart_from_stays_so() -> None:
    own = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    obj = target_pod()
    obj["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [own]}}
    decision = limited(receiving("", nodes=PLENTY), obj=obj)
    written = terms_apart(decision)
    assert (written[0], len(written)) == (own, 2)


def test_of_the_own_namespace_nothing_is_said() -> None:
    """A quota may keep pods from naming namespaces."""
    known = receiving("", nodes=PLENTY)
    known[ALL] = (under_way("u0", namespace="demo"),)
    known[ListKey(LAUNCHER_PODS, "demo", f"{JOB_UID}=u0")] = (pod_on("u0"),)
    (term,) = terms_apart(limited(known))
    assert "namespaces" not in term


@pytest.mark.parametrize(
    ("places", "left"),
    [
        (["node-a2", "node-b1"], []),
        (["node-a2", "node-b1", "node-b1"], ["node-b1"]),
        # Each of those without a node may take one of two.
        (["", ""], []),
        (["", "node-b1"], ["node-b1"]),
    ],
)
def test_where_no_node_would_be_left_the_next_higher_limit_counts(places: list[str], left: list[str]) -> None:
    decision = limited(receiving(*places))
    assert [each.code for each in decision.warnings] == [reasons.INBOUND_EXCEEDED]
    found = [each for change in decision.changes if "nodeAffinity" in change.path for each in left_out(decision)]
    assert found == ([left] if left else [])


@cache
def anywhere(count: int) -> Target:
    """The target of a migration that all of so many nodes may receive."""
    names = [f"n{number}" for number in range(count)]
    index = NodeIndex([read_node({"metadata": {"name": name, "labels": {HOSTNAME: name}}}) for name in names])
    return Target(msgspec.convert(vmi(), Vmi), index, (), ())


class Cluster:
    """Nodes that may all take a VM, and what a scheduler knows of their target pods, by the migrations' UIDs."""

    def __init__(self, count: int, most: int) -> None:
        self.nodes = [f"n{number}" for number in range(count)]
        self.target, self.most = anywhere(count), most
        self.limits: dict[str, Limit] = {}
        self.bound: dict[str, str] = {}

    @property
    def waiting(self) -> list[str]:
        return [uid for uid in self.limits if uid not in self.bound]

    def drawn(self, data: st.DataObject) -> list[str]:
        """One that waits, if there is any."""
        return [data.draw(st.sampled_from(self.waiting), "which")] if self.waiting else []

    def create(self) -> bool:
        """One more target pod, if it can be held to the limit."""
        found = Receiving(Counter(self.bound.values()), [Unbound(uid, "x") for uid in self.waiting])
        held = limit(found, self.target, self.most)
        if not held.exceeds:
            self.limits[f"u{len(self.limits)}"] = held
        return not held.exceeds

    def choices(self, uid: str) -> list[str]:
        """The nodes that a pod may be bound to; anti-affinity holds in both directions."""
        mine = {each.uid for each in self.limits[uid].apart}
        others = {other for other in self.bound if Unbound(uid, "x") in self.limits[other].apart} | mine
        taken = {self.bound[other] for other in others if other in self.bound}
        return [name for name in self.nodes if name not in taken and name not in self.limits[uid].hostnames]


@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.booleans())
@hypothesis_settings(max_examples=200)
def test_no_node_receives_more_than_it_may(data: st.DataObject, nodes: int, most: int, in_order: bool) -> None:
    """virt-controller creates target pods one after the other, and each goes to any node that its limit leaves.

    A scheduler takes the older one first: then each finds a node.
    """
    cluster = Cluster(nodes, most)
    for _ in range(2 * most * nodes):
        if len(cluster.limits) < most * nodes and data.draw(st.booleans(), "create"):
            cluster.create()
        for uid in cluster.waiting[:1] if in_order else cluster.drawn(data):
            choices = cluster.choices(uid)
            assert choices or not in_order, "it is left without a node"
            if data.draw(st.booleans(), "bind") and choices:
                cluster.bound[uid] = data.draw(st.sampled_from(choices), "where")
        assert max(Counter(cluster.bound.values()).values(), default=0) <= most


@pytest.mark.parametrize("most", [1, 2, 3])
def test_all_that_nodes_may_receive_they_do(most: int) -> None:
    cluster = Cluster(4, most)
    while cluster.create():
        (uid,) = cluster.waiting
        cluster.bound[uid] = cluster.choices(uid)[0]
    assert Counter(cluster.bound.values()) == dict.fromkeys(cluster.nodes, most)


@pytest.mark.parametrize("key", [ALL, ListKey(LAUNCHER_PODS, "other", f"{JOB_UID}=u0"), NodesKey()])
def test_what_cannot_be_read_holds_no_migration_up(key: Key[Any]) -> None:
    decision = limited(receiving("node-a2") | {key: Unavailable("no answer")})
    assert not decision.changes
    assert [each.code for each in decision.warnings] == [common.LOOKUP_FAILED]


@pytest.mark.control("forged-inbound-migrations")
def test_reads_are_bounded() -> None:
    """More facts than these are not there to be read."""
    known = receiving(*["node-a2"] * MOST)
    known[ALL] = tuple(under_way(f"u{number}") for number in range(10 * MOST))
    assert left_out(limited(known)) == [["node-a2"]]


def test_without_a_limit_nothing_is_read() -> None:
    known = {ObjectKey(MIGRATIONS, "demo", "m1"): msgspec.convert(migration(), Migration), **facts()}
    decision = decide(target_pod(), known, PLACE, CONTROLLER)
    assert (decision.code, decision.changes) == (reasons.NO_ADDED_SELECTOR, ())


def test_drains_are_evaluated_only_with_a_limit() -> None:
    """Else they don't wait for kubevirt-webhook."""
    assert "not-of-a-drain" in of_target_pods(MigrationSettings())
    assert "not-of-a-drain" not in of_target_pods(changed(MigrationSettings(), max_inbound_per_node=1))


def test_the_pod_that_the_vm_has_then_is_no_reason_against_another_node() -> None:
    """What a target pod left out counted for its migration alone."""
    expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-a2"]}
    for labels, is_foreign in (({JOB_UID: "u0"}, False), ({}, True)):
        required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        pod = msgspec.convert({"metadata": {"labels": labels}, "spec": {"affinity": affinity}}, LauncherPod)
        assert bool(foreign_affinity(pod, msgspec.convert(vmi(), Vmi), {})) == is_foreign
