from __future__ import annotations

from typing import Any

import pytest

from tests.placement.samples import kubevirt, vmi
from webhook.kubevirt.config import DEFAULTS
from webhook.placement.target_pods import (
    architecture_label,
    forbidden_labels,
    generated_labels,
    host_model_labels,
    is_emulated,
    is_sticky_label,
)

CROSS = kubevirt(featureGates=["CrossArchitectureVirtualization"])
STRICT = kubevirt(featureGates=["HypervStrictCheck"])
HYPERV = {
    "vpindex": {"enabled": True},
    "synic": {"enabled": False},
    "synictimer": {},
    "reset": None,
    "relaxed": {"enabled": True},
    "evmcs": {},
}


def required(domain: dict[str, Any], spec: dict[str, Any] | None = None, **status: Any) -> list[str]:
    return list(generated_labels(vmi(spec, domain, **status), DEFAULTS, {}))


def test_a_plain_vm_needs_nothing() -> None:
    assert required({}) == []
    assert required({"cpu": {"model": "host-passthrough"}, "launchSecurity": {}}) == []


def test_cpu_models_and_features() -> None:
    features = [
        {"name": "a"},
        {"name": "b", "policy": "require"},
        {"name": "c", "policy": ""},
        *({"name": policy, "policy": policy} for policy in ("forbid", "optional", "disable", "force")),
    ]
    labels = [f"cpu-feature.node.kubevirt.io/{name}" for name in "abc"]

    assert required({"cpu": {"model": "Westmere", "features": features}}) == [
        "cpu-model.node.kubevirt.io/Westmere",
        *labels,
    ]
    assert required({"cpu": {"model": "host-model", "features": features}}) == labels
    # Without a model KubeVirt looks at no features.
    assert required({"cpu": {"features": features}}) == []


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ({}, "kubevirt.io/cpumanager"),
        ({"cpumanager": "true"}, "cpumanager"),
        ({"kubevirt.io/cpumanager": "true", "cpumanager": "true"}, "kubevirt.io/cpumanager"),
    ],
)
def test_dedicated_cpus(source: dict[str, str], label: str) -> None:
    assert list(generated_labels(vmi(None, {"cpu": {"dedicatedCpuPlacement": True}}), DEFAULTS, source)) == [label]


def test_realtime() -> None:
    assert required({"cpu": {"realtime": {}}}) == ["kubevirt.io/realtime"]
    assert required({"cpu": {"realtime": None}}) == []


def test_the_machine_that_runs_counts() -> None:
    domain = {"machine": {"type": "q35"}}

    assert required(domain) == ["machine-type.node.kubevirt.io/q35"]
    assert required(domain, machine={"type": "pc-q35-9.6"}) == ["machine-type.node.kubevirt.io/pc-q35-9.6"]
    assert required(domain, machine={"type": ""}) == ["machine-type.node.kubevirt.io/q35"]


def test_hyperv_is_looked_at_only_if_strict() -> None:
    windows = vmi(None, {"features": {"hyperv": HYPERV}})

    assert list(generated_labels(windows, DEFAULTS, {})) == []
    assert list(generated_labels(windows, STRICT, {})) == [
        "hyperv.node.kubevirt.io/vpindex",
        "cpu-vendor.node.kubevirt.io/Intel",
    ]
    off = vmi(None, {"features": {"hyperv": {"evmcs": {"enabled": False}}}})
    assert list(generated_labels(off, STRICT, {})) == list(generated_labels(vmi(), STRICT, {})) == []


