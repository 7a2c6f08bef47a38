"""Requirements on nodes of some releases of KubeVirt and not of others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.placement.samples import node
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of
from webhook.placement.demand import target_pod_demand
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import convert_to_view
from webhook.placement.requirements import Label, Origin
from webhook.placement.target_pods import target_pod_requirements

TDX, IOMMUFD = "devices.kubevirt.io/tdx", "devices.kubevirt.io/iommufd"
INTEL = "cpu-vendor.node.kubevirt.io/Intel"


def kubevirt(version: str, *gates: str) -> ClusterConfig:
    parsed = parse_version(version)
    assert parsed
    configuration = {"developerConfiguration": {"featureGates": list(gates)}}
    return ClusterConfig.of(configuration, rules=rules_of(release_of(parsed)))


def vmi(domain: dict[str, Any] | None = None, **spec: Any) -> Vmi:
    return convert_to_view(Vmi, {"spec": {"domain": domain or {}, **spec}, "status": {"nodeName": "n1"}}, "")


def labels(machine: Vmi, settings: ClusterConfig) -> set[str]:
    source = node("n1", {INTEL: "true"})
    asked = target_pod_requirements(machine, source_node=source, configuration=settings)
    return {each.expression.key for each in asked if isinstance(each, Label)}


@pytest.mark.parametrize(
    ("version", "kept"), [("1.6.3", False), ("1.6.4", True), ("1.7.0", False), ("1.7.1", True), ("1.9", True)]
)
def test_the_vendor_of_the_cpu(version: str, kept: bool) -> None:
    asked = target_pod_requirements(vmi(), source_node=node("n1", {INTEL: "true"}), configuration=kubevirt(version))

    assert any(each.origin == Origin.VENDOR for each in asked) is kept


@pytest.mark.parametrize(
    ("security", "label"), [("snp", "kubevirt.io/sev-snp"), ("snp", "kubevirt.io/sev"), ("tdx", "kubevirt.io/tdx")]
)
def test_nodes_for_snp_and_tdx(security: str, label: str) -> None:
    machine = vmi({"launchSecurity": {security: {}}})

    assert label not in labels(machine, kubevirt("1.6"))
    assert label in labels(machine, kubevirt("1.7"))


def test_other_architectures() -> None:
    machine, gate = vmi(architecture="arm64"), "CrossArchitectureVirtualization"

    assert "kubernetes.io/arch" in labels(machine, kubevirt("1.8", gate))
    assert "kubevirt.io/vm-arch-arm64" in labels(machine, kubevirt("1.9", gate))
    assert "kubevirt.io/vm-arch-arm64" not in labels(machine, kubevirt("1.9"))


@pytest.mark.parametrize(("version", "requested"), [("1.8", 0), ("1.9", 1)])
def test_the_device_of_tdx(version: str, requested: int) -> None:
    wanted = target_pod_demand(vmi({"launchSecurity": {"tdx": {}}}), configuration=kubevirt(version)).requests

    assert wanted.get("devices.kubevirt.io/tdx", 0) == requested


@pytest.mark.parametrize(
    ("version", "gates", "requested"), [("1.8", ("IOMMUFD",), 0), ("1.9", ("IOMMUFD",), 1), ("1.9", (), 0)]
)
def test_the_device_of_iommufd(version: str, gates: tuple[str, ...], requested: int) -> None:
    wanted = target_pod_demand(vmi(), configuration=kubevirt(version, *gates)).requests

    assert wanted.get("devices.kubevirt.io/iommufd", 0) == requested


@pytest.mark.parametrize(
    ("version", "gates", "devices"), [("1.8", (), set()), ("1.9", (), {TDX}), ("1.9", ("IOMMUFD",), {TDX, IOMMUFD})]
)
def test_devices_that_the_present_pod_got_by_other_settings(
    version: str, gates: tuple[str, ...], devices: set[str]
) -> None:
    """A pod of a newer KubeVirt, or from before a gate was closed: the target pod is made by what counts now."""
    resources = {"requests": {"memory": "2Gi", TDX: "1", IOMMUFD: "1"}}
    pod = convert_to_view(LauncherPod, {"spec": {"containers": [{"name": "compute", "resources": resources}]}}, "")

    wanted = target_pod_demand(
        vmi({"launchSecurity": {"tdx": {}}}), pod, configuration=kubevirt(version, *gates)
    ).requests

    assert wanted.keys() & {TDX, IOMMUFD} == devices


def test_a_device_that_the_owner_requests_stays() -> None:
    own = {"requests": {IOMMUFD: "1"}}
    pod = convert_to_view(LauncherPod, {"spec": {"containers": [{"name": "compute", "resources": own}]}}, "")

    assert IOMMUFD in target_pod_demand(vmi({"resources": own}), pod, configuration=kubevirt("1.9")).requests


@pytest.mark.parametrize(("version", "requested"), [("1.7", 2**30), ("1.8", 2**30 + 2**20)])
def test_the_reserved_overhead(version: str, requested: int) -> None:
    memory = {"guest": "1Gi", "reservedOverhead": {"addedOverhead": "1Mi"}}

    assert target_pod_demand(vmi({"memory": memory}), configuration=kubevirt(version)).requests["memory"] == requested


def test_hypervisors_are_configured_since_1_8() -> None:
    configuration = {
        "hypervisors": [{"name": "hyperv-direct"}],
        "developerConfiguration": {"featureGates": ["ConfigurableHypervisor"]},
    }
    for version, needs in (("1.7", True), ("1.8", False)):
        parsed = parse_version(version)
        assert parsed
        assert ClusterConfig.of(configuration, rules=rules_of(release_of(parsed))).needs_kvm is needs


@pytest.mark.parametrize(
    ("backup", "runs"),
    [(None, False), ({}, False), ({"backupName": "b"}, True), ({"backupName": "b", "completed": True}, False)],
)
def test_backups(backup: Any, runs: bool) -> None:
    assert convert_to_view(Vmi, {"status": {"changedBlockTracking": {"backupStatus": backup}}}, "").is_backed_up is runs
