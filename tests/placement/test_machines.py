""""""

from __future__ import annotations

from typing import Any

import pytest

from tests.placement.samples import affinity, expression, expressions, kubevirt, vmi
from webhook.k8s.types.scheduling import Placed
from webhook.k8s.types.selectors import Expression, Term
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.placement.machines import Claim, Migration, PersistentVolume, SourceState, Vmi
from webhook.placement.nodes import convert_to_view


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
    migration = convert_to_view(Migration, {"spec": spec}, "migration")

    assert (migration.receives, migration.sends) == (receives, sends)


def test_what_a_migration_adds() -> None:
    given = convert_to_view(Migration, {"spec": {"vmiName": "vm", "addedNodeSelector": {"zone": "b"}}}, "migration")

    assert given.added_selector == Migration.adding({"zone": "b"}).added_selector == {"zone": "b"}
    assert (
        convert_to_view(Migration, {"spec": {"addedNodeSelector": {}}}, "migration").added_selector
        == Migration().added_selector
        == {}
    )


def test_the_receiving_half() -> None:
    assert Migration.adding({}, receives=True).receives
    assert not Migration.adding({}).receives
    source = {"migrationState": {"sourceState": {"node": "far"}}}
    states = [
        {"phase": "WaitingForSync"},
        {"phase": "Scheduling", **source},
        {"phase": "Scheduling"},
        {"phase": "Running", "nodeName": "n1", **source},
        None,
    ]
    waits = [convert_to_view(Vmi, {"status": status}, "vmi").waits_for_source for status in states]
    assert waits == [True, True, False, False, False]


def test_terms_keep_their_places() -> None:
    placed = convert_to_view(
        Placed, {"affinity": affinity({}, None, expressions(expression("zone", "In", "a"), None))}, "spec"
    )

    assert placed.required_affinity
    empty, null, spoiled = placed.required_affinity.terms()
    assert empty == null == Term()
    assert spoiled.expressions == (Expression.equals("zone", "a"), Expression("", ""))
    assert {problem.partition(": ")[0] for problem in spoiled.problems} == {"nodeSelectorTerms[2].matchExpressions[1]"}


def test_only_required_affinity_counts() -> None:
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}}

    assert convert_to_view(Placed, {"affinity": preferred}, "spec").required_affinity is None
    assert convert_to_view(Placed, {"affinity": {}}, "spec").required_affinity is None
    assert convert_to_view(Placed, {}, "spec").required_affinity is None


def test_feature_gates() -> None:
    assert kubevirt(featureGates=["A", "B"]).is_gate_open("B")
    assert not kubevirt(featureGates=["A"]).is_gate_open("B")
    assert not DEFAULTS.is_gate_open("A")


def test_where_a_vm_comes_from() -> None:
    state = {"sourceState": {"node": "far", "nodeSelectors": {"a": "b"}}}

    assert vmi(None, None, migrationState=state).source_state == SourceState("far", {"a": "b"})
    assert vmi().source_state == vmi(None, None, migrationState={}).source_state == SourceState()


def test_volumes() -> None:
    required = {"required": {"nodeSelectorTerms": [expressions(expression("zone", "In", "a"))]}}
    volume = convert_to_view(PersistentVolume, {"spec": {"nodeAffinity": required}}, "volume")

    assert [str(term) for term in volume.terms] == ["zone=a"]
    assert convert_to_view(PersistentVolume, {"spec": {"nodeAffinity": {}}}, "volume").terms == ()


def test_volumes_claims_and_what_they_are_bound_to() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "b", "dataVolume": {"name": "data"}},
        {"name": "c", "containerDisk": {"image": "x"}},
        {"persistentVolumeClaim": {}},
        {"dataVolume": {}},
        None,
    ]
    spec = vmi({"volumes": volumes}).spec
    assert spec
    assert [volume.claim if volume else None for volume in spec.volumes or ()] == ["claim", "data", "", "", "", None]
    assert convert_to_view(Claim, {"spec": {"volumeName": "pv"}}, "claim").volume == "pv"
    assert Claim().volume == convert_to_view(Claim, {"spec": {}}, "claim").volume == ""


def test_what_becomes_of_a_vmi() -> None:
    assert vmi(nodeName="n1").node_name == "n1"
    assert Vmi().node_name == vmi().node_name == ""
    assert [vmi(phase=phase).has_ended for phase in ("Running", "Succeeded", "Failed", None)] == [
        False,
        True,
        True,
        False,
    ]
    assert not Vmi().has_ended


def test_conditions() -> None:
    found = vmi(conditions=[None, {"type": "Ready"}, {"type": "LiveMigratable", "status": "False"}])

    assert (found.condition("LiveMigratable") or found).status == "False"
    assert found.condition("Paused") is vmi().condition("Ready") is Vmi().condition("Ready") is None


@pytest.mark.parametrize(
    ("configuration", "needed"),
    [
        ({}, True),
        ({"hypervisors": []}, True),
        (
            {"hypervisors": [{"name": "kvm"}], "developerConfiguration": {"featureGates": ["ConfigurableHypervisor"]}},
            True,
        ),
        ({"hypervisors": [{"name": "hyperv-direct"}]}, True),
        ({"developerConfiguration": {"featureGates": ["ConfigurableHypervisor"]}}, True),
        (
            {
                "hypervisors": [{"name": "hyperv-direct"}],
                "developerConfiguration": {"featureGates": ["ConfigurableHypervisor"]},
            },
            False,
        ),
        ({"developerConfiguration": {"useEmulation": True}}, False),
        (None, True),
    ],
)
def test_kvm_is_not_the_only_hypervisor(configuration: Any, needed: bool) -> None:
    assert ClusterConfig.of(configuration).needs_kvm is needed
