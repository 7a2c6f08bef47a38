"""VMIs as KubeVirt makes them of VMs, with the origin of every field, and those that no VM owns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.kubevirt import plain
from tests.kubevirt.samples import among, instancetype, preference, revision, vm
from tests.vectors.cases import FILE, Json, VectorCase, read
from tests.vectors.stages import uuids
from webhook.errors import InputError
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.origins import FieldOrigin, leaves
from webhook.kubevirt.go_json.structs import decode, encode
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, MATCHERS, Matcher, SpecReference, of_matcher
from webhook.kubevirt.rejection import Cause, Crash, Rejection
from webhook.kubevirt.rules import read_vm
from webhook.kubevirt.vm import creation, standalone_vmi
from webhook.kubevirt.vm.creation import Created, CreationDenied, CreationStage, Named

CPU = "spec.domain.cpu.sockets"
CONFLICTING = vm({"domain": {"cpu": {"cores": 1, "sockets": 1}}}, instancetype={"name": "u1"})
CRASHING = preference(cpu={"preferredCPUFeatures": [{"name": "f"}]})


def made(machine: Any, *objects: Any, configuration: Any = None) -> Created:
    return creation.from_vm(machine, among(objects), uuids(), ClusterConfig.of(configuration))


def both(template: Any = None) -> Any:
    return vm(template, instancetype={"name": "u1"}, preference={"name": "linux"})


def test_every_field_has_an_origin() -> None:
    disk = {"disks": [{"name": "d", "disk": {"bus": "sata"}}]}
    preferred = preference(
        devices={"preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio"},
        preferredArchitecture="arm64",
        machine={"preferredMachineType": "virt"},
    )
    machine = both({"domain": {"devices": disk}})
    created = made(machine, instancetype(), preferred, configuration={"evictionStrategy": "LiveMigrate"})

    assert created.origins.keys() == dict(leaves(created.obj)).keys()
    told = {
        "metadata.name": FieldOrigin.VM,
        "spec.domain.devices.disks[0].disk.bus": FieldOrigin.VM,
        CPU: FieldOrigin.INSTANCETYPE,
        "spec.domain.memory.guest": FieldOrigin.INSTANCETYPE,
        "spec.domain.devices.interfaces[0].model": FieldOrigin.PREFERENCE,
        # Written by the webhook for VMs, long before the preference is applied to the VMI.
        "spec.architecture": FieldOrigin.PREFERENCE,
        "spec.domain.machine.type": FieldOrigin.PREFERENCE,
        "spec.domain.firmware.uuid": FieldOrigin.KUBEVIRT,
        "spec.domain.devices.interfaces[0].name": FieldOrigin.KUBEVIRT,
        "metadata.annotations[kubevirt.io/pci-topology-version]": FieldOrigin.KUBEVIRT,
        "spec.evictionStrategy": FieldOrigin.CLUSTER,
    }
    assert {path: created.origins[path] for path in told} == told


@pytest.mark.parametrize(
    ("given", "generation"), [({}, "1"), ({"generation": 7}, "1"), ({"generation": 7, "uid": "u"}, "7")]
)
def test_a_new_vms_generation_is_the_first(given: Any, generation: str) -> None:
    machine = vm()
    machine["metadata"] = {"name": "web", "namespace": "demo"} | given
    assert made(machine).obj["metadata"]["annotations"]["kubevirt.io/vm-generation"] == generation


def test_annotations_that_leak_are_the_instancetypes_and_an_images_architecture_is_kubevirts() -> None:
    origins = made(both(), instancetype(annotations={"a": "b"}), preference(annotations={"c": "d"})).origins
    assert [origins[f"metadata.annotations.{key}"] for key in "ac"] == [
        FieldOrigin.INSTANCETYPE,
        FieldOrigin.PREFERENCE,
    ]
    labels = {"template.kubevirt.io/architecture": "arm64"}
    image = {"kind": "DataSource", "metadata": {"name": "s", "namespace": "demo", "labels": labels}}
    template = {"metadata": {"name": "d"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "s"}}}
    created = made(vm(dataVolumeTemplates=[template]), image)
    assert created.obj["spec"]["architecture"] == "arm64"
    assert created.origins["spec.architecture"] is FieldOrigin.KUBEVIRT


@pytest.mark.parametrize("policy", ["reference", "expand", "expandAll"])
def test_origins_survive_every_reference_policy(policy: str) -> None:
    created = made(both(), instancetype(), preference(), configuration={"instancetype": {"referencePolicy": policy}})
    assert created.origins[CPU] is FieldOrigin.INSTANCETYPE
    assert created.origins["spec.architecture"] is FieldOrigin.CLUSTER
    assert created.named[FieldOrigin.INSTANCETYPE] == Named("VirtualMachineClusterInstancetype", "u1")


def test_inferred_from_a_volume() -> None:
    labels = {f"instancetype.kubevirt.io/default-{kind}": kind for kind in ("instancetype", "preference")}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "demo", "labels": labels}}
    machine = vm(
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        instancetype={"inferFromVolume": "v"},
        preference={"inferFromVolume": "v"},
    )
    created = made(machine, claim, instancetype(name="instancetype"), preference(name="preference"))
    assert created.named == {
        FieldOrigin.INSTANCETYPE: Named("VirtualMachineClusterInstancetype", "instancetype", "v"),
        FieldOrigin.PREFERENCE: Named("VirtualMachineClusterPreference", "preference", "v"),
    }


@pytest.mark.parametrize(("label", "sockets", "counts"), [("u1", 8, "r"), ("other", 2, "")])
def test_what_was_captured_counts_unless_it_is_another_object(label: str, sockets: int, counts: str) -> None:
    objects = [revision("r", instancetype(cpu={"guest": 8}), label=label), instancetype(), preference()]
    status = {"instancetypeRef": {"name": "u1", "controllerRevisionRef": {"name": "r"}}}
    created = made(both() | {"status": status}, *objects)
    assert created.obj["spec"]["domain"]["cpu"]["sockets"] == sockets
    assert created.named == creation.expand_vm(both() | {"status": status}, among(objects)).named
    assert [created.named[origin].revision for origin in (FieldOrigin.INSTANCETYPE, FieldOrigin.PREFERENCE)] == [
        counts,
        "",
    ]


def test_a_revision_counts_whatever_the_kind_says() -> None:
    machine = vm(instancetype={"name": "u1", "kind": "odd", "revisionName": "r"})
    named = creation.expand_vm(machine, among([revision("r", instancetype())])).named
    assert named[FieldOrigin.INSTANCETYPE] == Named("odd", "u1", revision="r")
    # KubeVirt makes a serial number only for new VMs; the UUID then follows from the name.
    machine = vm()
    new = {**machine, "metadata": {"name": "vm", "namespace": "demo"}}
    assert made(new).obj["spec"]["domain"]["firmware"]["serial"]
    assert "serial" not in made(machine).obj["spec"]["domain"]["firmware"]


@pytest.mark.parametrize(
    ("machine", "objects", "configuration", "stage", "what"),
    [
        (vm(preference={}), [], {}, CreationStage.VM_WEBHOOK, "Either Name or InferFromVolume"),
        (vm(instancetype={"inferFromVolume": "v"}), [], {}, CreationStage.VM_WEBHOOK, "unable to find volume v"),
        (CONFLICTING, [instancetype()], {}, CreationStage.VM_WEBHOOK, "sockets conflicts with selected instance type"),
        (both(), [CRASHING], {}, CreationStage.VM_WEBHOOK, "KubeVirt would crash"),
        (both(), [], {}, CreationStage.CONTROLLER, '.kubevirt.io "u1" not found'),
        (vm(), [], {"network": {"defaultNetworkInterface": "slirp"}}, CreationStage.VM_WEBHOOK, "slirp interface is"),
    ],
    ids=["matcher", "inference", "conflict", "crash", "missing", "interface"],
)
def test_refusals_say_who_and_what(
    machine: Any, objects: Any, configuration: Any, stage: CreationStage, what: str
) -> None:
    with pytest.raises(CreationDenied) as refused:
        made(machine, *objects, configuration=configuration)
    assert refused.value.stage is stage
    assert what in refused.value.what


def test_conflicts_are_told_one_by_one() -> None:
    asked: list[Callable[[], Created]] = [
        lambda: made(CONFLICTING, instancetype()),
        lambda: creation.expand_vm(CONFLICTING, among([instancetype()])),
    ]
    for ask in asked:
        with pytest.raises(CreationDenied) as refused:
            ask()
        fields = [cause.field.removeprefix("spec.template.spec.domain.cpu.") for cause in refused.value.causes]
        assert fields == ["sockets", "cores"]


def test_a_vmi_gets_defaults_and_nothing_else() -> None:
    given = {
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "a", "annotations": {"kubevirt.io/instancetype-name": "u1"}},
        "spec": {"domain": {}},
    }
    created = creation.from_vmi(given, uuids())
    assert (created.obj["spec"]["domain"]["cpu"]["sockets"], created.named) == (1, {})
    assert created.origins["metadata.annotations[kubevirt.io/instancetype-name]"] is FieldOrigin.VM
    assert created.origins[CPU] is FieldOrigin.KUBEVIRT
    with pytest.raises(CreationDenied) as refused:
        creation.from_vmi({"spec": {}}, uuids(), ClusterConfig(network_interface="slirp"))
    assert refused.value.stage is CreationStage.VMI_WEBHOOK


def test_expansion_knows_its_origins() -> None:
    created = creation.expand_vm(both(), among([instancetype(), preference(preferredSubdomain="s")]))
    assert created.origins.keys() == dict(leaves(created.obj)).keys()
    assert created.origins["spec.template.spec.domain.cpu.sockets"] is FieldOrigin.INSTANCETYPE
    assert created.origins["spec.template.spec.subdomain"] is FieldOrigin.PREFERENCE
    assert created.origins["spec.template.spec.networks[0].name"] is FieldOrigin.KUBEVIRT
    assert creation.expand_vm(vm(), among([])).named == {}


def test_kubevirts_own_answers_come_out_of_the_whole_way() -> None:
    """The same VMIs as stage by stage, for every case that KubeVirt has carried to the end."""
    compared = 0
    for case in read(FILE):
        stages = case.expected
        if not {"mutate", "admit", "controller"} <= stages.keys() or case.given.get("oldVM"):
            continue
        told = stages["controller"].get("admittedVMI")
        machine = {**case.given["vm"], "metadata": {**case.given["vm"]["metadata"]}}
        machine["metadata"].pop("uid", None)
        if told is None or not (stages["mutate"]["allowed"] and stages["admit"]["allowed"]):
            with pytest.raises(InputError):
                creation.from_vm(machine, case.get, uuids(), case.configuration)
            continue
        created = creation.from_vm(machine, case.get, uuids(), case.configuration)
        assert created.obj["spec"] == told["spec"], case.id
        assert created.origins.keys() == dict(leaves(created.obj)).keys()
        compared += 1
    assert compared > 20


# -- VMIs without a VM: each gets what virt-controller would have given the VMI of a VM with the same template ---------


class Comparison(NamedTuple):
    """A case in which virt-controller builds a VMI: the bare VMI of the same template, and KubeVirt's."""

    case: VectorCase
    vmi: Json
    found: dict[Matcher, tuple[SpecReference, Json]]
    expected: Json


