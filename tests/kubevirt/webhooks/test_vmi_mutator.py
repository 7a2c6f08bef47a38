from __future__ import annotations

from typing import Any

import msgspec
import pytest

from webhook.kubevirt.config import DEFAULTS, EVEN_PARITY_ANNOTATION, ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.types.views import KubeVirt
from webhook.kubevirt.webhooks import create


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
