"""What the recorded answers do not show of instancetypes and preferences (tests/vectors): names, crashes, amounts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.plain import as_json
from tests.kubevirt.samples import applied
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.preferences import check_divisible, check_requirements, divide
from webhook.kubevirt.rejection import Cause, Conflicts, Crash
from webhook.kubevirt.webhooks import deny

WANTED: dict[str, Any] = {
    "cpu": {"guest": 4, "model": "Haswell", "dedicatedCPUPlacement": True},
    "memory": {"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}, "maxGuest": "8Gi", "overcommitPercent": 15},
    "schedulerName": "s",
    "gpus": [{"name": "g", "deviceName": "d"}],
}


@pytest.mark.parametrize(
    ("template", "paths"),
    [
        (
            {"domain": {"cpu": {"model": "m", "dedicatedCpuPlacement": True}}},
            ["cpu.model", "cpu.dedicatedCPUPlacement"],
        ),
        # Only the first of the memory fields counts.
        ({"domain": {"memory": {"guest": "1Gi", "maxGuest": "1Gi"}}}, ["memory.guest"]),
        ({"domain": {"memory": {"hugepages": {}, "maxGuest": "1Gi"}}}, ["memory.hugepages"]),
        ({"domain": {"devices": {"gpus": [{"name": "x"}]}, "cpu": {"cores": 1}}}, ["cpu.cores", "devices.gpus"]),
        ({"domain": {"cpu": {"sockets": 0, "model": "", "maxSockets": 1}, "devices": {"gpus": []}}}, []),
    ],
)
def test_conflicts_in_kubevirts_order(template: dict[str, Any], paths: list[str]) -> None:
    spec, conflicts = applied(template, WANTED, {"preferredSubdomain": "x"})
    assert [conflict.field for conflict in conflicts] == [f"spec.template.spec.domain.{path}" for path in paths]
    # A preference waits for an instancetype without conflicts.
    assert ("subdomain" in spec) is not bool(paths)


def test_sentences_and_an_overcommit_of_one_percent() -> None:
    _, conflicts = applied({"schedulerName": "s", "domain": {"cpu": {"cores": 1}}}, WANTED)
    paths = "spec.template.spec.schedulerName, spec.template.spec.domain.cpu.cores"
    sentence = f"VM field(s) {paths} conflicts with selected instance type"
    assert str(Conflicts(conflict.field for conflict in conflicts)) == sentence
    assert as_json(conflicts[0]) == {
        "reason": "FieldValueInvalid",
        "message": "VM field(s) spec.template.spec.schedulerName conflicts with selected instance type",
        "field": "spec.template.spec.schedulerName",
    }
    denied = deny(conflicts * 6)
    assert (len(denied.causes), denied.message.endswith(", and 2 more validation errors")) == (10, True)
    assert "more" not in deny(conflicts * 5).message
    assert deny([*(conflicts * 5), conflicts[0]]).message.endswith(", and 1 more validation errors")
    spec, _ = applied({"domain": {}}, {"memory": {"guest": "100M", "overcommitPercent": 1}})
    assert spec["domain"]["resources"] == {"requests": {"memory": "99M"}}


def preferring(name: str | None, across: str | None = None, ratio: int | None = None, old: int = 0) -> dict[str, Any]:
    options = {key: value for key, value in (("across", across), ("ratio", ratio)) if value is not None}
    cpu = {"spreadOptions": options} | ({"preferredCPUTopology": name} if name is not None else {})
    return {"cpu": cpu, "preferSpreadSocketToCoreRatio": old}


@pytest.mark.parametrize("across", ["SocketsCores", "CoresThreads", "SocketsCoresThreads"])
def test_kubevirt_would_divide_by_zero(across: str) -> None:
    with pytest.raises(Crash, match="ratio of 0"):
        divide(2, preferring("spread", across, 0))
    with pytest.raises(Crash):
        check_divisible(2, preferring("spread", across, 0))


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


def test_a_preferred_grace_period_of_zero_is_one() -> None:
    spec, _ = applied({"domain": {}}, preferred={"preferredTerminationGracePeriodSeconds": 0})
    assert spec["terminationGracePeriodSeconds"] == 0


def required(cpu: Json | None, guest: int = 9, **preference: Any) -> tuple[str, str]:
    """The sentence and the field of an unmet requirement of vCPUs."""
    spec = {"domain": {} if cpu is None else {"cpu": cpu}}
    try:
        check_requirements(None, {"cpu": preference, "requirements": {"cpu": {"guest": guest}}}, spec)
    except Cause as cause:
        return cause.what.removeprefix("failure checking preference requirements: "), cause.field
    return "", ""


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