def comparisons() -> Iterator[Comparison]:
    for case in read(FILE):
        vm, expected = case.given.get("vm"), case.expected.get("controller", {})
        if vm is None or "vmi" not in expected or vm.get("status"):
            continue
        try:
            changed = plain.mutate_vm(vm, case.get, uuids(), case.configuration).vm if "mutate" in case.expected else vm
            decoded = read_vm(changed)
            found = {matcher: matcher.find(decoded, case.get) for matcher in MATCHERS}
        except InputError:
            continue
        named = {
            matcher: (of_matcher(matcher, decoded["spec"][matcher.field]), whole)
            for matcher, whole in found.items()
            if whole is not None
        }

        if named and changed and case.configuration.reference_policy == "reference":
            vmi = {**copy.deepcopy(changed["spec"]["template"]), "kind": "VirtualMachineInstance"}
            yield Comparison(case, vmi, named, expected)


ALL = list(comparisons())
U1 = SpecReference("VirtualMachineClusterInstancetype", "u1.small")


def test_the_same_as_virt_controllers() -> None:
    compared = 0
    for one in ALL:
        try:
            filled = standalone_vmi.fill(one.vmi, one.found, one.case.configuration)
        except Cause:
            # KubeVirt's VM webhook denies this VM; the vectors have virt-controller's answer all the same.
            continue
        except Crash:
            assert "panic" in str(one.case.expected)
            continue
        except Rejection as rejection:
            assert one.expected.get("error"), (one.case.id, rejection)
            continue
        spec, wanted = filled.after["spec"], copy.deepcopy(one.expected["vmi"]["spec"])
        # virt-controller derives the firmware's UUID from the VM's name.
        wanted["domain"]["firmware"].pop("uuid", None)
        spec["domain"].get("firmware", {}).pop("uuid", None)
        spec["domain"].setdefault("firmware", {})
        assert spec == wanted, one.case.id
        annotations = one.expected["vmi"]["metadata"]["annotations"]
        annotations.pop("kubevirt.io/vm-generation")
        assert filled.after["metadata"].get("annotations", {}) == annotations, one.case.id
        compared += 1
    assert (len(ALL) > 200, compared > 150) == (True, True)


