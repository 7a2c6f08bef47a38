"""The node labels that KubeVirt requires for a VMI by itself (pkg/virt-controller/services/nodeselectorrenderer.go)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import SELECTS_SNP_AND_TDX_NODES
from webhook.kubevirt.releases.release import Release
from webhook.placement.guest import NO_CPU, Cpu, FeatureState, LaunchSecurity
from webhook.placement.labels import starting_with
from webhook.placement.vmis import HOST_MODEL, Vmi

TRUE: Final = "true"
ARCHITECTURE: Final = "kubernetes.io/arch"
CPU_FEATURE: Final = "cpu-feature.node.kubevirt.io/"
CPU_MODEL: Final = "cpu-model.node.kubevirt.io/"
CPU_MODEL_MIGRATION: Final = "cpu-model-migration.node.kubevirt.io/"
CPU_VENDOR: Final = "cpu-vendor.node.kubevirt.io/"
HOST_MODEL_CPU: Final = "host-model-cpu.node.kubevirt.io/"
HOST_MODEL_FEATURES: Final = "host-model-required-features.node.kubevirt.io/"
HYPERV: Final = "hyperv.node.kubevirt.io/"
MACHINE_TYPE: Final = "machine-type.node.kubevirt.io/"
TSC_FREQUENCY: Final = "scheduling.node.kubevirt.io/tsc-frequency-"
OBSOLETE_HOST_MODEL: Final = "node-labeller.kubevirt.io/obsolete-host-model"
CPU_MANAGER: Final = "kubevirt.io/cpumanager"
CPU_MANAGER_BEFORE: Final = "cpumanager"  # until KubeVirt 1.7
VM_ARCHITECTURE: Final = "kubevirt.io/vm-arch-"

_HOST_PASSTHROUGH: Final = "host-passthrough"
_CROSS_ARCHITECTURE: Final = "CrossArchitectureVirtualization"
_HYPERV_STRICT: Final = "HypervStrictCheck"
_SECURE_EXECUTION_ARCHITECTURE: Final = "s390x"
_HYPERV_LABELS: Final = (
    *("vpindex", "runtime", "reset", "synic", "synictimer"),
    *("frequencies", "reenlightenment", "tlbflush", "ipi"),
)


def architecture(vmi: Vmi) -> dict[str, str]:
    """The guest's architecture, which the cluster's and the VM's own selectors may overwrite."""
    guest = _guest(vmi)
    return {ARCHITECTURE: guest.lower()} if guest else {}


def is_emulated(vmi: Vmi, configuration: ClusterConfig) -> bool:
    """Whether nodes of any architecture will do; then KubeVirt drops that label, even if the VM's owner requires it."""
    named = vmi.spec is not None and bool(vmi.spec.architecture)
    return named and configuration.is_gate_open(_CROSS_ARCHITECTURE)


def keys(vmi: Vmi, configuration: ClusterConfig, source: Mapping[str, str]) -> list[str]:
    """The labels that must be ``true``; they overwrite the VM's own.

    Args:
        vmi: the VMI that is placed.
        configuration: the cluster's configuration of KubeVirt.
        source: the node selector of the VM's present pod, by which older and newer releases of KubeVirt are
            distinguished.
    """
    domain = vmi.domain
    cpu, security, machine = domain.cpu or NO_CPU, domain.launch_security, vmi.machine_type
    hyperv = (domain.features.hyperv if domain.features else None) or {}
    labels = []
    if cpu.dedicated_cpu_placement:
        older = CPU_MANAGER_BEFORE in source and CPU_MANAGER not in source
        labels.append(CPU_MANAGER_BEFORE if older else CPU_MANAGER)
    if hyperv and configuration.is_gate_open(_HYPERV_STRICT):
        labels += _hyperv(hyperv)
    if cpu.model:
        if cpu.model not in {HOST_MODEL, _HOST_PASSTHROUGH}:
            labels.append(CPU_MODEL + cpu.model)
        if cpu.features:
            labels += [CPU_FEATURE + name for name in cpu.features_with("", "require")]
    if machine:
        labels.append(MACHINE_TYPE + machine)
    hints = vmi.status.topology_hints if vmi.status else None
    if hints and (frequency := _tsc_frequency(cpu, hyperv, hints.tsc_frequency)):
        labels.append(f"{TSC_FREQUENCY}{frequency}")
    if cpu.realtime is not None:
        labels.append("kubevirt.io/realtime")
    if security:
        labels += _launch_security(security, _guest(vmi), configuration.release)
    if is_emulated(vmi, configuration):
        labels.append(VM_ARCHITECTURE + _guest(vmi))
    return labels


def forbidden_labels(vmi: Vmi) -> list[str]:
    """The labels that a node must not have; KubeVirt appends them to every term of the node affinity."""
    cpu = vmi.cpu
    labels = [OBSOLETE_HOST_MODEL] if cpu.model in {None, "", HOST_MODEL} else []
    if cpu.features:
        labels += [CPU_FEATURE + name for name in cpu.features_with("forbid")]
    return labels


def host_model(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that other nodes need to run the CPU model of a node, sorted.

    Empty where the node's labels do not name its model: KubeVirt then loses the features too.
    """
    models = starting_with(labels, HOST_MODEL_CPU, CPU_MODEL_MIGRATION)
    return models | starting_with(labels, HOST_MODEL_FEATURES, CPU_FEATURE) if models else {}


def is_sticky(key: str) -> bool:
    """Whether KubeVirt copies this key of a host-model VM's pod into the pods of all later migrations."""
    return CPU_FEATURE in key or CPU_MODEL_MIGRATION in key


def _guest(vmi: Vmi) -> str:
    return (vmi.spec.architecture if vmi.spec else None) or ""


def _hyperv(features: Mapping[str, FeatureState | None]) -> Iterator[str]:
    for name in _HYPERV_LABELS:
        state = features.get(name)
        if state and state.enabled:
            yield HYPERV + name
    evmcs = features.get("evmcs")
    if evmcs and evmcs.enabled is not False:
        yield f"{CPU_VENDOR}Intel"


def _tsc_frequency(cpu: Cpu, hyperv: Mapping[str, FeatureState | None], frequency: int | None) -> int:
    """In Hz; 0: no node must have a certain one."""
    reenlightenment = hyperv.get("reenlightenment")
    needed = "invtsc" in cpu.features_with("require", "force") or (reenlightenment and reenlightenment.enabled)
    return max(frequency or 0, 0) if needed else 0


def _launch_security(security: LaunchSecurity, guest: str, release: Release) -> Iterator[str]:
    newer = release.has(SELECTS_SNP_AND_TDX_NODES)
    has_snp, has_tdx = newer and security.snp is not None, newer and security.tdx is not None
    if security.sev or has_snp:
        yield "kubevirt.io/sev"
    if security.sev and security.sev.policy and security.sev.policy.encrypted_state:
        yield "kubevirt.io/sev-es"
    if has_snp:
        yield "kubevirt.io/sev-snp"
    if guest == _SECURE_EXECUTION_ARCHITECTURE:
        yield "kubevirt.io/s390-pv"
    if has_tdx:
        yield "kubevirt.io/tdx"
