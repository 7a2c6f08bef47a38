from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.samples import applied
from webhook.kubevirt.instancetype.preferences import storage_class
from webhook.kubevirt.rejection import Crash


def domain(given: dict[str, Any], **preferred: Any) -> dict[str, Any]:
    """The parts of a domain that a preference has changed or kept."""
    result = applied({"domain": given}, None, preferred)[0]["domain"]
    return {key: value for key, value in result.items() if value != {}}


def devices(given: dict[str, Any], **preferred: Any) -> dict[str, Any]:
    result: dict[str, Any] = domain({"devices": given}, devices=preferred).get("devices", {})
    return result


def test_cpu_features_are_added_by_name() -> None:
    features = [{"name": "vmx", "policy": "disable"}]
    preferred = {"preferredCPUFeatures": [{"name": "vmx"}, {"name": "aes"}, {"name": "aes"}]}

    assert domain({"cpu": {"features": features}}, cpu=preferred)["cpu"]["features"] == [
        *features,
        {"name": "aes"},
        {"name": "aes"},
    ]
    assert domain({"cpu": {"cores": 1}}, cpu={"preferredCPUFeatures": []})["cpu"] == {"cores": 1}
    assert (
        domain({"cpu": {"features": features}}, cpu={"preferredCPUFeatures": features})["cpu"]["features"] == features
    )


def test_kubevirt_would_crash_on_features_without_cpu() -> None:
    with pytest.raises(Crash, match="KubeVirt would crash"):
        domain({}, cpu={"preferredCPUFeatures": [{"name": "vmx"}]})


BOOLEANS = {
    "preferredAutoattachGraphicsDevice": "autoattachGraphicsDevice",
    "preferredAutoattachMemBalloon": "autoattachMemBalloon",
    "preferredAutoattachPodInterface": "autoattachPodInterface",
    "preferredAutoattachSerialConsole": "autoattachSerialConsole",
    "preferredAutoattachInputDevice": "autoattachInputDevice",
    "preferredUseVirtioTransitional": "useVirtioTransitional",
    "preferredBlockMultiQueue": "blockMultiQueue",
    "preferredNetworkInterfaceMultiQueue": "networkInterfaceMultiqueue",
}


@pytest.mark.parametrize(("preferred", "name"), BOOLEANS.items())
def test_switches(preferred: str, name: str) -> None:
    assert devices({}, **{preferred: False}) == {name: False}
    assert devices({name: True}, **{preferred: False}) == {name: True}


def test_disable_hotplug_overwrites() -> None:
    assert devices({"disableHotplug": True}, preferredDisableHotplug=False) == {}
    assert devices({}, preferredDisableHotplug=True) == {"disableHotplug": True}
    assert devices({"disableHotplug": True}) == {"disableHotplug": True}


@pytest.mark.parametrize(
    ("given", "preferred", "result"),
    [
        ({}, {"preferredSoundModel": "ich9"}, {}),
        ({"sound": {"name": "s"}}, {"preferredSoundModel": "ich9"}, {"sound": {"name": "s", "model": "ich9"}}),
        (
            {"sound": {"name": "s", "model": "ac97"}},
            {"preferredSoundModel": "ich9"},
            {"sound": {"name": "s", "model": "ac97"}},
        ),
        ({}, {"preferredRng": {}}, {"rng": {}}),
        ({}, {"preferredTPM": {"persistent": True}}, {"tpm": {"persistent": True}}),
        ({"tpm": {"enabled": False}}, {"preferredTPM": {"persistent": True}}, {"tpm": {"enabled": False}}),
        ({}, {"preferredVideoType": "virtio"}, {"video": {"type": "virtio"}}),
        ({"video": {"type": "vga"}}, {"preferredVideoType": "virtio"}, {"video": {"type": "vga"}}),
        ({}, {"preferredVideoType": ""}, {"video": {}}),
        ({}, {"preferredPanicDeviceModel": "isa"}, {"panicDevices": [{"model": "isa"}]}),
        (
            {"panicDevices": [{}, {"model": "hyperv"}]},
            {"preferredPanicDeviceModel": "isa"},
            {"panicDevices": [{"model": "isa"}, {"model": "hyperv"}]},
        ),
        ({"panicDevices": [{}]}, {}, {"panicDevices": [{}]}),
        (
            {"inputs": [{"name": "a", "type": "keyboard"}, {"name": "b", "bus": "usb"}]},
            {"preferredInputBus": "virtio", "preferredInputType": "tablet"},
            {
                "inputs": [
                    {"name": "a", "type": "keyboard", "bus": "virtio"},
                    {"name": "b", "type": "tablet", "bus": "usb"},
                ]
            },
        ),
        ({"inputs": [{"name": "a"}]}, {}, {"inputs": [{"name": "a", "type": ""}]}),
        ({}, {"preferredVirtualGPUOptions": {"display": {}}}, {}),
    ],
)
def test_devices(given: dict[str, Any], preferred: dict[str, Any], result: dict[str, Any]) -> None:
    assert devices(given, **preferred) == result


