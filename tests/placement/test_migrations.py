from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import config_of
from webhook.k8s.types.scheduling import Taint
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.types.views import KubeVirt
from webhook.placement import migrations
from webhook.placement.machines import LauncherPod, Migration, PlacedVmiSpec, Vmi
from webhook.placement.migrations import EvictionEffect
from webhook.placement.nodes import Node


def vmi(**status: Any) -> Vmi:
    return msgspec.convert(
        {"metadata": {"name": "web", "namespace": "shop"}, "status": {"nodeName": "a"} | status}, Vmi
    )


def migration(phase: str, name: str = "m", vm: str = "web", namespace: str = "shop") -> Migration:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": metadata, "spec": {"vmiName": vm}, "status": {"phase": phase}}, Migration)


def pod(uid: str, on: str | None, phase: str = "Running") -> LauncherPod:
    labels = {"kubevirt.io/migrationJobUID": uid}
    return msgspec.convert(
        {"metadata": {"labels": labels}, "spec": {"nodeName": on}, "status": {"phase": phase}}, LauncherPod
    )


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "Running", "Unknown"])
def test_a_migration_is_in_flight_until_it_has_ended(phase: str) -> None:
    others = [
        migration("Failed", "f"),
        migration("Succeeded", "s"),
        migration(phase, vm="db"),
        migration(phase, namespace="x"),
    ]
    assert migrations.in_flight(vmi(), others) is None
    own = migration(phase)
    assert migrations.in_flight(vmi(), [*others, own]) is own
    assert "Active migration job (uid-m) is currently already in progress for VMI web" in migrations.conflict(own)


def test_its_target_pod_is_the_one_that_names_it_and_has_a_node() -> None:
    pods = [pod("uid-x", "b"), pod("uid-m", None), pod("uid-m", "b", "Failed")]
    assert migrations.target_pod_of(migration("Running"), pods) is None
    target = pod("uid-m", "c", "Pending")
    assert migrations.target_pod_of(migration("Running"), [*pods, target]) is target


def hotplugging(kind: str = "HotVCPUChange", status: str = "True", migratable: str = "True", **metadata: Any) -> Vmi:
    conditions = [{"type": kind, "status": status}, {"type": "LiveMigratable", "status": migratable}]
    return msgspec.convert({"metadata": metadata, "status": {"phase": "Running", "conditions": conditions}}, Vmi)


@pytest.mark.parametrize("kind", ["HotVCPUChange", "HotMemoryChange", "VolumesChange", "MigrationRequired"])
def test_conditions_for_which_the_workload_updater_migrates(kind: str) -> None:
    assert migrations.waits_for_update(hotplugging(kind)) == (kind,)
    # Of CPUs KubeVirt only looks whether the condition is there.
    assert migrations.waits_for_update(hotplugging(kind, "False")) == ((kind,) if kind == "HotVCPUChange" else ())
    aborted = {"annotations": {"kubevirt.io/testWorkloadUpdateMigrationAbortion": ""}}
    for metadata in ({"deletionTimestamp": "2026-11-26T00:00:00Z"}, aborted):
        assert migrations.waits_for_update(hotplugging(kind, **metadata)) == ()
        assert "does not create, because" in migrations.describe_hotplug(hotplugging(kind, **metadata), DEFAULTS)
    assert migrations.waits_for_update(hotplugging("LiveMigratable")) == ()


@pytest.mark.parametrize(
    ("methods", "migratable", "says"),
    [
        (None, "True", "that was not read"),
        (["LiveMigrate"], "True", "KubeVirt creates by itself: its workloadUpdateMethods has LiveMigrate"),
        (["LiveMigrate", "Evict"], "True", "KubeVirt creates by itself"),
        (["LiveMigrate", "Evict"], "False", "KubeVirt evicts the VM for it: its workloadUpdateMethods has Evict, and"),
        (["Evict"], "True", "KubeVirt evicts the VM for it: its workloadUpdateMethods has Evict and not LiveMigrate"),
        (["LiveMigrate"], "False", "does not create: the VM cannot be live-migrated"),
        ([], "True", "does not create: its workloadUpdateMethods does not have LiveMigrate; the change waits"),
        ([], "False", "does not have LiveMigrate, and the VM cannot be live-migrated"),
    ],
)
def test_whether_kubevirt_migrates_for_a_hotplug(methods: list[str] | None, migratable: str, says: str) -> None:
    configuration = DEFAULTS
    if methods is not None:
        strategy = {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}
        configuration = ClusterConfig.of_kubevirt(msgspec.convert({"spec": strategy}, KubeVirt))
    text = migrations.describe_hotplug(hotplugging(migratable=migratable), configuration)
    assert text.startswith("a change of the VM (HotVCPUChange) takes effect only in a migration")
    assert says in text
    assert migrations.describe_hotplug(vmi(), configuration) == ""


