from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.plain import as_json
from tests.kubevirt.samples import applied
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.preferences import check, check_divisible, divide, storage_class
from webhook.kubevirt.rejection import Crash


def preferring(name: str | None, across: str | None = None, ratio: int | None = None, old: int = 0) -> dict[str, Any]:
    options = {key: value for key, value in (("across", across), ("ratio", ratio)) if value is not None}
    cpu = {"preferredCPUTopology": name, "spreadOptions": options} if name is not None else {"spreadOptions": options}
    return {"cpu": cpu, "preferSpreadSocketToCoreRatio": old}


@pytest.mark.parametrize(
    ("guest", "preference", "parts"),
    [
        (4, None, (4, 1, 1)),
        (4, preferring(None), (4, 1, 1)),
        (4, preferring("sockets"), (4, 1, 1)),
        (4, preferring("preferSockets"), (4, 1, 1)),
        (4, preferring("any"), (4, 1, 1)),
        (4, preferring("preferAny"), (4, 1, 1)),
        (4, preferring("cores"), (1, 4, 1)),
        (4, preferring("preferCores"), (1, 4, 1)),
        (4, preferring("threads"), (1, 1, 4)),
        (4, preferring("preferThreads"), (1, 1, 4)),
        (1, preferring("cores"), (1, 1, 1)),
        (0, None, (0, 1, 1)),
        (1, preferring("spread", ratio=0), (1, 1, 1)),
        (3, preferring("spread"), (1, 2, 1)),
        (8, preferring("preferSpread"), (4, 2, 1)),
        (9, preferring("spread", old=3), (3, 3, 1)),
        (8, preferring("spread", ratio=4, old=3), (2, 4, 1)),
        (8, preferring("spread", "CoresThreads"), (1, 4, 2)),
        (9, preferring("spread", "CoresThreads", 3), (1, 3, 3)),
        (36, preferring("spread", "SocketsCoresThreads", 4), (4, 4, 2)),
        (8, preferring("spread", "Everything"), (1, 1, 1)),
        (8, preferring("round"), (1, 1, 1)),
        (8, preferring(""), (1, 1, 1)),
    ],
)
def test_dividing(guest: int, preference: dict[str, Any] | None, parts: tuple[int, int, int]) -> None:
    assert divide(guest, preference) == parts


@pytest.mark.parametrize("across", ["SocketsCores", "CoresThreads", "SocketsCoresThreads"])
def test_kubevirt_would_divide_by_zero(across: str) -> None:
    with pytest.raises(Crash, match="ratio of 0"):
        divide(2, preferring("spread", across, 0))
    with pytest.raises(Crash):
        check_divisible(2, preferring("spread", across, 0))


RATIOS = "Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of"
THREADS = "not divisible by the number of threads per core"


@pytest.mark.parametrize(
    ("guest", "preference", "text"),
    [
        (3, None, ""),
        (3, preferring("cores"), ""),
        (4, preferring("spread"), ""),
        (
            1,
            preferring("spread"),
            f"1 vCPUs provided by the instance type are not divisible by the {RATIOS} 2 provided by the preference",
        ),
        (
            4,
            preferring("spread", old=3),
            f"4 vCPUs provided by the instance type are not divisible by the {RATIOS} 3 provided by the preference",
        ),
        (3, preferring("spread", "CoresThreads"), f"3 vCPUs provided by the instance type are {THREADS} 2"),
        (4, preferring("spread", "CoresThreads"), ""),
        (
            5,
            preferring("spread", "SocketsCoresThreads"),
            f"5 vCPUs provided by the instance type are {THREADS} 2 and {RATIOS} 2",
        ),
        (
            6,
            preferring("spread", "SocketsCoresThreads", 4),
            f"6 vCPUs provided by the instance type are {THREADS} 2 and {RATIOS} 4",
        ),
        (8, preferring("spread", "SocketsCoresThreads", 4), ""),
        (
            3,
            preferring("spread", "SocketsCoresThreads", 0),
            f"3 vCPUs provided by the instance type are {THREADS} 2 and {RATIOS} 0",
        ),
        (3, preferring("spread", "Everything"), ""),
    ],
)
def test_divisibility(guest: int, preference: dict[str, Any] | None, text: str) -> None:
    cause = check_divisible(guest, preference)

    assert (cause.what if cause else "") == text
    assert cause is None or (cause.reason, cause.field) == ("FieldValueInvalid", "instancetype.spec.cpu.guest")


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


INSTANCETYPE = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}
CPU = {"sockets": 2, "cores": 2, "threads": 2}
BASE = "spec.template.spec.domain."


def short(provided: int, required: int, parts: str) -> str:
    return (
        f"insufficient CPU resources of {provided} vCPU provided by VirtualMachine, "
        f"preference requires {required} vCPU provided as {parts}"
    )


