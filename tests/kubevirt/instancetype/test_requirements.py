from __future__ import annotations

import pytest

from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.preferences import check

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
        (
            {},
            None,
            3,
            short(2, 3, "sockets"),
            f"{BASE}cpu.sockets",
        ),
        (
            {"preferredCPUTopology": "preferCores"},
            None,
            3,
            short(2, 3, "cores"),
            f"{BASE}cpu.cores",
        ),
        (
            {"preferredCPUTopology": "threads"},
            None,
            3,
            short(2, 3, "threads"),
            f"{BASE}cpu.threads",
        ),
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
        (
            {"preferredCPUTopology": "spread", "spreadOptions": {"across": "x"}},
            None,
            1,
            short(0, 1, "x"),
            "",
        ),
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
    assert cause.as_json() == {
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
        None,
        {"cpu": {"preferredCPUTopology": "any"}, "requirements": {"cpu": {"guest": 1}}},
        {"domain": {"cpu": cpu}},
    )

    assert cause is not None
    assert short(0, 1, "cores, sockets and threads") in cause.what
