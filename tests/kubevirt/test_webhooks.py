from __future__ import annotations

import copy
import re
from typing import Any

import msgspec
import pytest

from tests.kubevirt import samples
from tests.kubevirt.plain import PlainAdmission, create, mutate_vm, validate_vm
from tests.kubevirt.samples import instancetype, preference, vm
from tests.lookups import among
from tests.vectors.cases import read
from tests.vectors.files import FILE
from tests.vectors.stages import uuids
from webhook.errors import InputError
from webhook.kubevirt.config import DEFAULTS, EVEN_PARITY_ANNOTATION, ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Crash, Rejection
from webhook.kubevirt.rules import share_vm
from webhook.kubevirt.types.views import KubeVirt
from webhook.kubevirt.webhooks import admit_instancetype, admit_preference, find_denial, remember_specs

ARM = {"template.kubevirt.io/architecture": "arm64"}


def mutated(given: Json, *objects: Json, old: Json | None = None, **configuration: Any) -> PlainAdmission:
    return mutate_vm(given, among(objects), uuids(), ClusterConfig.of(configuration), old)


def template(answer: PlainAdmission) -> Json:
    assert answer.vm is not None
    result: Json = answer.vm["spec"]["template"]
    return result


def test_a_new_vm() -> None:
    result = template(mutated(vm()))

    assert result["metadata"]["annotations"] == {"kubevirt.io/pci-topology-version": "v3"}
    assert result["spec"]["architecture"] == "amd64"
    assert result["spec"]["domain"]["machine"] == {"type": "q35"}
    assert result["spec"]["domain"]["firmware"] == {
        "uuid": "00000000-0000-4000-8000-000000000001",
        "serial": "00000000-0000-4000-8000-000000000002",
    }


def test_an_identity_of_the_users_stays() -> None:
    firmware = {"uuid": "mine", "serial": "too"}

    assert template(mutated(vm({"domain": {"firmware": firmware}})))["spec"]["domain"]["firmware"] == firmware


def test_an_update_gets_no_new_identity() -> None:
    result = template(mutated(vm(), old=vm()))

    assert "firmware" not in result["spec"]["domain"]
    assert result["metadata"] == {}
    assert result["spec"]["architecture"] == "amd64"