def test_disks() -> None:
    size = {"custom": {"logical": 512, "physical": 512}}
    disks = [
        {"name": "none"},
        {"name": "mine", "disk": {"bus": "sata"}, "cache": "none", "io": "native", "blockSize": {"matchVolume": {}}},
        {"name": "cd", "cdrom": {}},
        {"name": "lun", "lun": {"bus": "sata"}},
        {"name": "slow", "disk": {}, "dedicatedIOThread": True},
    ]
    preferred = {
        "preferredDiskBus": "virtio",
        "preferredCdromBus": "scsi",
        "preferredLunBus": "virtio",
        "preferredDiskCache": "writeback",
        "preferredDiskIO": "threads",
        "preferredDiskBlockSize": size,
        "preferredDiskDedicatedIoThread": False,
    }
    rest = {"cache": "writeback", "io": "threads", "blockSize": size}

    assert devices({"disks": disks}, **preferred)["disks"] == [
        {"name": "none", "disk": {"bus": "virtio"}, **rest, "dedicatedIOThread": False},
        disks[1],
        {"name": "cd", "cdrom": {"bus": "scsi"}},
        {"name": "lun", "lun": {"bus": "sata"}},
        {"name": "slow", "disk": {"bus": "virtio"}, **rest, "dedicatedIOThread": True},
    ]


def test_a_disk_gets_a_target_only_where_the_preference_speaks_of_devices() -> None:
    assert devices({"disks": [{"name": "a"}]}) == {"disks": [{"name": "a", "disk": {}}]}
    assert domain({"devices": {"disks": [{"name": "a"}]}})["devices"] == {"disks": [{"name": "a"}]}


def test_interfaces() -> None:
    interfaces = [
        {"name": "pod"},
        {"name": "second"},
        {"name": "bound", "binding": {"name": "passt"}, "model": "e1000"},
        {"name": "nowhere"},
        {"name": "sriov", "sriov": {}},
    ]
    networks = [
        {"name": "pod", "pod": {}},
        {"name": "second", "multus": {"networkName": "n"}},
        {"name": "second", "pod": {}},
        {"name": "bound", "pod": {}},
        {"name": "sriov", "pod": {}},
    ]
    preferred = {"preferredInterfaceModel": "virtio", "preferredInterfaceMasquerade": {}}
    spec, _ = applied(
        {"domain": {"devices": {"interfaces": interfaces}}, "networks": networks}, None, {"devices": preferred}
    )

    assert spec["domain"]["devices"]["interfaces"] == [
        {"name": "pod", "model": "virtio", "masquerade": {}},
        {"name": "second", "model": "virtio"},
        interfaces[2],
        {"name": "nowhere", "model": "virtio"},
        {"name": "sriov", "sriov": {}, "model": "virtio"},
    ]


def test_features() -> None:
    preferred = {
        "preferredAcpi": {"enabled": False},
        "preferredApic": {"endOfInterrupt": True},
        "preferredKvm": {"hidden": True},
        "preferredPvspinlock": {},
        "preferredSmm": {},
        "preferredHyperv": {"evmcs": {}, "ipi": {}},
    }
    given = {"acpi": {"enabled": True}, "smm": {"enabled": False}, "hyperv": {"evmcs": {"enabled": False}}}

    assert domain({"features": given}, features=preferred)["features"] == {
        "acpi": {"enabled": False},
        "apic": {"endOfInterrupt": True},
        "kvm": {"hidden": True},
        "pvspinlock": {},
        "smm": {"enabled": False},
        "hyperv": {"evmcs": {"enabled": False}, "ipi": {}},
    }
    assert domain({}, features={}) == {"features": {"acpi": {}}}


