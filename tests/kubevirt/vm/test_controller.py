from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.kubevirt.plain import build_vmi, run_round
from tests.kubevirt.samples import instancetype, preference, revision, vm
from tests.lookups import among
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.apply import expand
from webhook.kubevirt.rejection import Conflicts, Crash, Rejection
from webhook.kubevirt.vm.controller import Built, Synced

GIVEN = vm(
    {"volumes": [{"name": "root", "containerDisk": {"image": "x:1"}}], "hostname": "h"},
    instancetype={"name": "u1"},
    preference={"name": "linux", "kind": "VirtualMachinePreference"},
)
WANTED = instancetype(annotations={"i": "1"}, gpus=[{"name": "g"}])
DEVICES = {"preferredDiskBus": "virtio", "preferredAutoattachInputDevice": True, "preferredInputBus": "virtio"}
PREFERRED = preference("VirtualMachinePreference", devices=DEVICES)


def built_vmi(given: Json, *objects: Json) -> Json:
    return build_vmi(given, among(objects))


def test_building() -> None:
    assert built_vmi(GIVEN, WANTED, PREFERRED) == {
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


def _uuid(name: str = "vm") -> Json:
    """The firmware of a VM, whose UUID follows from the VM's name."""
    firmware: Json = built_vmi({**vm(), "metadata": {"name": name}})["spec"]["domain"]["firmware"]
    return firmware


def test_the_uuid_follows_from_the_name() -> None:
    assert _uuid() == _uuid() != _uuid("other")


def test_nothing_is_shared_and_nothing_is_changed() -> None:
    inputs = (deepcopy(GIVEN), deepcopy(WANTED), deepcopy(PREFERRED))
    built = built_vmi(*inputs)
    built["spec"]["volumes"][0]["containerDisk"]["image"] = "changed"
    built["spec"]["domain"]["devices"]["gpus"][0]["name"] = "changed"
    built["metadata"]["annotations"]["i"] = "changed"

    assert inputs == (GIVEN, WANTED, PREFERRED)


def test_conflicts_are_told_of_the_vmi() -> None:
    with pytest.raises(Conflicts, match=r"^VMI conflicts with instancetype spec in fields: \[spec.domain.cpu.cores\]$"):
        built_vmi(vm({"domain": {"cpu": {"cores": 1}}}, instancetype={"name": "u1"}), WANTED)


def test_requests_at_run_time() -> None:
    volumes = [{"name": name, "memoryDump": {"claimName": "dump"}} for name in ("dump", "b")]
    given = vm({"volumes": volumes})
    assert "startStrategy" not in built_vmi(given)["spec"]
    given["status"] = {
        "stateChangeRequests": [{"action": "Start", "data": {"paused": "true"}}],
        "memoryDumpRequest": {"phase": "Completed", "claimName": "dump"},
    }
    spec = built_vmi(given)["spec"]

    assert spec["startStrategy"] == "Paused"
    assert [volume["name"] for volume in spec["volumes"]] == ["b"]
    given["status"]["memoryDumpRequest"]["phase"] = "InProgress"
    assert [volume["name"] for volume in built_vmi(given)["spec"]["volumes"]] == ["dump", "b"]
    for odd in (
        {"action": "Stop"},
        {"action": "Start", "data": []},
        {"action": "Start", "data": {"paused": "no"}},
        "x",
    ):
        given["status"] = {"stateChangeRequests": [odd]}
        assert "startStrategy" not in built_vmi(given)["spec"]


def test_expansion_is_not_what_a_vmi_gets() -> None:
    declined = preference(devices={"preferredAutoattachPodInterface": False})
    given = vm(instancetype={"name": "u1"}, preference={"name": "linux"})
    expanded = expand(given, among([WANTED, declined]))["spec"]["template"]["spec"]
    built = built_vmi(given, WANTED, declined)["spec"]

    assert expanded["domain"]["devices"]["interfaces"] == [{"name": "default", "bridge": {}}]
    assert "interfaces" not in built["domain"]["devices"]
    assert expanded["evictionStrategy"] == "None"
    assert "evictionStrategy" not in built


def test_a_vm_without_matchers_is_not_expanded() -> None:
    assert expand(vm(), among([]))["spec"]["template"]["spec"] == {"domain": {"devices": {}, "resources": {}}}


@pytest.mark.parametrize("strategy", ["Always", "WaitAsReceiver"])
def test_a_vm_that_waits_for_one_from_elsewhere_is_a_migration_target(strategy: str) -> None:
    annotations = built_vmi(vm(runStrategy=strategy))["metadata"]["annotations"]

    assert ("kubevirt.io/create-migration-target" in annotations) == (strategy == "WaitAsReceiver")
    assert set(annotations.values()) <= {"0", "true"}


BOTH = {"instancetype": {"name": "u1"}, "preference": {"name": "linux"}}
OBJECTS = [instancetype(annotations={"i": "1"}), preference(preferredSubdomain="x")]


def synced(given: Json, *objects: Json, **configuration: Any) -> tuple[Synced, Built]:
    return run_round(given, among([*OBJECTS, *objects]), ClusterConfig.of(configuration))


def expanding(policy: str) -> Json:
    return {"instancetype": {"referencePolicy": policy}}


def test_nothing_to_do() -> None:
    result, built = synced(vm())

    assert result.revisions == []
    assert result.vm["status"] == {}
    assert "subdomain" not in built.to_json()["spec"]


def test_capturing() -> None:
    result, built = synced(vm(**BOTH))
    names = ["vm-u1-v1beta1-u-1", "vm-linux-v1beta1-u-1"]

    assert [item["metadata"]["name"] for item in result.revisions] == names
    assert result.revisions[0]["metadata"]["labels"] == {
        "instancetype.kubevirt.io/object-generation": "1",
        "instancetype.kubevirt.io/object-kind": "VirtualMachineClusterInstancetype",
        "instancetype.kubevirt.io/object-name": "u1",
        "instancetype.kubevirt.io/object-uid": "u",
        "instancetype.kubevirt.io/object-version": "v1beta1",
    }
    assert result.vm["status"] == {
        "instancetypeRef": {"name": "u1", "controllerRevisionRef": {"name": names[0]}},
        "preferenceRef": {"name": "linux", "controllerRevisionRef": {"name": names[1]}},
    }
    # As upstream, the instancetype's annotations leak into the VM in memory.
    assert result.vm["spec"]["template"]["metadata"]["annotations"] == {"i": "1"}
    assert built.to_json()["spec"]["subdomain"] == "x"


def test_a_captured_state_stays() -> None:
    captured = revision("mine", instancetype(cpu={"guest": 7}), "u1")
    given = vm(instancetype={"name": "u1"})
    given["status"] = {"instancetypeRef": {"name": "u1", "kind": "K", "controllerRevisionRef": {"name": "mine"}}}
    result, built = synced(given, captured)

    assert result.revisions == []
    assert result.vm["status"] == given["status"]
    assert built.to_json()["spec"]["domain"]["cpu"]["sockets"] == 7


def test_another_name_or_policy_or_revision_is_noted() -> None:
    given = vm(instancetype={"name": "u1", "inferFromVolumeFailurePolicy": "Ignore"})
    given["status"] = {"instancetypeRef": {"name": "u0", "controllerRevisionRef": {"name": "old"}}}
    result, _ = synced(given, revision("old", instancetype(name="u0"), "u0"))

    assert result.vm["status"]["instancetypeRef"] == {
        "name": "u1",
        "inferFromVolumeFailurePolicy": "Ignore",
        "controllerRevisionRef": {"name": "vm-u1-v1beta1-u-1"},
    }
    given["spec"]["instancetype"]["revisionName"] = "old"
    result, _ = synced(given, revision("old", instancetype(name="u0"), "u0"))
    assert result.vm["status"]["instancetypeRef"]["controllerRevisionRef"] == {"name": "old"}


def test_a_revision_of_the_same_name() -> None:
    same = revision("vm-u1-v1beta1-u-1", instancetype(annotations={"i": "1"}), "u1")
    other = revision("vm-u1-v1beta1-u-1", instancetype(cpu={"guest": 9}), "u1")
    given = vm(instancetype={"name": "u1"})

    assert synced(given, same)[0].revisions == []
    with pytest.raises(Rejection, match="found existing ControllerRevision with unexpected data: vm-u1-v1beta1-u-1"):
        synced(given, other)


def test_conflicts_while_storing() -> None:
    with pytest.raises(Conflicts) as caught:
        synced(vm({"schedulerName": "s"}, **BOTH), instancetype(schedulerName="s"))
    assert str(caught.value) == (
        "error encountered while storing instancetype.kubevirt.io controllerRevisions: "
        "VM field(s) spec.template.spec.schedulerName conflicts with selected instance type"
    )


def test_conflicts_while_building() -> None:
    given = vm({"schedulerName": "s"}, instancetype={"name": "u1", "revisionName": "r"})

    with pytest.raises(Conflicts) as caught:
        synced(given, revision("r", instancetype(schedulerName="s")))
    assert str(caught.value) == "VMI conflicts with instancetype spec in fields: [spec.schedulerName]"


@pytest.mark.parametrize("policy", ["expand", "expandAll"])
def test_expanding(policy: str) -> None:
    result, built = synced(vm(**BOTH), **expanding(policy))

    assert result.vm["spec"]["template"]["spec"]["domain"]["cpu"] == {"sockets": 2, "cores": 1, "threads": 1}
    assert not result.vm["spec"].keys() & BOTH.keys()
    assert result.vm["status"] == {}
    assert "kubevirt.io/cluster-instancetype-name" not in built.to_json()["metadata"]["annotations"]
    with pytest.raises(Conflicts, match="error encountered while expanding into VirtualMachine: VM field"):
        synced(vm({"domain": {"cpu": {"cores": 1}}}, **BOTH), **expanding(policy))


def test_what_is_captured_is_expanded_only_by_expand_all() -> None:
    given = vm(instancetype={"name": "u1"})
    given["status"] = {"instancetypeRef": {"name": "u1", "controllerRevisionRef": {"name": "mine"}}}
    captured = revision("mine", instancetype(), "u1")

    assert synced(given, captured, **expanding("expand"))[0].vm["spec"]["instancetype"] == {"name": "u1"}
    assert "instancetype" not in synced(given, captured, **expanding("expandAll"))[0].vm["spec"]


def test_what_is_missing() -> None:
    with pytest.raises(Rejection, match=r"^virtualmachineclusterpreferences"):
        synced(vm(preference={"name": "x"}))


def unlabelled(name: str, captured: Json | None, label: str) -> Json:
    stored = revision(name, captured, label)
    del stored["metadata"]["labels"]["instancetype.kubevirt.io/object-version"]
    return stored


def referring(name: str, **spec: Any) -> Json:
    given = vm(**spec)
    references = {"instancetype": {"name": "u1"}, "preference": {"name": "linux"}}
    given["status"] = {
        f"{field}Ref": {**reference, "controllerRevisionRef": {"name": name}}
        for field, reference in references.items()
        if field in spec
    }
    return given


def test_an_old_revision_is_replaced() -> None:
    before = instancetype(cpu={"guest": 7})
    before["metadata"] |= {"uid": "then", "generation": 4}
    result, built = synced(referring("old", instancetype={"name": "u1"}), unlabelled("old", before, "u1"))
    name = "vm-u1-v1beta1-then-4"

    assert [item["metadata"]["name"] for item in result.revisions] == [name]
    assert result.revisions[0]["metadata"]["labels"]["instancetype.kubevirt.io/object-version"] == "v1beta1"
    assert result.deleted == ("old",)
    assert result.vm["status"]["instancetypeRef"]["controllerRevisionRef"] == {"name": name}
    assert built.to_json()["spec"]["domain"]["cpu"]["sockets"] == 7


def test_a_replaced_revision_is_no_longer_found_by_name() -> None:
    with pytest.raises(Rejection, match=r'^controllerrevisions.apps "old" not found$'):
        synced(vm(instancetype={"revisionName": "old"}), unlabelled("old", instancetype(), "u1"))


def test_a_revision_that_cannot_be_replaced() -> None:
    given = referring("old", instancetype={"name": "u1"})
    there = revision("vm-u1-v1beta1-u-1", instancetype(), "u1")

    upgrading = "^error encountered while upgrading instancetype.kubevirt.io controllerRevisions: "
    with pytest.raises(Rejection, match=rf'{upgrading}controllerrevisions.apps "vm-u1-v1beta1-u-1" already exists$'):
        synced(given, unlabelled("old", instancetype(), "u1"), there)
    with pytest.raises(Crash, match="the ControllerRevision old is empty"):
        synced(given, unlabelled("old", None, "another"))


def test_a_policy_that_there_is_not_captures_nothing() -> None:
    result, _ = synced(vm(**BOTH), **expanding("some"))

    assert result.revisions == []
    assert result.vm["spec"]["instancetype"] == {"name": "u1"}


def test_expansion_cleans_up() -> None:
    given, captured = referring("mine", **BOTH), revision("mine", instancetype(), "x")

    assert synced(referring("mine", instancetype={"name": "u1"}), captured, **expanding("expandAll"))[0].deleted == (
        "mine",
    )
    cleaning = "^error encountered cleaning controllerRevision mine after successfully expanding VirtualMachine vm: "
    with pytest.raises(Rejection, match=f'{cleaning}controllerrevisions.apps "mine" not found'):
        synced(given, captured, **expanding("expandAll"))


def test_what_forbids_expansion() -> None:
    with pytest.raises(Rejection, match=r"^error encountered while expanding into VirtualMachine: slirp interface"):
        synced(vm(**BOTH), **expanding("expand"), network={"defaultNetworkInterface": "slirp"})
    features = preference(cpu={"preferredCPUFeatures": [{"name": "x"}]})
    with pytest.raises(Crash, match=r"^the preference names CPU features"):
        synced(vm(preference={"name": "linux"}), features, **expanding("expand"))
