"""What virt-api denies of an object before it looks anything up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.samples import instancetype, preference, vm
from webhook.kubevirt.admitters import causes_of
from webhook.kubevirt.rules import NEWEST

TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"runStrategy": "Always", "template": {}}}


def fields(kind: str, obj: Any) -> list[str]:
    return [cause.field for cause in causes_of(kind, obj, NEWEST)]


@pytest.mark.parametrize(
    ("spec", "denied"),
    [
        ({"running": False}, []),
        *(({"runStrategy": each}, []) for each in ("Always", "Halted", "Manual", "Once", "RerunOnFailure")),
        # A feature gate decides.
        ({"runStrategy": "WaitAsReceiver"}, []),
        ({"running": None, "runStrategy": None}, ["running"]),
        ({}, ["running"]),
        ({"running": False, "runStrategy": "Halted"}, ["running"]),
        ({"running": True, "runStrategy": "always"}, ["running", "runStrategy"]),
        ({"runStrategy": ""}, ["runStrategy"]),
    ],
)
def test_run_strategies(spec: Any, denied: list[str]) -> None:
    assert fields("VirtualMachine", vm(**spec)) == [f"spec.{each}" for each in denied]
    template = {"spec": {"template": {}, **spec}}
    pool = {"metadata": {}, "spec": {"selector": {}, "virtualMachineTemplate": template}}
    expected = [f"spec.virtualMachineTemplate.spec.{each}" for each in denied]
    assert fields("VirtualMachinePool", pool) == expected


@pytest.mark.parametrize("template", [{}, {"spec": None}, {"spec": {}}])
def test_a_pool_need_not_say_what_its_vms_are(template: Any) -> None:
    pool = {"metadata": {}, "spec": {"selector": {}, "virtualMachineTemplate": template}}
    assert fields("VirtualMachinePool", pool) == ["spec.virtualMachineTemplate.spec.running"]


def test_what_is_being_deleted_stays_as_it_is() -> None:
    dying = vm()
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert fields("VirtualMachine", dying) == []


@pytest.mark.parametrize(
    ("selector", "is_denied"),
    [
        ({}, False),
        ({"matchLabels": {"app": "a"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, False),
        ({"matchLabels": {"app": "b"}}, True),
        ({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}, True),
        # Kubernetes says something else of it.
        ({"matchExpressions": [{"key": "app", "operator": "Near"}]}, False),
    ],
)
def test_selectors(selector: Any, is_denied: bool) -> None:
    expected = ["spec.selector"] if is_denied else []
    spec = {"selector": selector, "virtualMachineTemplate": TEMPLATE, "template": TEMPLATE}
    for kind in ("VirtualMachinePool", "VirtualMachineInstanceReplicaSet"):
        assert fields(kind, {"metadata": {}, "spec": spec}) == expected


def test_a_template_without_labels() -> None:
    for metadata in ({}, {"metadata": None}, {"metadata": {"labels": None}}):
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {}, **metadata}}
        assert fields("VirtualMachineInstanceReplicaSet", {"metadata": {}, "spec": spec}) == ["spec.selector"]


def test_instancetypes_preferences_and_other_kinds() -> None:
    for kind in ("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"):
        bad = instancetype(kind, memory={"guest": "1Gi", "overcommitPercent": 101})
        assert fields(kind, bad) == ["spec.memory.overcommitPercent"]
        assert fields(kind, instancetype(kind)) == []
    for kind in ("VirtualMachinePreference", "VirtualMachineClusterPreference"):
        assert fields(kind, preference(cpu={"preferredCPUTopology": "near"})) == ["spec.cpu.preferredCPUTopology"]
    assert fields("VirtualMachineInstance", {"metadata": {}, "spec": {}}) == []
