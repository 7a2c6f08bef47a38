"""Target pods leave out nodes that receive enough migrations, and are never left without a node for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import CONTROLLER, Json, changed
from tests.policies.migration.world import decide, facts, migration, node, target_pod, terms, vmi
from webhook.admission.decision import Decision
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Key, ListKey, NodesKey, ObjectKey
from webhook.placement.machines import JOB_UID, LAUNCHER_PODS, MIGRATIONS, UNFINISHED, LauncherPod, Migration, Vmi
from webhook.placement.target_pods import foreign_affinity
from webhook.policies.migration import reasons
from webhook.policies.migration.inbound import MOST
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
        # Not bound yet: nobody knows where it goes.
        (["", ""], 1, []),
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


def test_only_migrations_under_way_are_counted() -> None:
    known = receiving("node-a2")
    for phase in ("", "Pending", "Succeeded", "Failed"):
        assert not limited(known | {ALL: (under_way("u0", phase),)}).changes, phase
    itself = msgspec.convert({**migration(), "status": {"phase": "Scheduling"}}, Migration)
    assert not limited(known | {ALL: (itself,)}).changes
    gone = {ListKey(LAUNCHER_PODS, "other", f"{JOB_UID}=u0"): (pod_on("u0", "node-a2", "Failed"),)}
    assert not limited(known | gone).changes


@pytest.mark.parametrize("key", [ALL, ListKey(LAUNCHER_PODS, "other", f"{JOB_UID}=u0"), NodesKey()])
def test_what_cannot_be_read_holds_no_migration_up(key: Key[Any]) -> None:
    decision = limited(receiving("node-a2") | {key: Unavailable("no answer")})
    assert not decision.changes
    assert [each.code for each in decision.warnings] == [common.LOOKUP_FAILED]


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