@pytest.mark.parametrize(
    ("cpu", "instancetype", "required", "text", "field"),
    [
        ({}, INSTANCETYPE, 2, "", ""),
        (
            {},
            INSTANCETYPE,
            3,
            "insufficient CPU resources of 2 vCPU provided by instance type, preference requires 3 vCPU",
            "spec.instancetype",
        ),
        ({}, None, 2, "", ""),
        ({}, None, 3, short(2, 3, "sockets"), f"{BASE}cpu.sockets"),
        ({"preferredCPUTopology": "preferCores"}, None, 3, short(2, 3, "cores"), f"{BASE}cpu.cores"),
        ({"preferredCPUTopology": "threads"}, None, 3, short(2, 3, "threads"), f"{BASE}cpu.threads"),
        ({"preferredCPUTopology": "spread"}, None, 4, "", ""),
        (
            {"preferredCPUTopology": "spread"},
            None,
            5,
            short(4, 5, "SocketsCores"),
            f"{BASE}cpu.sockets, {BASE}cpu.cores",
        ),
        (
            {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}},
            None,
            5,
            short(4, 5, "CoresThreads"),
            f"{BASE}cpu.cores, {BASE}cpu.threads",
        ),
        (
            {"preferredCPUTopology": "spread", "spreadOptions": {"across": "SocketsCoresThreads"}},
            None,
            9,
            short(8, 9, "SocketsCoresThreads"),
            f"{BASE}cpu.sockets, {BASE}cpu.cores, {BASE}cpu.threads",
        ),
        ({"preferredCPUTopology": "spread", "spreadOptions": {"across": "x"}}, None, 1, short(0, 1, "x"), ""),
        (
            {"preferredCPUTopology": "any"},
            None,
            9,
            short(8, 9, "cores, sockets and threads"),
            f"{BASE}cpu.cores, {BASE}cpu.sockets, {BASE}cpu.threads",
        ),
        ({"preferredCPUTopology": "x"}, None, 9, "", ""),
    ],
)
def test_cpu(cpu: Json, instancetype: Json | None, required: int, text: str, field: str) -> None:
    cause = check(instancetype, {"cpu": cpu, "requirements": {"cpu": {"guest": required}}}, {"domain": {"cpu": CPU}})

    assert (cause.what if cause else "") == (f"failure checking preference requirements: {text}" if text else "")
    assert (cause.field if cause else "") == field


def test_no_cpu_at_all() -> None:
    cause = check(None, {"requirements": {"cpu": {"guest": 1}}}, {"domain": {}})

    assert cause is not None
    assert "no CPU resources provided by VirtualMachine, preference requires 1 vCPU" in cause.what


@pytest.mark.parametrize(
    ("guest", "instancetype", "required", "text"),
    [
        ("1Gi", None, "1024Mi", ""),
        (
            "1Gi",
            None,
            "1025Mi",
            "insufficient Memory resources of 1Gi provided by VirtualMachine, preference requires 1025Mi",
        ),
        (None, None, "1", "insufficient Memory resources of 0 provided by VirtualMachine, preference requires 1"),
        (
            "1Gi",
            INSTANCETYPE,
            "2Gi",
            "insufficient Memory resources of 1Gi provided by instance type, preference requires 2Gi",
        ),
    ],
)
def test_memory(guest: str | None, instancetype: Json | None, required: str, text: str) -> None:
    memory = {} if guest is None else {"guest": guest}
    cause = check(instancetype, {"requirements": {"memory": {"guest": required}}}, {"domain": {"memory": memory}})

    assert (cause.what if cause else "") == (f"failure checking preference requirements: {text}" if text else "")
    assert cause is None or cause.field == ("spec.instancetype" if instancetype else f"{BASE}memory")


def test_architecture_comes_last() -> None:
    wanted = {"requirements": {"architecture": "arm64", "cpu": {"guest": 1}}}
    spec = {"architecture": "amd64", "domain": {"cpu": CPU}}
    cause = check(None, wanted, spec)

    assert cause is not None
    assert as_json(cause) == {
        "reason": "FieldValueNotFound",
        "message": "failure checking preference requirements: "
        "preference requires architecture arm64 but amd64 is being requested",
        "field": "spec.template.spec.architecture",
    }
    assert check(None, wanted, {**spec, "architecture": "arm64"}) is None
    assert check(None, None, {"domain": {}}) is None
    assert check(None, {"requirements": {"architecture": ""}}, {"domain": {}}) is None


def test_an_empty_architecture_can_be_required() -> None:
    wanted = {"requirements": {"architecture": ""}}

    assert check(None, wanted, {"architecture": "amd64", "domain": {}}) is not None


def test_vcpus_wrap_around_at_32_bits() -> None:
    cpu = {"sockets": 2**16, "cores": 2**16, "threads": 1}
    cause = check(
        None, {"cpu": {"preferredCPUTopology": "any"}, "requirements": {"cpu": {"guest": 1}}}, {"domain": {"cpu": cpu}}
    )

    assert cause is not None
    assert short(0, 1, "cores, sockets and threads") in cause.what