def test_a_vm_on_its_way_out_is_left_alone() -> None:
    given = vm(instancetype={})
    given["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    answer = mutated(given)

    assert answer.is_allowed
    assert "architecture" not in template(answer)["spec"]


def test_preferences_at_admission() -> None:
    preferred = preference(
        preferredArchitecture="arm64",
        machine={"preferredMachineType": "m"},
        volumes={"preferredStorageClassName": "fast"},
        devices={"preferredDiskBus": "virtio"},
    )
    answer = mutated(vm(preference={"name": "linux"}, dataVolumeTemplates=[{"spec": {"storage": {}}}]), preferred)

    assert answer.vm is not None
    assert template(answer)["spec"]["architecture"] == "arm64"
    assert template(answer)["spec"]["domain"]["machine"] == {"type": "m"}
    assert answer.vm["spec"]["dataVolumeTemplates"][0]["spec"]["storage"]["storageClassName"] == "fast"
    # KubeVirt only logs a missing object.
    assert mutated(vm(preference={"name": "missing"})).is_allowed


def source(name: str, labels: Json | None = None, further: str = "") -> Json:
    spec = {"source": {"dataSource": {"name": further, "namespace": "demo"}}} if further else {}
    return {"kind": "DataSource", "metadata": {"name": name, "namespace": "demo", "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("references", "architecture"),
    [
        ([{"kind": "datasource", "name": "arm"}], "arm64"),
        ([{"kind": "DataSource", "name": "arm", "namespace": ""}], "arm64"),
        ([{"kind": "DataSource", "name": "alias"}], "arm64"),
        ([{"kind": "DataSource", "name": "dangling"}], "amd64"),
        ([{"kind": "DataSource", "name": "missing"}, {"kind": "DataSource", "name": "arm"}], "arm64"),
        ([{"kind": "DataSource", "name": "odd"}, {"kind": "DataSource", "name": "bare"}], "amd64"),
        ([{"kind": "Other", "name": "arm"}], "amd64"),
    ],
)
def test_architecture_of_a_data_source(references: list[Json], architecture: str) -> None:
    objects = [
        source("arm", ARM),
        source("alias", further="arm"),
        source("dangling", ARM, further="missing"),
        source("odd", {"template.kubevirt.io/architecture": "vax"}),
        source("bare"),
    ]
    given = vm(dataVolumeTemplates=[{"spec": {"sourceRef": reference}} for reference in references])

    assert template(mutated(given, *objects))["spec"]["architecture"] == architecture


def test_refused_matchers() -> None:
    both = mutated(vm(instancetype={}, preference={}))
    stale = mutated(
        vm(preference={"name": "b", "revisionName": "r"}), old=vm(preference={"name": "a", "revisionName": "r"})
    )
    failed = mutated(vm(instancetype={"inferFromVolume": "v"}))

    assert (both.code, [cause.field for cause in both.causes]) == (422, ["spec.instancetype"])
    assert (stale.code, [cause.field for cause in stale.causes]) == (422, ["spec.preference.revisionName"])
    assert (failed.code, failed.message) == (400, "unable to find volume v to infer defaults")
    assert not failed.causes


def validated(given: Json, *objects: Json, **configuration: Any) -> PlainAdmission:
    return validate_vm(given, among(objects), ClusterConfig.of(configuration))


BOTH = {"instancetype": {"name": "u1"}, "preference": {"name": "linux"}}


def test_a_valid_vm_is_looked_at_expanded() -> None:
    answer = validated(vm(**BOTH), instancetype(), preference(requirements={"cpu": {"guest": 2}}))

    assert answer.is_allowed
    assert template(answer)["spec"]["domain"]["cpu"] == {"sockets": 2, "cores": 1, "threads": 1}


def test_what_is_missing_is_admitted() -> None:
    assert validated(vm(**BOTH)).is_allowed
    assert validated(vm(instancetype={"name": "u1", "kind": "Foo"}), instancetype()).is_allowed


@pytest.mark.parametrize(
    ("given", "objects", "configuration", "code", "fields"),
    [
        (
            vm(**BOTH),
            [instancetype(cpu={"guest": 3}), preference(cpu={"preferredCPUTopology": "spread"})],
            {},
            422,
            ["instancetype.spec.cpu.guest"],
        ),
        (
            vm({"domain": {"cpu": {"cores": 1}}}, **BOTH),
            [instancetype()],
            {},
            422,
            ["spec.template.spec.domain.cpu.cores"],
        ),
        (
            vm(**BOTH),
            [preference(requirements={"memory": {"guest": "1Gi"}})],
            {},
            422,
            ["spec.template.spec.domain.memory"],
        ),
        (vm(), [], {"network": {"defaultNetworkInterface": "slirp"}}, 400, []),
    ],
)
def test_refused_vms(given: Json, objects: list[Json], configuration: Json, code: int, fields: list[str]) -> None:
    answer = validated(given, *objects, **configuration)

    assert (answer.code, [cause.field for cause in answer.causes]) == (code, fields)
    assert answer.message
    assert answer.vm is None


def test_ten_causes_are_shown() -> None:
    annotations = {f"key-{number}": "mine" for number in range(12)}
    given = vm(instancetype={"name": "u1"})
    given["spec"]["template"]["metadata"] = {"annotations": annotations}
    answer = validated(given, instancetype(annotations=dict.fromkeys(annotations, "other")))

    assert len(answer.causes) == 10
    assert answer.message.endswith(", and 2 more validation errors")


def test_crashes_are_refused() -> None:
    features = preference(cpu={"preferredCPUFeatures": [{"name": "vmx"}]})

    with pytest.raises(Crash, match=r"set spec.template.spec.domain.cpu"):
        validated(vm(preference={"name": "linux"}), features)


def test_an_objection_is_what_the_two_webhooks_say_one_after_the_other() -> None:
    seen = {None: 0, Rejection: 0, Crash: 0}
    for case in (case for case in read(FILE) if "vm" in case.given):
        vm, get, configuration = copy.deepcopy(case.given["vm"]), case.get, case.configuration
        find = remember_specs(get, configuration.rules)
        try:
            changed = mutate_vm(vm, get, str, configuration)
            message = (changed if changed.vm is None else validate_vm(changed.vm, get, configuration)).message
        except Crash as crash:
            message = crash.what
        except InputError as error:
            with pytest.raises(InputError, match=f"^{re.escape(str(error))}$"):
                find_denial(share_vm(vm, configuration.rules), get, configuration, find)
            continue

        before = copy.deepcopy(vm)
        rejection = find_denial(share_vm(vm, configuration.rules), get, configuration, find)

        assert vm == before
        assert (rejection.what if rejection else "") == message
        seen[type(rejection) if rejection else None] += 1
    assert min(seen.values()) > 5, seen


def created(spec: Json, configuration: ClusterConfig = DEFAULTS) -> Json:
    return create({"metadata": {"name": "v"}, "spec": spec}, configuration, lambda: "new")


def domain(given: Json, architecture: str = "amd64", configuration: ClusterConfig = DEFAULTS) -> Any:
    return created({"domain": given, "architecture": architecture}, configuration)["spec"]["domain"]


@pytest.mark.parametrize(
    ("architecture", "bus", "model", "acpi", "bootloader", "action"),
    [
        ("amd64", "sata", "host-model", True, None, {"i6300esb": {"action": "reset"}}),
        ("arm64", "virtio", "host-passthrough", True, {"efi": {"secureBoot": False}}, {}),
        ("s390x", "virtio", "host-model", False, None, {"diag288": {"action": "reset"}}),
    ],
)
def test_architectures(
    architecture: str, bus: str, model: str, acpi: bool, bootloader: Json | None, action: Json
) -> None:
    disks = [
        {"name": "a"},
        {"name": "b", "cdrom": {}},
        {"name": "c", "lun": {}},
        {"name": "d", "disk": {"bus": "scsi"}},
    ]
    result = domain({"devices": {"disks": disks, "watchdog": {"name": "w"}}}, architecture)

    assert result["devices"]["disks"] == [
        {"name": "a", "disk": {"bus": bus}},
        {"name": "b", "cdrom": {"bus": bus, "readonly": True, "tray": "closed"}},
        {"name": "c", "lun": {"bus": bus}},
        {"name": "d", "disk": {"bus": "scsi"}},
    ]
    assert result["cpu"]["model"] == model
    assert result["features"] == {"acpi": {"enabled": acpi}}
    assert result["firmware"] == {"uuid": "new", **({"bootloader": bootloader} if bootloader else {})}
    assert result["devices"]["watchdog"] == {"name": "w", **action}


def test_an_unknown_architecture_is_left_alone() -> None:
    with pytest.raises(Rejection, match="the architecture riscv64 is none of amd64, arm64, s390x"):
        created({"architecture": "riscv64"})


def test_bootloaders_of_arm() -> None:
    assert domain({"firmware": {"bootloader": {}}}, "arm64")["firmware"]["bootloader"] == {}
    assert domain({"firmware": {"bootloader": {"efi": {"secureBoot": True}}}}, "arm64")["firmware"]["bootloader"] == {
        "efi": {"secureBoot": True}
    }


def test_what_is_mentioned_is_enabled() -> None:
    features = {
        "apic": {},
        "smm": {"enabled": False},
        "pvspinlock": {},
        "kvm": {},
        "hyperv": {"spinlocks": {}, "synictimer": {"direct": {}}, "tlbflush": {"direct": {}, "extended": {}}},
    }
    on = {"enabled": True}

    assert domain({"features": features})["features"] == {
        "acpi": on,
        "apic": on,
        "smm": {"enabled": False},
        "pvspinlock": on,
        "kvm": {},
        "hyperv": {
            "spinlocks": {"enabled": True, "spinlocks": 4096},
            "synictimer": {"enabled": True, "direct": on},
            "tlbflush": {"enabled": True, "direct": on, "extended": on},
            "synic": on,
            "vpindex": on,
        },
    }
    off = {"hyperv": {"spinlocks": {"enabled": False}}}
    assert domain({"features": off})["features"]["hyperv"] == {"spinlocks": {"enabled": False}}


@pytest.mark.parametrize(
    ("hyperv", "result", "features"),
    [
        ({"evmcs": {}}, {"evmcs": True, "vapic": True}, [{"name": "vmx", "policy": "require"}]),
        ({"evmcs": {"enabled": False}}, {"evmcs": False}, None),
        ({"ipi": {}}, {"ipi": True, "vpindex": True}, None),
        ({"synic": {}}, {"synic": True, "vpindex": True}, None),
        ({"evmcs": {}, "vapic": {"enabled": False}, "ipi": {}}, {"evmcs": True, "vapic": False, "ipi": True}, None),
    ],
)
def test_hyperv_dependencies(hyperv: Json, result: dict[str, bool], features: list[Json] | None) -> None:
    made = domain({"features": {"hyperv": hyperv}})

    assert {name: state["enabled"] for name, state in made["features"]["hyperv"].items()} == result
    assert made["cpu"].get("features") == features


def test_vmx_is_required_where_it_is_named() -> None:
    cpu = {"features": [{"name": "aes"}, {"name": "vmx", "policy": "disable"}]}

    assert domain({"cpu": cpu, "features": {"hyperv": {"evmcs": {}}}})["cpu"]["features"] == [
        {"name": "aes"},
        {"name": "vmx", "policy": "require"},
    ]


def test_devices_probes_and_timers() -> None:
    devices = {
        "inputs": [{"name": "i"}, {"name": "j", "bus": "virtio", "type": "keyboard"}],
        "gpus": [{"name": "g", "virtualGPUOptions": {"display": {"ramFB": {}}}}, {"name": "h"}],
        "disks": [{"name": "d", "blockSize": {"matchVolume": {}}}],
    }
    spec = created(
        {
            "domain": {"devices": devices, "clock": {"timer": {"hpet": {}, "rtc": {"present": False}}}},
            "livenessProbe": {"periodSeconds": 7},
        }
    )["spec"]

    assert spec["domain"]["devices"]["inputs"] == [
        {"name": "i", "bus": "usb", "type": "tablet"},
        {"name": "j", "bus": "virtio", "type": "keyboard"},
    ]
    assert spec["domain"]["devices"]["gpus"][0]["virtualGPUOptions"] == {"display": {"ramFB": {"enabled": True}}}
    assert spec["domain"]["devices"]["disks"][0]["blockSize"] == {"matchVolume": {"enabled": True}}
    assert spec["domain"]["clock"]["timer"] == {"hpet": {"present": True}, "rtc": {"present": False}}
    assert spec["livenessProbe"] == {
        "timeoutSeconds": 1,
        "periodSeconds": 7,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


@pytest.mark.parametrize(
    ("cpu", "update", "most"),
    [
        ({"sockets": 2, "cores": 1, "threads": 1}, {}, 8),
        ({"sockets": 2, "cores": 1, "threads": 1}, {"maxHotplugRatio": 2}, 4),
        ({"sockets": 2, "cores": 1, "threads": 1, "maxSockets": 3}, {}, 3),
        ({"sockets": 2}, {"maxCpuSockets": 6}, 6),
        ({"sockets": 9}, {"maxCpuSockets": 6}, 9),
        ({"sockets": 100, "cores": 2, "threads": 1}, {}, 256),
        ({"sockets": 100, "cores": 4, "threads": 2}, {}, 100),
        ({"cores": 2}, {}, None),
    ],
)
def test_max_sockets(cpu: Json, update: Json, most: int | None) -> None:
    assert (
        domain({"cpu": cpu}, configuration=ClusterConfig.of({"liveUpdateConfiguration": update}))["cpu"].get(
            "maxSockets"
        )
        == most
    )


@pytest.mark.parametrize(
    ("given", "update", "most"),
    [
        ({"memory": {"guest": "1Gi"}}, {}, "4Gi"),
        ({"memory": {"guest": "1Gi"}}, {"maxGuest": "64Gi"}, "64Gi"),
        ({"memory": {"guest": "1Gi"}}, {"maxGuest": "3G"}, None),
        ({"memory": {"guest": "2Gi"}}, {"maxGuest": "1Gi"}, None),
        ({"memory": {"guest": "1Gi", "maxGuest": "2Gi"}}, {}, "2Gi"),
        ({"memory": {"guest": "1023Mi"}}, {}, None),
        ({"memory": {"guest": "1022Mi"}}, {}, None),
        ({"memory": {"guest": "1025Mi"}}, {}, None),
        ({"memory": {"guest": "1026Mi"}}, {}, "4104Mi"),
        ({"memory": {"guest": "1026Mi", "hugepages": {"pageSize": "1Gi"}}}, {}, None),
        ({"memory": {"guest": "1Gi"}, "cpu": {"realtime": {}}}, {}, None),
        ({"memory": {"guest": "1Gi"}, "cpu": {"numa": {"guestMappingPassthrough": {}}}}, {}, None),
        ({"memory": {"guest": "1Gi"}, "cpu": {"numa": {}}}, {}, "4Gi"),
        ({"memory": {"guest": "1Gi"}, "launchSecurity": {}}, {}, None),
        ({}, {"maxGuest": "64Gi"}, None),
    ],
)
def test_max_guest(given: Json, update: Json, most: str | None) -> None:
    made = domain(given, configuration=ClusterConfig.of({"liveUpdateConfiguration": update}))
    elsewhere = domain(given, "s390x", ClusterConfig.of({"liveUpdateConfiguration": update}))

    assert made["memory"].get("maxGuest") == most
    assert elsewhere["memory"].get("maxGuest") == given.get("memory", {}).get("maxGuest")


def test_no_hotplug_where_changes_are_staged_or_on_arm() -> None:
    staged = domain({"memory": {"guest": "1Gi"}}, configuration=ClusterConfig.of({"vmRolloutStrategy": "Stage"}))

    assert "maxSockets" not in staged["cpu"]
    assert "maxGuest" not in staged["memory"]
    assert "maxSockets" not in domain({}, "arm64")["cpu"]


def test_status() -> None:
    status = created({"domain": {"memory": {"guest": "1Gi"}, "cpu": {"cores": 2}}})["status"]

    assert status == {
        "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
        "currentCPUTopology": {"cores": 2},
        "guestOSInfo": {},
        "runtimeUser": 107,
    }
    rooted = ClusterConfig.of({"developerConfiguration": {"featureGates": ["Root"]}})
    assert created({}, rooted)["status"]["runtimeUser"] == 0


def test_cpu_model_of_the_cluster() -> None:
    chosen = ClusterConfig.of({"cpuModel": "Haswell"})

    assert domain({}, configuration=chosen)["cpu"]["model"] == "Haswell"
    assert domain({"cpu": {"model": "mine"}}, configuration=chosen)["cpu"]["model"] == "mine"
    assert domain({}, "arm64", chosen)["cpu"]["model"] == "host-passthrough"


@pytest.mark.parametrize(
    ("spec", "pci"),
    [
        ({}, True),
        ({"architecture": "arm64"}, True),
        ({"architecture": "s390x"}, False),
        ({"domain": {"machine": {"type": "pc-i440fx"}}}, False),
        ({"domain": {"machine": {"type": "pc-q35-rhel9"}}}, True),
        ({"domain": {"machine": {"type": "virt-rhel9"}}}, True),
    ],
)
def test_pci_topology_annotation(spec: Json, pci: bool) -> None:
    annotations = created(spec)["metadata"].get("annotations", {})

    assert annotations == ({"kubevirt.io/pci-topology-version": "v3"} if pci else {})


def test_annotations_that_depend_on_the_cluster() -> None:
    kubevirt = {
        "metadata": {"annotations": {EVEN_PARITY_ANNOTATION: ""}},
        "spec": {"configuration": {"developerConfiguration": {"featureGates": ["AlignCPUs"]}}},
        "status": {"phase": "Deployed"},
    }
    spec = {"domain": {"cpu": {"isolateEmulatorThread": True}, "launchSecurity": {"tdx": {}}}}
    annotations = created(spec, ClusterConfig.of_kubevirt(msgspec.convert(kubevirt, KubeVirt)))["metadata"][
        "annotations"
    ]
    without = ClusterConfig.of({"confidentialCompute": {"tdx": {"attestation": {"qgsSocketPath": ""}}}})

    assert annotations[EVEN_PARITY_ANNOTATION] == ""
    assert annotations["kubevirt.io/qgs-socket-path"] == "/var/run/tdx-qgs/qgs.socket"
    assert set(created(spec, without)["metadata"]["annotations"]) == {"kubevirt.io/pci-topology-version"}


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe"])
def test_both_probes_are_completed(probe: str) -> None:
    assert created({"domain": {}, probe: {"timeoutSeconds": 0, "failureThreshold": -1}})["spec"][probe] == {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


@pytest.mark.parametrize("timer", ["hpet", "kvm", "pit", "rtc", "hyperv"])
def test_every_timer_that_is_named_is_present(timer: str) -> None:
    assert domain({"clock": {"timer": {timer: {}}}})["clock"]["timer"] == {timer: {"present": True}}


def test_a_pci_topology_that_is_there_stays() -> None:
    noted = {"annotations": {"kubevirt.io/pci-topology-version": "v2"}}
    made = create({"metadata": noted, "spec": {"domain": {}}}, DEFAULTS, lambda: "new")

    assert made["metadata"]["annotations"] == noted["annotations"]


@pytest.mark.parametrize("gates", [[], ["AlignCPUs"]])
def test_even_parity_takes_a_gate(gates: list[str]) -> None:
    kubevirt = msgspec.convert(
        {
            "metadata": {"annotations": {EVEN_PARITY_ANNOTATION: ""}},
            "spec": {"configuration": {"developerConfiguration": {"featureGates": gates}}},
            "status": {"phase": "Deployed"},
        },
        KubeVirt,
    )
    configuration = ClusterConfig.of_kubevirt(kubevirt)
    made = created({"domain": {"cpu": {"isolateEmulatorThread": True}}}, configuration)

    assert (EVEN_PARITY_ANNOTATION in made["metadata"]["annotations"]) == bool(gates)


OVERCOMMIT = "spec.memory.overcommitPercent"
RATIO = "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"


@pytest.mark.parametrize(
    ("memory", "messages"),
    [
        ({"overcommitPercent": 0, "hugepages": {}}, []),
        ({"overcommitPercent": 100}, []),
        (
            {"overcommitPercent": 1, "hugepages": {}},
            [f"{OVERCOMMIT} and spec.memory.hugepages should not be requested together."],
        ),
        ({"overcommitPercent": -15}, [f"{OVERCOMMIT} '-15': must be in range between 0 and 100."]),
        (
            {"overcommitPercent": 150, "hugepages": {}},
            [
                f"{OVERCOMMIT} '150': must be in range between 0 and 100.",
                f"{OVERCOMMIT} and spec.memory.hugepages should not be requested together.",
            ],
        ),
    ],
)
def test_instancetypes(memory: Json, messages: list[str]) -> None:
    answer = admit_instancetype(samples.instancetype(memory={"guest": "1Gi", **memory}))

    assert [cause.what for cause in answer.causes] == messages
    assert {cause.field for cause in answer.causes} <= {OVERCOMMIT}
    assert answer.is_allowed is not bool(messages)


def test_a_deprecated_field() -> None:
    answer = admit_instancetype(samples.instancetype(launchSecurity={}))

    assert answer.is_allowed
    assert answer.warnings == [
        "launchSecurity is deprecated and will be removed in a future release. Use preference instead."
    ]


@pytest.mark.parametrize(
    ("spec", "message", "field"),
    [
        ({}, "", ""),
        ({"cpu": {"preferredCPUTopology": "cores"}}, "", ""),
        ({"cpu": {"preferredCPUTopology": "foo"}}, "unknown preferredCPUTopology foo", "spec.cpu.preferredCPUTopology"),
        ({"cpu": {"spreadOptions": {"across": "foo"}}}, "", ""),
        ({"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}}}, "", ""),
        (
            {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "foo"}}},
            "across foo is not supported",
            "spec.cpu.spreadOptions.across",
        ),
        (
            {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads", "ratio": 3}}},
            RATIO,
            "spec.cpu.spreadOptions.ratio",
        ),
        (
            {
                "cpu": {"preferredCPUTopology": "preferSpread", "spreadOptions": {"across": "CoresThreads"}},
                "preferSpreadSocketToCoreRatio": 3,
            },
            RATIO,
            "spec.cpu.spreadOptions.ratio",
        ),
        ({"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}}}, "", ""),
    ],
)
def test_preferences(spec: Json, message: str, field: str) -> None:
    answer = admit_preference(samples.preference(**spec))

    assert (answer.message, [cause.field for cause in answer.causes]) == (message, [field] if field else [])


def test_a_deprecated_name() -> None:
    assert admit_preference(samples.preference(cpu={"preferredCPUTopology": "preferAny"})).warnings == [
        "PreferredCPUTopology preferAny is deprecated for removal in a future release, please use any instead"
    ]
