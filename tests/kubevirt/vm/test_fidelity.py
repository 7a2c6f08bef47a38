from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.builders import config_of
from tests.kubevirt import plain
from tests.kubevirt.samples import among, instancetype, preference, revision, vm
from tests.vectors.cases import FILE, read
from webhook import names
from webhook.errors import InputError
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.origins import FieldOrigin
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Get, Rejection
from webhook.kubevirt.vm.fidelity import Incomparable, differences, revisions

CAPTURED = [
    revision("it-1", instancetype(), "u1"),
    revision("pref-1", preference(devices={"preferredDiskBus": "virtio"}), "linux"),
]
VOLUMES = [{"name": "root", "containerDisk": {"image": "fedora:40"}}]


def running(template: Json | None = None, **spec: Any) -> Json:
    """A VM that was started with an instancetype and a preference."""
    named = {"instancetype": {"name": "u1"}, "preference": {"name": "linux"}} | spec
    made = vm({"volumes": VOLUMES} | (template or {}), **named)
    made["metadata"]["generation"] = 3
    made["status"] = {
        "created": True,
        "instancetypeRef": {"name": "u1", "controllerRevisionRef": {"name": "it-1"}},
        "preferenceRef": {"name": "linux", "controllerRevisionRef": {"name": "pref-1"}},
    }
    return made


def started(given: Json, configuration: ClusterConfig = DEFAULTS) -> Json:
    """The VMI that KubeVirt has made of a VM."""
    return plain.create(plain.build_vmi(given, among(CAPTURED), configuration), configuration, str)


PRESET = {"virtualmachinepreset.kubevirt.io/p": "v1"}
RESIZED = {"virtualMachineRevisionName": "revision-start-vm-uid-2"}
PLUGGED = {"name": "extra", "persistentVolumeClaim": {"claimName": "extra", "hotpluggable": True}}


def _among(named: dict[str, Json]) -> Get:
    return lambda _, __, name: named.get(name)


def paths(given: Json, found: Json, configuration: ClusterConfig = DEFAULTS) -> list[str]:
    return [*differences(given, found, among(CAPTURED), configuration)]


def test_what_kubevirt_has_made_does_not_differ() -> None:
    seen = 0
    for case in read(FILE):
        answer = case.expected.get("controller", {})
        if "admittedVMI" not in answer:
            continue
        given, found = answer["vm"], answer["admittedVMI"]
        named = {stored["metadata"]["name"]: stored for stored in answer.get("controllerRevisions") or ()}
        before = copy.deepcopy((given, found, named))

        assert differences(given, found, _among(named), case.configuration) == {}

        assert set(revisions(given)) <= named.keys()
        assert (given, found, named) == before
        seen += 1
    assert seen > 200, seen


def test_what_was_captured_is_looked_up_and_what_was_not_is_incomparable() -> None:
    assert revisions(running()) == ["it-1", "pref-1"]
    assert revisions(running(instancetype={"name": "u1", "revisionName": "pinned"})) == ["pinned", "pref-1"]
    assert revisions(vm()) == []
    given = running()
    del given["status"]["preferenceRef"]
    with pytest.raises(Incomparable, match="the VM's preference was not captured"):
        revisions(given)


@pytest.mark.parametrize(
    ("change", "path", "origin"),
    [
        (lambda spec: spec["domain"]["cpu"].update(sockets=9), "spec.domain.cpu.sockets", FieldOrigin.INSTANCETYPE),
        (lambda spec: spec.update(hostname="other"), "spec.hostname", None),
        (lambda spec: spec.pop("evictionStrategy"), "spec.evictionStrategy", FieldOrigin.KUBEVIRT),
        (lambda spec: spec.update(schedulerName="other"), "spec.schedulerName", None),
        (
            lambda spec: spec["domain"]["devices"]["disks"][0]["disk"].update(bus="sata"),
            "spec.domain.devices.disks[0].disk.bus",
            FieldOrigin.PREFERENCE,
        ),
        (
            lambda spec: spec["volumes"][0]["containerDisk"].update(image="SECRET"),
            "spec.volumes[0].containerDisk.image",
            FieldOrigin.VM,
        ),
    ],
)
def test_what_differs_is_named(change: Any, path: str, origin: FieldOrigin | None) -> None:
    found = started(running())
    change(found["spec"])
    assert differences(running(), found, among(CAPTURED), DEFAULTS) == {path: origin}


def test_the_scheduler_that_we_have_chosen_is_no_difference() -> None:
    found = started(running())
    found["spec"]["schedulerName"] = "kubevirt"
    found["metadata"]["annotations"][names.INJECTED_SCHEDULER_ANNOTATION] = "kubevirt"
    assert paths(running(), found) == []
    found["spec"]["schedulerName"] = "other"
    assert paths(running(), found) == ["spec.schedulerName"]
    assert paths(running({"schedulerName": "mine"}), found) == ["spec.schedulerName"]
    # What the cluster's settings decide may have been otherwise.
    then, now = ClusterConfig.of({}), ClusterConfig.of({"cpuModel": "Skylake"})
    assert paths(running(), started(running(), configuration=then), now) == []