@pytest.mark.parametrize(
    ("given", "preferred", "bootloader"),
    [
        ({}, {}, {}),
        ({}, {"preferredUseBios": True, "preferredUseBiosSerial": True}, {"bios": {"useSerial": True}}),
        ({}, {"preferredUseBios": False, "preferredUseBiosSerial": True}, {}),
        ({"bios": {"useSerial": False}}, {"preferredUseBiosSerial": True}, {"bios": {"useSerial": False}}),
        ({"efi": {}}, {"preferredUseBios": True}, {"efi": {}}),
        ({"bios": {}}, {"preferredUseEfi": True, "preferredUseSecureBoot": True}, {"bios": {}}),
        ({}, {"preferredUseEfi": True, "preferredUseSecureBoot": True}, {"efi": {"secureBoot": True}}),
        ({}, {"preferredUseSecureBoot": True}, {}),
        ({}, {"preferredEfi": {"persistent": True}, "preferredUseSecureBoot": True}, {"efi": {"persistent": True}}),
        ({"efi": {}}, {"preferredEfi": {}, "preferredUseSecureBoot": True}, {"efi": {"secureBoot": True}}),
        ({"efi": {"secureBoot": False}}, {"preferredUseSecureBoot": True}, {"efi": {"secureBoot": False}}),
        ({"bios": {}}, {"preferredEfi": {}}, {"bios": {}}),
        ({}, {"preferredUseBios": True, "preferredEfi": {}}, {"bios": {}}),
    ],
)
def test_firmware(given: dict[str, Any], preferred: dict[str, Any], bootloader: dict[str, Any]) -> None:
    assert domain({"firmware": {"bootloader": given}}, firmware=preferred)["firmware"] == {"bootloader": bootloader}
    if not given:
        assert domain({}, firmware=preferred)["firmware"] == {"bootloader": bootloader}


@pytest.mark.parametrize(
    ("given", "preferred", "clock"),
    [
        ({}, {"preferredClockOffset": {"timezone": "UTC"}}, {"timezone": "UTC"}),
        ({"utc": {}}, {"preferredClockOffset": {"timezone": "UTC"}}, {"utc": {}}),
        ({"timezone": "CET"}, {"preferredClockOffset": {"utc": {}}}, {"timezone": "CET"}),
        ({"timer": {"hpet": {}}}, {"preferredTimer": {"rtc": {}}}, {"timer": {"hpet": {}}}),
        ({}, {"preferredTimer": {"rtc": {}}}, {"timer": {"rtc": {}}}),
    ],
)
def test_clock(given: dict[str, Any], preferred: dict[str, Any], clock: dict[str, Any]) -> None:
    assert domain({"clock": given}, clock=preferred)["clock"] == clock
    assert applied({}, None, {"clock": {}})[0]["domain"]["clock"] == {}


def test_the_rest() -> None:
    preferred = {
        "machine": {"preferredMachineType": "pc"},
        "preferredSubdomain": "p",
        "preferredTerminationGracePeriodSeconds": 5,
        "preferredArchitecture": "arm64",
        "preferredLaunchSecurity": {"tdx": {}},
        "annotations": {"a": "p", "b": "p"},
    }
    annotations = {"a": "mine"}
    spec, _ = applied({}, None, preferred, annotations)
    mine = {
        "subdomain": "m",
        "terminationGracePeriodSeconds": 0,
        "architecture": "s390x",
        "domain": {"machine": {"type": "q35"}, "launchSecurity": {"sev": {}}},
    }
    kept, _ = applied(mine, None, preferred)

    assert annotations == {"a": "mine", "b": "p"}
    assert (spec["subdomain"], spec["terminationGracePeriodSeconds"], spec["architecture"]) == ("p", 5, "arm64")
    assert spec["domain"]["machine"] == {"type": "pc"}
    assert spec["domain"]["launchSecurity"] == {"tdx": {}}
    assert {**kept, "domain": {key: kept["domain"][key] for key in mine["domain"]}} == mine  # type: ignore[attr-defined]
    assert "architecture" not in applied({}, None, {"preferredArchitecture": ""})[0]


def test_storage_class() -> None:
    templates: list[dict[str, Any]] = [
        {"spec": {"pvc": {}, "storage": {}}},
        {"spec": {"storage": {"storageClassName": ""}}},
        {"spec": {}},
    ]
    storage_class({"volumes": {"preferredStorageClassName": "fast"}}, templates)
    storage_class({}, templates)

    assert templates == [
        {"spec": {"pvc": {"storageClassName": "fast"}, "storage": {"storageClassName": "fast"}}},
        {"spec": {"storage": {"storageClassName": ""}}},
        {"spec": {}},
    ]


def test_a_preferred_grace_period_of_zero_is_one() -> None:
    spec, _ = applied({"domain": {}}, preferred={"preferredTerminationGracePeriodSeconds": 0})

    assert spec["terminationGracePeriodSeconds"] == 0