@pytest.mark.parametrize(("marked", "evacuated", "stale"), [(None, "", ""), ("a", "a", ""), ("b", "", "b")])
def test_the_mark_of_an_evacuation(marked: str | None, evacuated: str, stale: str) -> None:
    marked_vmi = vmi(evacuationNodeName=marked)
    assert migrations.evacuated_node(marked_vmi) == evacuated
    assert migrations.stale_evacuation(marked_vmi) == stale


STRATEGIES = [
    ("LiveMigrate", EvictionEffect.MIGRATES, EvictionEffect.NOT_MIGRATABLE),
    ("LiveMigrateIfPossible", EvictionEffect.MIGRATES, EvictionEffect.STOPS_UNMIGRATABLE),
    ("None", EvictionEffect.STOPS, EvictionEffect.STOPS),
    ("External", EvictionEffect.HANDED_OVER, EvictionEffect.HANDED_OVER),
    ("LiveMigrateTomorrow", EvictionEffect.UNKNOWN, EvictionEffect.UNKNOWN),
]


@pytest.mark.parametrize(("strategy", "migratable", "other"), STRATEGIES)
def test_what_comes_of_an_eviction(strategy: str, migratable: EvictionEffect, other: EvictionEffect) -> None:
    """virt-api decides by the VMI's own strategy, and without one by KubeVirt's."""
    for status, effect in ((MIGRATABLE, migratable), ({}, other)):
        unset = vmi(**status)
        own = msgspec.structs.replace(unset, spec=PlacedVmiSpec(eviction_strategy=strategy))
        assert migrations.eviction_effect(unset, strategy) is effect
        assert {migrations.eviction_effect(own, default) for default, _, _ in STRATEGIES} == {effect}


def test_how_an_evacuation_is_ended_depends_on_the_release() -> None:
    """virtctl of 1.7 to 1.9.0 does not name the node that virt-api compares."""
    words = {
        version: migrations.cancel_evacuation(vmi(evacuationNodeName="a"), release_of(parse_version(version)))
        for version in ("1.6.0", "1.9.0")
    }
    path = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/evacuate/cancel"
    assert f'echo \'{{"evacuationNodeName":"a"}}\' | kubectl replace -f - --raw {path}' in words["1.9.0"]
    assert "evacuate" not in words["1.6.0"]
    # The API server asks for the first segment, virt-api for both; the roles admin and edit have the second alone.
    for subresource in ("evacuate,", "evacuate/cancel"):
        assert f"update on virtualmachineinstances/{subresource}" in words["1.9.0"].replace("and on", "update on")


def test_the_taint_by_which_kubevirt_evacuates_a_whole_node_comes_off_first() -> None:
    found = vmi(evacuationNodeName="a", conditions=[{"type": "LiveMigratable", "status": "True"}])
    taint = Taint("kubevirt.io/drain", None, "NoSchedule")
    configuration = config_of("1.9", {"evictionStrategy": "LiveMigrate"})
    plain, tainted = (
        migrations.describe_evacuation(found, configuration, node) for node in (None, Node("a", {}, (taint,)))
    )
    assert str(taint) in tainted
    assert str(taint) not in plain


MIGRATABLE = {"conditions": [{"type": "LiveMigratable", "status": "True"}]}
DRAINING, OTHER = Taint("kubevirt.io/drain", "draining", "NoSchedule"), Taint("example.com/drain", None, "NoSchedule")


@pytest.mark.parametrize(
    ("node", "settings", "status", "says"),
    [
        (Node("a", {}, (DRAINING,)), {}, MIGRATABLE, "kubevirt.io/drain=draining:NoSchedule"),
        (Node("a", {}, (Taint("kubevirt.io/drain", None, "NoExecute"),)), {}, MIGRATABLE, ""),
        (Node("a", {}, (OTHER,)), {}, MIGRATABLE, ""),
        (Node("a", {}, (OTHER,)), {"migrations": {"nodeDrainTaintKey": "example.com/drain"}}, MIGRATABLE, str(OTHER)),
        (Node("a", {}, (DRAINING,)), {"migrations": {"nodeDrainTaintKey": "example.com/drain"}}, MIGRATABLE, ""),
        # A cordon is a taint, too, and a node keeps it as `unschedulable`.
        (
            Node("a", {}, unschedulable=True),
            {"migrations": {"nodeDrainTaintKey": "node.kubernetes.io/unschedulable"}},
            MIGRATABLE,
            "uncordon",
        ),
        (Node("a", {}, unschedulable=True), {}, MIGRATABLE, ""),
        (Node("a", {}, (DRAINING,)), {}, {}, ""),
        (Node("a", {}, (DRAINING,)), {"evictionStrategy": "None"}, MIGRATABLE, ""),
    ],
)
def test_a_taint_has_kubevirt_evacuate_vms_that_nobody_evicted(
    node: Node, settings: dict[str, Any], status: dict[str, Any], says: str
) -> None:
    configuration = config_of("1.9", {"evictionStrategy": "LiveMigrate"} | settings)
    found = migrations.describe_evacuation(vmi(**status), configuration, node)
    assert bool(found) is bool(says)
    assert says in found