@pytest.mark.parametrize("strategy", ["Paused", "WaitAsReceiver"])
def test_how_it_was_started_is_no_difference(strategy: str) -> None:
    found = started(running())
    found["spec"]["startStrategy"] = strategy
    assert paths(running(), found) == []
    assert paths(running({"startStrategy": "Paused"}), started(running())) == ["spec.startStrategy"]


def test_what_is_plugged_into_the_vmi_alone_is_no_difference() -> None:
    found = started(running())
    found["spec"]["volumes"].append(PLUGGED)
    found["spec"]["domain"]["devices"]["disks"].append({"name": "extra", "disk": {"bus": "scsi"}, "serial": "extra"})
    found["spec"]["utilityVolumes"] = [{"name": "dump", "claimName": "dump"}]
    found["spec"]["domain"]["devices"]["disks"][0]["changedBlockTracking"] = True
    assert paths(running(), found) == []
    given = running()
    given["spec"]["template"]["spec"]["utilityVolumes"] = [{"name": "other", "claimName": "other"}]
    assert paths(given, found) == []
    found["spec"]["volumes"][-1] = {"name": "extra", "persistentVolumeClaim": {"claimName": "extra"}}
    assert "spec.volumes[1].name" in paths(running(), found)
    # Beside the VM's own volumes.
    bare, both = running({"volumes": []}), running({"volumes": [*VOLUMES, PLUGGED]})
    found, lacking = started(bare), started(both)
    found["spec"]["volumes"] = [PLUGGED]
    found["spec"]["domain"]["devices"]["disks"] = [{"name": "extra", "disk": {"bus": "scsi"}}]
    lacking["spec"]["volumes"].pop()
    assert paths(bare, found) == []
    assert "spec.volumes[1].name" in paths(both, lacking)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda vm, _: vm["metadata"].update(generation=4), "the VM has changed since its start"),
        (lambda _, vmi: vmi["metadata"]["annotations"].clear(), "the VM has changed since its start"),
        # As virt-controller leaves it after `u1.small` became `u1.medium`: the template is the same.
        (lambda _, vmi: vmi["status"].update(RESIZED), "the VM's instancetype may have changed since its start"),
        (lambda vm, _: vm["metadata"].update(uid="new"), "the VMI is of another VM of this name"),
        (lambda _, vmi: vmi["metadata"].pop("ownerReferences"), "the VMI is of another VM of this name"),
        (lambda _, vmi: vmi["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"), "it is being deleted"),
        (lambda _, vmi: vmi["metadata"]["annotations"].update(PRESET), "a preset was applied to the VMI"),
    ],
)
def test_what_says_nothing_about_each_other(change: Any, why: str) -> None:
    given, found = running(), started(running())
    change(given, found)
    with pytest.raises(Incomparable) as caught:
        paths(given, found)
    assert str(caught.value) == why


def test_a_vm_without_an_instancetype_has_no_resizing_to_fear() -> None:
    given = vm({"volumes": VOLUMES})
    given["metadata"]["generation"] = 3
    found = started(given)
    found["status"] |= RESIZED
    assert paths(given, found) == []
    # A VMI of the VM's present generation is compared.
    found = started(running())
    found["status"]["virtualMachineRevisionName"] = "revision-start-vm-uid-3"
    found["spec"]["domain"]["devices"]["rng"] = {}
    assert paths(running(), found) == ["spec.domain.devices.rng"]


def test_a_lost_revision_or_a_malformed_vmi_is_named() -> None:
    with pytest.raises(Rejection, match=r'controllerrevisions.apps "pref-1" not found'):
        differences(running(), started(running()), among([]), DEFAULTS)
    with pytest.raises(InputError, match=r"VirtualMachineInstance.spec.hostname: is a number"):
        paths(running(), {"metadata": {}, "spec": {"hostname": 7}})


@pytest.mark.parametrize(("started", "running_now", "differs"), [("1.8", "1.9", False), ("1.9", "1.8", True)])
def test_a_vmi_from_before_an_update_of_kubevirt(started: str, running_now: str, differs: bool) -> None:
    """KubeVirt 1.9 adds a panic device that 1.8 did not; the update leaves running VMIs as they are."""
    panicking = copy.deepcopy(CAPTURED)
    (captured,) = (one for one in panicking if one["metadata"]["name"] == "pref-1")
    captured["data"]["spec"].setdefault("devices", {})["preferredPanicDeviceModel"] = "isa"
    machine = running()
    then = config_of(started)
    vmi = plain.create(plain.build_vmi(machine, among(panicking), then), then, str)
    vmi["metadata"]["annotations"]["kubevirt.io/vm-generation"] = str(machine["metadata"].get("generation", 0))
    found = differences(machine, vmi, among(panicking), config_of(running_now))
    assert bool(found) is differs
