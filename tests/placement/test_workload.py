from __future__ import annotations

from typing import Any

import pytest

from tests.placement.samples import affinity, expression, expressions, kubevirt, vmi
from webhook.placement.expression import Expression, Term
from webhook.placement.reading import read
from webhook.placement.workload import BUILT_IN, Migration, PersistentVolume, Placed, SourceState


@pytest.mark.parametrize(
    ("spec", "receives", "sends"),
    [
        ({"receive": {"migrationID": "x"}}, True, False),
        ({"sendTo": {"migrationID": "x"}}, False, True),
        # KubeVirt takes both together for a migration within the cluster.
        ({"sendTo": {}, "receive": {}}, False, False),
        ({"sendTo": None}, False, False),
        ({}, False, False),
        (None, False, False),
    ],
)
def test_migrations_between_clusters(spec: Any, receives: bool, sends: bool) -> None:
    migration = read(Migration, {"spec": spec}, "migration")

    assert (migration.receives, migration.sends) == (receives, sends)


def test_what_a_migration_adds() -> None:
    given = read(Migration, {"spec": {"vmiName": "vm", "addedNodeSelector": {"zone": "b"}}}, "migration")

    assert given.added == Migration.adding({"zone": "b"}).added == {"zone": "b"}
    assert read(Migration, {"spec": {"addedNodeSelector": {}}}, "migration").added == Migration().added == {}


def test_terms_keep_their_places() -> None:
    placed = read(Placed, {"affinity": affinity({}, None, expressions(expression("zone", "In", "a"), None))}, "spec")

    assert placed.required_affinity
    empty, null, spoiled = placed.required_affinity.terms()
    assert empty == null == Term()
    assert spoiled.expressions == (Expression.equals("zone", "a"), Expression("", ""))
    assert {problem.partition(": ")[0] for problem in spoiled.problems} == {"nodeSelectorTerms[2].matchExpressions[1]"}


def test_only_required_affinity_counts() -> None:
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}}

    assert read(Placed, {"affinity": preferred}, "spec").required_affinity is None
    assert read(Placed, {"affinity": {}}, "spec").required_affinity is None
    assert read(Placed, {}, "spec").required_affinity is None


def test_feature_gates() -> None:
    assert kubevirt(featureGates=["A", "B"]).enabled("B")
    assert not kubevirt(featureGates=["A"]).enabled("B")
    assert not BUILT_IN.enabled("A")


def test_where_a_vm_comes_from() -> None:
    state = {"sourceState": {"node": "far", "nodeSelectors": {"a": "b"}}}

    assert vmi(None, None, migrationState=state).source_state == SourceState("far", {"a": "b"})
    assert vmi().source_state == vmi(None, None, migrationState={}).source_state == SourceState()


def test_volumes() -> None:
    required = {"required": {"nodeSelectorTerms": [expressions(expression("zone", "In", "a"))]}}
    volume = read(PersistentVolume, {"spec": {"nodeAffinity": required}}, "volume")

    assert [str(term) for term in volume.terms] == ["zone=a"]
    assert read(PersistentVolume, {"spec": {"nodeAffinity": {}}}, "volume").terms == ()
