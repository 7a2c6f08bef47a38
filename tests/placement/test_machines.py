"""What placements read of VMIs, migrations and volumes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import config_of
from tests.placement.samples import affinity, expression, expressions, kubevirt, vmi
from webhook.k8s.types.scheduling import Placed
from webhook.k8s.types.selectors import Expression, Term
from webhook.kubevirt.config import DEFAULTS
from webhook.placement.machines import Claim, Migration, PersistentVolume, SourceState, Vmi

FROM_FAR = {"migrationState": {"sourceState": {"node": "far"}}}


@pytest.mark.parametrize(
    ("spec", "receives", "sends"),
    [
        ({"receive": {"migrationID": "x"}}, True, False),
        ({"sendTo": {"migrationID": "x"}}, False, True),
        # KubeVirt takes both together for a migration within the cluster.
        *(({"sendTo": {}, "receive": {}}, False, False), ({"sendTo": None}, False, False)),
        *(({}, False, False), (None, False, False)),
    ],
)
def test_migrations_between_clusters(spec: Any, receives: bool, sends: bool) -> None:
    migration = msgspec.convert({"spec": spec}, Migration)
    assert (migration.receives, migration.sends) == (receives, sends)


@pytest.mark.parametrize(
    ("spec", "added"), [({"addedNodeSelector": {"zone": "b"}}, {"zone": "b"}), ({}, {}), (None, {})]
)
def test_what_a_migration_adds(spec: Any, added: dict[str, str]) -> None:
    assert msgspec.convert({"spec": spec}, Migration).added_selector == added
    assert Migration.adding(added).added_selector == added
    assert (Migration.adding(added, receives=True).receives, Migration.adding(added).receives) == (True, False)


def test_the_receiving_half() -> None:
    waiting: list[Any] = [{"phase": "WaitingForSync"}, {"phase": "Scheduling", **FROM_FAR}]
    others: list[Any] = [{"phase": "Scheduling"}, {"phase": "Running", "nodeName": "n1", **FROM_FAR}, None]
    found = [msgspec.convert({"status": each}, Vmi).waits_for_source for each in waiting + others]
    assert found == [True] * 2 + [False] * 3


def test_terms_keep_their_places() -> None:
    near = affinity({}, None, expressions(expression("zone", "In", "a"), None))
    placed = msgspec.convert({"affinity": near}, Placed)
    assert placed.required_affinity
    empty, null, spoiled = placed.required_affinity.terms()
    assert empty == null == Term()
    assert spoiled.expressions == (Expression.equals("zone", "a"), Expression("", ""))
    assert {problem.partition(": ")[0] for problem in spoiled.problems} == {"nodeSelectorTerms[2].matchExpressions[1]"}


@pytest.mark.parametrize(
    "affinity", [{"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}, {}, None]
)
def test_only_required_affinity_counts(affinity: Any) -> None:
    assert msgspec.convert({"affinity": affinity}, Placed).required_affinity is None


def test_feature_gates() -> None:
    assert kubevirt(featureGates=["A", "B"]).is_gate_open("B")
    assert not kubevirt(featureGates=["A"]).is_gate_open("B")
    assert not DEFAULTS.is_gate_open("A")


def test_what_is_read_of_a_vmi_and_its_claims() -> None:
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
    assert msgspec.convert({"spec": {"volumeName": "pv"}}, Claim).volume == "pv"
    assert Claim().volume == msgspec.convert({"spec": {}}, Claim).volume == ""
    in_a = {"required": {"nodeSelectorTerms": [expressions(expression("zone", "In", "a"))]}}
    for near, terms in ((in_a, ["zone=a"]), ({}, [])):
        volume = msgspec.convert({"spec": {"nodeAffinity": near}}, PersistentVolume)
        assert [str(term) for term in volume.terms] == terms
    assert (vmi(nodeName="n1").node_name, Vmi().node_name, vmi().node_name) == ("n1", "", "")
    ended = [phase for phase in ("Running", "Succeeded", "Failed", None) if vmi(phase=phase).has_ended]
    assert (ended, Vmi().has_ended) == (["Succeeded", "Failed"], False)
    far = vmi(migrationState={"sourceState": {"node": "far", "nodeSelectors": {"a": "b"}}})
    assert far.source_state == SourceState("far", {"a": "b"})
    assert vmi().source_state == vmi(migrationState={}).source_state == SourceState()
    found = vmi(conditions=[None, {"type": "Ready"}, {"type": "LiveMigratable", "status": "False"}])
    assert (found.condition("LiveMigratable") or found).status == "False"
    assert found.condition("Paused") is vmi().condition("Ready") is Vmi().condition("Ready") is None


GATE = {"developerConfiguration": {"featureGates": ["ConfigurableHypervisor"]}}
DIRECT = {"hypervisors": [{"name": "hyperv-direct"}]}
NEEDING: list[Any] = [{}, None, {"hypervisors": []}, DIRECT, GATE]


@pytest.mark.parametrize(
    ("version", "configuration", "needed"),
    [
        *(("1.9", each, True) for each in NEEDING),
        ("1.9", {"hypervisors": [{"name": "kvm"}], **GATE}, True),
        ("1.9", DIRECT | GATE, False),
        ("1.9", {"developerConfiguration": {"useEmulation": True}}, False),
        # Since 1.8 they are configured.
        *(("1.7", DIRECT | GATE, True), ("1.8", DIRECT | GATE, False)),
    ],
)
def test_kvm_is_not_the_only_hypervisor(version: str, configuration: Any, needed: bool) -> None:
    assert config_of(version, configuration).needs_kvm is needed


def test_backups() -> None:
    statuses: list[Any] = [None, {}, {"backupName": "b", "completed": True}, {"backupName": "b"}]
    backed_up = [vmi(changedBlockTracking={"backupStatus": status}).is_backed_up for status in statuses]
    assert backed_up == [False, False, False, True]
