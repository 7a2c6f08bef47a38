"""What the recorded answers do not show of preferences (tests/vectors): names, crashes, amounts that wrap around."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.plain import as_json
from tests.kubevirt.samples import applied
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.preferences import check, check_divisible, divide
from webhook.kubevirt.rejection import Crash


def preferring(name: str | None, across: str | None = None, ratio: int | None = None, old: int = 0) -> dict[str, Any]:
    options = {key: value for key, value in (("across", across), ("ratio", ratio)) if value is not None}
    cpu = {"spreadOptions": options} | ({"preferredCPUTopology": name} if name is not None else {})
    return {"cpu": cpu, "preferSpreadSocketToCoreRatio": old}


@pytest.mark.parametrize(
    ("guest", "preference", "parts"),
    [
        (4, preferring(None), (4, 1, 1)),
        *((4, preferring(name), (4, 1, 1)) for name in ("sockets", "preferSockets", "any", "preferAny")),
        *((4, preferring(name), (1, 4, 1)) for name in ("cores", "preferCores")),
        *((4, preferring(name), (1, 1, 4)) for name in ("threads", "preferThreads")),
        *((1, preferring("spread", ratio=ratio), (1, 1, 1)) for ratio in (0, 2)),
        (0, None, (0, 1, 1)),
        (3, preferring("spread"), (1, 2, 1)),
        (8, preferring("preferSpread"), (4, 2, 1)),
        (8, preferring("spread", ratio=4, old=3), (2, 4, 1)),
        (9, preferring("spread", "CoresThreads", 3), (1, 3, 3)),
        (36, preferring("spread", "SocketsCoresThreads", 4), (4, 4, 2)),
        *((8, unknown, (1, 1, 1)) for unknown in (preferring("spread", "Everything"), preferring("round"))),
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
        *((3, preference, "") for preference in (None, preferring("cores"), preferring("spread", "Everything"))),
        (4, preferring("spread", old=3), f"are not divisible by the {RATIOS} 3 provided by the preference"),
        (3, preferring("spread", "CoresThreads"), f"are {THREADS} 2"),
        (6, preferring("spread", "SocketsCoresThreads", 4), f"are {THREADS} 2 and {RATIOS} 4"),
        (8, preferring("spread", "SocketsCoresThreads", 4), ""),
        (3, preferring("spread", "SocketsCoresThreads", 0), f"are {THREADS} 2 and {RATIOS} 0"),
    ],
)
def test_divisibility(guest: int, preference: dict[str, Any] | None, text: str) -> None:
    cause = check_divisible(guest, preference)
    assert (cause.what if cause else "") == (f"{guest} vCPUs provided by the instance type {text}" if text else "")
    assert cause is None or (cause.reason, cause.field) == ("FieldValueInvalid", "instancetype.spec.cpu.guest")


def domain(given: dict[str, Any], **preferred: Any) -> dict[str, Any]:
    """The parts of a domain that a preference has changed or kept."""
    result = applied({"domain": given}, None, preferred)[0]["domain"]
    return {key: value for key, value in result.items() if value != {}}


def test_cpu_features_are_added_by_name() -> None:
    features = [{"name": "vmx", "policy": "disable"}]
    preferred = {"preferredCPUFeatures": [{"name": "vmx"}, {"name": "aes"}, {"name": "aes"}]}
    added = [*features, {"name": "aes"}, {"name": "aes"}]

    assert domain({"cpu": {"features": features}}, cpu=preferred)["cpu"]["features"] == added
    assert domain({"cpu": {"cores": 1}}, cpu={"preferredCPUFeatures": []})["cpu"] == {"cores": 1}
    with pytest.raises(Crash, match=r"KubeVirt would crash; set spec.template.spec.domain.cpu"):
        domain({}, cpu=preferred)


@pytest.mark.parametrize(
    ("given", "preferred", "result"),
    [
        ({"sound": {"name": "s"}}, {"preferredSoundModel": "ich9"}, {"sound": {"name": "s", "model": "ich9"}}),
        ({}, {"preferredSoundModel": "ich9"}, {}),
        ({}, {"preferredVideoType": "virtio"}, {"video": {"type": "virtio"}}),
        ({"panicDevices": [{}]}, {"preferredPanicDeviceModel": "isa"}, {"panicDevices": [{"model": "isa"}]}),
        ({"disableHotplug": True}, {"preferredDisableHotplug": False}, {}),
        (
            {"inputs": [{"name": "a", "type": "keyboard"}, {"name": "b", "bus": "usb"}]},
            {"preferredInputType": "tablet"},
            {"inputs": [{"name": "a", "type": "keyboard"}, {"name": "b", "type": "tablet", "bus": "usb"}]},
        ),
        # A disk gets a target only where the preference speaks of devices.
        ({"disks": [{"name": "a"}]}, {}, {"disks": [{"name": "a", "disk": {}}]}),
    ],
)
def test_devices(given: dict[str, Any], preferred: dict[str, Any], result: dict[str, Any]) -> None:
    assert domain({"devices": given}, devices=preferred).get("devices", {}) == result


def test_interfaces() -> None:
    """Of several networks of a name the first counts."""
    interfaces = [
        {"name": "second"},
        {"name": "bound", "binding": {"name": "passt"}},
        {"name": "nowhere"},
        {"name": "pod"},
    ]
    networks = [
        {"name": "second", "multus": {"networkName": "n"}},
        *({"name": n, "pod": {}} for n in ("second", "bound", "pod")),
    ]
    template = {"domain": {"devices": {"interfaces": interfaces}}, "networks": networks}
    spec, _ = applied(template, None, {"devices": {"preferredInterfaceMasquerade": {}}})

    masqueraded = [each["name"] for each in spec["domain"]["devices"]["interfaces"] if "masquerade" in each]
    assert masqueraded == ["pod"]


def test_a_preferred_grace_period_of_zero_is_one() -> None:
    spec, _ = applied({"domain": {}}, preferred={"preferredTerminationGracePeriodSeconds": 0})
    assert spec["terminationGracePeriodSeconds"] == 0


def required(cpu: Json | None, guest: int = 9, **preference: Any) -> tuple[str, str]:
    """The sentence and the field of an unmet requirement of vCPUs."""
    spec = {"domain": {} if cpu is None else {"cpu": cpu}}
    cause = check(None, {"cpu": preference, "requirements": {"cpu": {"guest": guest}}}, spec)
    return (cause.what.removeprefix("failure checking preference requirements: "), cause.field) if cause else ("", "")


CPU = {"sockets": 2, "cores": 2, "threads": 2}
BASE = "spec.template.spec.domain.cpu"


@pytest.mark.parametrize(
    ("name", "across", "provided", "parts", "fields"),
    [
        ("preferCores", "", 2, "cores", "cores"),
        ("spread", "SocketsCores", 4, "SocketsCores", "sockets cores"),
        ("spread", "x", 0, "x", ""),
        ("any", "", 8, "cores, sockets and threads", "cores sockets threads"),
    ],
)
def test_vcpus(name: str, across: str, provided: int, parts: str, fields: str) -> None:
    options: Json = {"spreadOptions": {"across": across}} if across else {}
    text = (
        f"insufficient CPU resources of {provided} vCPU provided by VirtualMachine, "
        f"preference requires 9 vCPU provided as {parts}"
    )

    said = required(CPU, preferredCPUTopology=name, **options)
    assert said == (text, ", ".join(f"{BASE}.{part}" for part in fields.split()))


def test_odd_vcpus() -> None:
    assert required(CPU, preferredCPUTopology="x") == ("", "")
    said = required(None, 1)
    assert said == ("no CPU resources provided by VirtualMachine, preference requires 1 vCPU", BASE)
    # They wrap around at 32 bits.
    assert " 0 vCPU" in required({"sockets": 2**16, "cores": 2**16, "threads": 1}, 1, preferredCPUTopology="any")[0]


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
    assert check(None, wanted, {**spec, "architecture": "arm64"}) is check(None, None, {"domain": {}}) is None
    # An empty one can be required.
    empty = {"requirements": {"architecture": ""}}
    assert [check(None, empty, {**spec, "architecture": name}) is None for name in ("", "amd64")] == [True, False]
