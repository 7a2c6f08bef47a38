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
from webhook.placement.requirements import Label
from webhook.placement.target_pods import target_pod_requirements

TDX, IOMMUFD = "devices.kubevirt.io/tdx", "devices.kubevirt.io/iommufd"
INTEL = "cpu-vendor.node.kubevirt.io/Intel"


def kubevirt(version: str, *gates: str, **more: Any) -> ClusterConfig:
    parsed = parse_version(version)
    assert parsed
    configuration = {"developerConfiguration": {"featureGates": list(gates)}, **more}
    return ClusterConfig.of(configuration, rules=rules_of(release_of(parsed)))


def vmi(domain: dict[str, Any] | None = None, **spec: Any) -> Vmi:
    return convert_to_view(Vmi, {"spec": {"domain": domain or {}, **spec}, "status": {"nodeName": "n1"}}, "")


def compute(resources: Any) -> LauncherPod:
    return convert_to_view(LauncherPod, {"spec": {"containers": [{"name": "compute", "resources": resources}]}}, "")


def labels(machine: Vmi, settings: ClusterConfig) -> set[str]:
    source = node("n1", {INTEL: "true"})
    asked = target_pod_requirements(machine, source_node=source, configuration=settings)
    return {each.expression.key for each in asked if isinstance(each, Label)}


@pytest.mark.parametrize(
    ("version", "kept"), [("1.6.3", False), ("1.6.4", True), ("1.7.0", False), ("1.7.1", True), ("1.9", True)]
)
def test_the_vendor_of_the_cpu(version: str, kept: bool) -> None:
    assert (INTEL in labels(vmi(), kubevirt(version))) is kept


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


RESERVED = {"memory": {"guest": "1Gi", "reservedOverhead": {"addedOverhead": "1Mi"}}}


@pytest.mark.parametrize(
    ("domain", "version", "gates", "resource", "requested"),
    [
        ({"launchSecurity": {"tdx": {}}}, "1.8", (), TDX, None),
        ({"launchSecurity": {"tdx": {}}}, "1.9", (), TDX, 1),
        ({}, "1.8", ("IOMMUFD",), IOMMUFD, None),
        ({}, "1.9", ("IOMMUFD",), IOMMUFD, 1),
        ({}, "1.9", (), IOMMUFD, None),
        (RESERVED, "1.7", (), "memory", 2**30),
        (RESERVED, "1.8", (), "memory", 2**30 + 2**20),
    ],
)
def test_what_is_requested(
    domain: Any, version: str, gates: tuple[str, ...], resource: str, requested: int | None
) -> None:
    assert target_pod_demand(vmi(domain), configuration=kubevirt(version, *gates)).requests.get(resource) == requested


@pytest.mark.parametrize(
    ("version", "gates", "devices"), [("1.8", (), set()), ("1.9", (), {TDX}), ("1.9", ("IOMMUFD",), {TDX, IOMMUFD})]
)
def test_devices_that_the_present_pod_got_by_other_settings(
    version: str, gates: tuple[str, ...], devices: set[str]
) -> None:
    """A pod of a newer KubeVirt, or from before a gate was closed: the target pod is made by what counts now."""
    resources = {"requests": {"memory": "2Gi", TDX: "1", IOMMUFD: "1"}}
    machine, settings = vmi({"launchSecurity": {"tdx": {}}}), kubevirt(version, *gates)

    assert (
        target_pod_demand(machine, compute(resources), configuration=settings).requests.keys() & {TDX, IOMMUFD}
        == devices
    )


def test_a_device_that_the_owner_requests_stays() -> None:
    own = {"requests": {IOMMUFD: "1"}}

    assert IOMMUFD in target_pod_demand(vmi({"resources": own}), compute(own), configuration=kubevirt("1.9")).requests


def test_hypervisors_are_configured_since_1_8() -> None:
    for version, needs in (("1.7", True), ("1.8", False)):
        found = kubevirt(version, "ConfigurableHypervisor", hypervisors=[{"name": "hyperv-direct"}])
        assert found.needs_kvm is needs


@pytest.mark.parametrize(
    ("backup", "runs"),
    [(None, False), ({}, False), ({"backupName": "b"}, True), ({"backupName": "b", "completed": True}, False)],
)
def test_backups(backup: Any, runs: bool) -> None:
    assert convert_to_view(Vmi, {"status": {"changedBlockTracking": {"backupStatus": backup}}}, "").is_backed_up is runs
