"""The features of a domain that KubeVirt completes when a VMI is created (KubeVirt, pkg/defaults/hyperv.go).

All functions change what they are given; see `instancetype`.
"""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.structs import Json

_SPINLOCK_RETRIES: Final = 4096
_VMX: Final = "vmx"
# Which feature needs which, in KubeVirt's order: a dependency may itself depend on one below.
_DEPENDENCIES: Final = (
    ("evmcs", "vapic"),
    ("ipi", "vpindex"),
    ("tlbflush", "vpindex"),
    ("synictimer", "synic"),
    ("synic", "vpindex"),
)


def enable(features: Json) -> None:
    """Every feature that is mentioned without saying whether it is enabled is; ACPI always."""
    hyperv = features.get("hyperv", {})
    states = [features.setdefault("acpi", {})]
    states += [features[name] for name in ("apic", "smm", "pvspinlock") if name in features]
    states += hyperv.values()
    for name, members in (("synictimer", ("direct",)), ("tlbflush", ("direct", "extended"))):
        states += [hyperv[name][member] for member in members if member in hyperv.get(name, {})]
    for state in states:
        state.setdefault("enabled", True)
    if hyperv.get("spinlocks", {}).get("enabled"):
        hyperv["spinlocks"].setdefault("spinlocks", _SPINLOCK_RETRIES)


def complete_hyperv(domain: Json) -> None:
    """Enable what enabled Hyper-V features need. One that is disabled on purpose ends the matter, as in KubeVirt."""
    hyperv = domain["features"].get("hyperv")
    if hyperv is None:
        return
    for feature, dependency in _DEPENDENCIES:
        if not hyperv.get(feature, {}).get("enabled"):
            continue
        if hyperv.setdefault(dependency, {}).setdefault("enabled", True) is False:
            return
    if hyperv.get("evmcs", {}).get("enabled", "evmcs" in hyperv):
        _require_vmx(domain.setdefault("cpu", {}))


def _require_vmx(cpu: Json) -> None:
    features = cpu.setdefault("features", [])
    for feature in features:
        if feature["name"] == _VMX:
            feature["policy"] = "require"
            return
    features.append({"name": _VMX, "policy": "require"})