@pytest.mark.parametrize(
    ("domain", "needed"),
    [
        ({"cpu": {"features": [{"name": "invtsc", "policy": "require"}]}}, True),
        ({"cpu": {"features": [{"name": "invtsc", "policy": "force"}]}}, True),
        ({"cpu": {"features": [{"name": "invtsc"}]}}, False),
        ({"features": {"hyperv": {"reenlightenment": {"enabled": True}}}}, True),
        ({"features": {"hyperv": {"reenlightenment": {}}}}, False),
        ({}, False),
    ],
)
def test_tsc_frequency(domain: dict[str, Any], needed: bool) -> None:
    labels = ["scheduling.node.kubevirt.io/tsc-frequency-2100000000"] if needed else []

    assert required(domain, topologyHints={"tscFrequency": 2100000000}) == labels
    assert required(domain, topologyHints={"tscFrequency": -1}) == required(domain, topologyHints={}) == []


@pytest.mark.parametrize(
    ("security", "labels"),
    [
        ({"sev": {}}, ["sev"]),
        ({"sev": {"policy": {"encryptedState": True}}}, ["sev", "sev-es"]),
        ({"sev": {"policy": {"encryptedState": False}}}, ["sev"]),
        ({"snp": {}}, ["sev", "sev-snp"]),
        ({"tdx": {}}, ["tdx"]),
        ({}, []),
    ],
)
def test_launch_security(security: dict[str, Any], labels: list[str]) -> None:
    assert required({"launchSecurity": security}) == [f"kubevirt.io/{label}" for label in labels]


def test_secure_execution() -> None:
    assert required({"launchSecurity": {}}, {"architecture": "s390x"}) == ["kubevirt.io/s390-pv"]
    assert required({}, {"architecture": "s390x"}) == []


def test_architecture() -> None:
    arm = vmi({"architecture": "ARM64"})

    assert architecture_label(arm) == {"kubernetes.io/arch": "arm64"}
    assert architecture_label(vmi()) == {}
    assert is_emulated(arm, CROSS)
    assert not is_emulated(arm, DEFAULTS)
    assert list(generated_labels(arm, CROSS, {})) == ["kubevirt.io/vm-arch-ARM64"]
    # A VM without an architecture stays where its selectors tell it to be.
    assert not is_emulated(vmi(), CROSS)
    assert list(generated_labels(vmi(), CROSS, {})) == []


def test_what_nodes_must_not_have() -> None:
    obsolete = "node-labeller.kubevirt.io/obsolete-host-model"
    forbidden = [{"name": "svm", "policy": "forbid"}]

    assert (
        list(forbidden_labels(vmi()))
        == list(forbidden_labels(vmi(None, {"cpu": {"model": "host-model"}})))
        == [obsolete]
    )
    assert list(forbidden_labels(vmi(None, {"cpu": {"model": "Westmere", "features": forbidden}}))) == [
        "cpu-feature.node.kubevirt.io/svm"
    ]


def test_a_hosts_own_cpu() -> None:
    labels = {
        "host-model-required-features.node.kubevirt.io/vmx": "true",
        "host-model-required-features.node.kubevirt.io/by-hand": "yes",
        "host-model-cpu.node.kubevirt.io/Skylake": "true",
        "cpu-model.node.kubevirt.io/Westmere": "true",
    }

    assert host_model_labels(labels) == {
        "cpu-model-migration.node.kubevirt.io/Skylake": "true",
        "cpu-feature.node.kubevirt.io/by-hand": "yes",
        "cpu-feature.node.kubevirt.io/vmx": "true",
    }


def test_without_its_model_a_host_has_no_features_either() -> None:
    assert host_model_labels({"host-model-required-features.node.kubevirt.io/vmx": "true"}) == {}


@pytest.mark.parametrize(
    ("key", "copied"),
    [
        ("cpu-feature.node.kubevirt.io/vmx", True),
        ("cpu-model-migration.node.kubevirt.io/Skylake", True),
        ("my.cpu-feature.node.kubevirt.io/x", True),
        ("host-model-required-features.node.kubevirt.io/vmx", False),
        ("cpu-model.node.kubevirt.io/Skylake", False),
        ("zone", False),
    ],
)
def test_what_later_migrations_inherit(key: str, copied: bool) -> None:
    assert is_sticky_label(key) is copied
