from __future__ import annotations

from copy import deepcopy

import pytest

from tests.kubevirt.samples import instancetype, preference, vm
from tests.lookups import among
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.origins import Origin, Origins
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.apply import expand
from webhook.kubevirt.rejection import Conflicts
from webhook.kubevirt.vm.controller import build_vmi, explain
from webhook.kubevirt.webhooks import create

GIVEN = vm(
    {"volumes": [{"name": "root", "containerDisk": {"image": "x:1"}}], "hostname": "h"},
    instancetype={"name": "u1"},
    preference={"name": "linux", "kind": "VirtualMachinePreference"},
)
WANTED = instancetype(annotations={"i": "1"}, gpus=[{"name": "g"}])
DEVICES = {"preferredDiskBus": "virtio", "preferredAutoattachInputDevice": True, "preferredInputBus": "virtio"}
PREFERRED = preference("VirtualMachinePreference", devices=DEVICES)


def test_building() -> None:
    assert build_vmi(GIVEN, WANTED, PREFERRED) == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "vm",
            "namespace": "demo",
            "annotations": {
                "i": "1",
                "kubevirt.io/vm-generation": "0",
                "kubevirt.io/cluster-instancetype-name": "u1",
                "kubevirt.io/preference-name": "linux",
            },
            "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"],
            "ownerReferences": [
                {
                    "apiVersion": "kubevirt.io/v1",
                    "kind": "VirtualMachine",
                    "name": "vm",
                    "uid": "vm-uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "hostname": "h",
            "domain": {
                "cpu": {"sockets": 2, "cores": 1, "threads": 1},
                "memory": {"guest": "4Gi"},
                "firmware": _uuid(),
                "resources": {},
                "devices": {
                    "autoattachInputDevice": True,
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "gpus": [{"name": "g"}],
                    "inputs": [{"name": "default-0", "bus": "virtio", "type": ""}],
                    "interfaces": [{"name": "default", "bridge": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "x:1"}}],
        },
        "status": {"guestOSInfo": {}, "runtimeUser": 0},
    }


def _uuid() -> Json:
    firmware: Json = build_vmi(GIVEN)["spec"]["domain"]["firmware"]
    assert firmware["uuid"] != build_vmi({**GIVEN, "metadata": {"name": "other"}})["spec"]["domain"]["firmware"]["uuid"]
    return firmware


def test_nothing_is_shared_and_nothing_is_changed() -> None:
    inputs = (deepcopy(GIVEN), deepcopy(WANTED), deepcopy(PREFERRED))
    built = build_vmi(*inputs)
    built["spec"]["volumes"][0]["containerDisk"]["image"] = "changed"
    built["spec"]["domain"]["devices"]["gpus"][0]["name"] = "changed"
    built["metadata"]["annotations"]["i"] = "changed"

    assert inputs == (GIVEN, WANTED, PREFERRED)


def test_conflicts_are_told_of_the_vmi() -> None:
    with pytest.raises(Conflicts, match=r"^VMI conflicts with instancetype spec in fields: \[spec.domain.cpu.cores\]$"):
        build_vmi(vm({"domain": {"cpu": {"cores": 1}}}), WANTED)


def test_requests_at_run_time() -> None:
    volumes = [{"name": name, "memoryDump": {"claimName": "dump"}} for name in ("dump", "b")]
    given = vm({"volumes": volumes})
    assert "startStrategy" not in build_vmi(given)["spec"]
    given["status"] = {
        "stateChangeRequests": [{"action": "Start", "data": {"paused": "true"}}],
        "memoryDumpRequest": {"phase": "Completed", "claimName": "dump"},
    }
    spec = build_vmi(given)["spec"]

    assert spec["startStrategy"] == "Paused"
    assert [volume["name"] for volume in spec["volumes"]] == ["b"]
    given["status"]["memoryDumpRequest"]["phase"] = "InProgress"
    assert [volume["name"] for volume in build_vmi(given)["spec"]["volumes"]] == ["dump", "b"]
    for odd in (
        {"action": "Stop"},
        {"action": "Start", "data": []},
        {"action": "Start", "data": {"paused": "no"}},
        "x",
    ):
        given["status"] = {"stateChangeRequests": [odd]}
        assert "startStrategy" not in build_vmi(given)["spec"]


def test_explaining() -> None:
    configuration = ClusterConfig.of({"cpuModel": "Haswell", "evictionStrategy": "LiveMigrate"})
    stored, origins = explain(GIVEN, WANTED, PREFERRED, configuration)

    assert stored == create(build_vmi(GIVEN, WANTED, PREFERRED, configuration), configuration, str)
    domain = "spec.domain."
    assert {
        path: origins[path]
        for path in (
            "spec.hostname",
            f"{domain}cpu.sockets",
            f"{domain}devices.disks[0].name",
            f"{domain}devices.disks[0].disk.bus",
            f"{domain}devices.inputs[0].bus",
            f"{domain}devices.inputs[0].type",
            f"{domain}cpu.model",
            "spec.evictionStrategy",
            "spec.architecture",
            f"{domain}machine.type",
            f"{domain}memory.maxGuest",
            "metadata.annotations.i",
        )
    } == {
        "spec.hostname": Origin.VM,
        f"{domain}cpu.sockets": Origin.INSTANCETYPE,
        f"{domain}devices.disks[0].name": Origin.KUBEVIRT,
        f"{domain}devices.disks[0].disk.bus": Origin.PREFERENCE,
        f"{domain}devices.inputs[0].bus": Origin.PREFERENCE,
        f"{domain}devices.inputs[0].type": Origin.KUBEVIRT,
        f"{domain}cpu.model": Origin.CLUSTER,
        "spec.evictionStrategy": Origin.CLUSTER,
        "spec.architecture": Origin.CLUSTER,
        f"{domain}machine.type": Origin.KUBEVIRT,
        f"{domain}memory.maxGuest": Origin.KUBEVIRT,
        "metadata.annotations.i": Origin.INSTANCETYPE,
    }


def test_origins_follow_changes() -> None:
    watched: Json = {"a": {"b": 1}, "c": [1, 2], "d.e": 0}
    origins = Origins(watched)
    watched["a"] = {}
    watched["c"].append(3)
    origins.note(Origin.PREFERENCE)

    assert origins.by_path() == {
        "a": Origin.PREFERENCE,
        "c[0]": Origin.VM,
        "c[1]": Origin.VM,
        "c[2]": Origin.PREFERENCE,
        "[d.e]": Origin.VM,
    }
    assert origins.by_path({"z": 1}) == {"z": Origin.KUBEVIRT}


def test_expansion_is_not_what_a_vmi_gets() -> None:
    declined = preference(devices={"preferredAutoattachPodInterface": False})
    given = vm(instancetype={"name": "u1"}, preference={"name": "linux"})
    expanded = expand(given, among([WANTED, declined]))["spec"]["template"]["spec"]
    built = build_vmi(given, WANTED, declined)["spec"]

    assert expanded["domain"]["devices"]["interfaces"] == [{"name": "default", "bridge": {}}]
    assert "interfaces" not in built["domain"]["devices"]
    assert expanded["evictionStrategy"] == "None"
    assert "evictionStrategy" not in built


def test_a_vm_without_matchers_is_not_expanded() -> None:
    assert expand(vm(), among([]))["spec"]["template"]["spec"] == {"domain": {"devices": {}, "resources": {}}}


@pytest.mark.parametrize("strategy", ["Always", "WaitAsReceiver"])
def test_a_vm_that_waits_for_one_from_elsewhere_is_a_migration_target(strategy: str) -> None:
    annotations = build_vmi(vm(runStrategy=strategy), None, None)["metadata"]["annotations"]

    assert ("kubevirt.io/create-migration-target" in annotations) == (strategy == "WaitAsReceiver")
    assert set(annotations.values()) <= {"0", "true"}