def test_what_is_given_stays_as_it_is() -> None:
    """What was filled shares with it whatever stays, and with what is remembered of the objects."""
    for one in ALL:
        given = copy.deepcopy((one.vmi, list(one.found.values())))
        answers = []
        for _ in range(2):
            with suppress(Rejection):
                answers.append(standalone_vmi.fill(one.vmi, one.found, one.case.configuration))
        shape = one.case.configuration.rules.vmi

        assert (one.vmi, list(one.found.values())) == given, one.case.id
        assert answers[:1] == answers[1:], one.case.id
        assert not answers or answers[0].before == encode(shape, decode(shape, one.vmi)), one.case.id
        assert not answers or answers[0].after == encode(shape, answers[0].after), one.case.id
        # What was computed is written: msgspec would not encode it, even where it is canonical.
        assert all(msgspec.json.encode(answer.after) for answer in answers), one.case.id


def test_an_empty_node_selector_is_none() -> None:
    """KubeVirt's webhook drops it from a VM, before it could conflict with the instancetype's."""
    whole = {"spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "nodeSelector": {"a": "b"}}}
    filled = standalone_vmi.fill(
        {"spec": {"domain": {}, "nodeSelector": {}}}, {INSTANCETYPE_MATCHER: (U1, whole)}, DEFAULTS
    )
    assert filled.after["spec"]["nodeSelector"] == {"a": "b"}
    # Malformed objects are a sentence.
    with pytest.raises(InputError, match=r"spec.domain.cpu"):
        standalone_vmi.fill({"spec": {"domain": {"cpu": 1}}}, {}, DEFAULTS)


def test_an_overcommitted_amount_is_written_as_virt_controller_writes_it() -> None:
    """It applies the captured object: 1.3Ti is not a whole number of bytes, and so a decimal by then."""
    whole = {"spec": {"cpu": {"guest": 1}, "memory": {"guest": "1.3Ti", "overcommitPercent": 33}}}
    filled = standalone_vmi.fill({"spec": {"domain": {}}}, {INSTANCETYPE_MATCHER: (U1, whole)}, DEFAULTS)
    assert filled.after["spec"]["domain"]["memory"] == {"guest": "1429365116108800m"}
    assert filled.after["spec"]["domain"]["resources"]["requests"] == {"memory": "957674553344"}
