"""What a preference requires of a VM, checked when KubeVirt admits it (KubeVirt, pkg/preference/requirements)."""

from __future__ import annotations

from math import prod
from typing import Final

from webhook.k8s import quantity
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import cpu_topology
from webhook.kubevirt.instancetype.apply import TEMPLATE_BASE
from webhook.kubevirt.instancetype.conflict import Cause
from webhook.kubevirt.instancetype.cpu_topology import Topology

_INSTANCETYPE: Final = "spec.instancetype"
_SPREAD: Final = {
    cpu_topology.SOCKETS_CORES: ("sockets", "cores"),
    cpu_topology.CORES_THREADS: ("cores", "threads"),
    cpu_topology.SOCKETS_CORES_THREADS: ("sockets", "cores", "threads"),
}


def check(instancetype: Json | None, preference: Json | None, spec: Json) -> Cause | None:
    """The first requirement that is not met, in the order CPU, memory, architecture; None if all are.

    Args:
        instancetype: its spec, decoded; None for none.
        preference: its spec, decoded; None for none.
        spec: the spec of the VM's template, after both and KubeVirt's defaults were applied.
    """
    required = (preference or {}).get("requirements", {})
    failure = None
    if "cpu" in required:
        failure = _cpu(required["cpu"]["guest"], instancetype, preference, spec["domain"])
    if failure is None and "memory" in required:
        failure = _memory(required["memory"]["guest"], instancetype, spec["domain"])
    wanted, actual = required.get("architecture"), spec.get("architecture", "")
    if failure is None and wanted is not None and wanted != actual:
        text = f"preference requires architecture {wanted} but {actual} is being requested"
        failure = text, [f"{TEMPLATE_BASE}.architecture"]
    if failure is None:
        return None
    text, fields = failure
    return Cause("FieldValueNotFound", f"failure checking preference requirements: {text}", ", ".join(fields))


def _cpu(
    required: int, instancetype: Json | None, preference: Json | None, domain: Json
) -> tuple[str, list[str]] | None:
    if instancetype is not None:
        provided = instancetype["cpu"]["guest"]
        if provided >= required:
            return None
        text = f"insufficient CPU resources of {provided} vCPU provided by instance type, preference requires"
        return f"{text} {required} vCPU", [_INSTANCETYPE]
    if "cpu" not in domain:
        text = f"no CPU resources provided by VirtualMachine, preference requires {required} vCPU"
        return text, [f"{TEMPLATE_BASE}.domain.cpu"]
    parts, name = _parts(preference)
    if parts is None:
        return None
    # uint32 in Go, which wraps around.
    provided = prod(domain["cpu"].get(part, 0) for part in parts) % 2**32 if parts else 0
    if provided >= required:
        return None
    text = f"insufficient CPU resources of {provided} vCPU provided by VirtualMachine, preference requires"
    return f"{text} {required} vCPU provided as {name}", [f"{TEMPLATE_BASE}.domain.cpu.{part}" for part in parts]


def _parts(preference: Json | None) -> tuple[tuple[str, ...] | None, str]:
    """The parts of the topology that count, and their name; None where KubeVirt does not count at all."""
    wanted = cpu_topology.preferred_topology(preference)
    if wanted is None:
        return None, ""
    if wanted is Topology.SPREAD:
        across = cpu_topology.preferred_spread(preference).across
        return _SPREAD.get(across, ()), across
    if wanted is Topology.ANY:
        return ("cores", "sockets", "threads"), "cores, sockets and threads"
    return (wanted.value,), wanted.value


def _memory(required: str, instancetype: Json | None, domain: Json) -> tuple[str, list[str]] | None:
    provided, needed = (quantity.parse(text) for text in (domain.get("memory", {}).get("guest", "0"), required))
    if provided >= needed:
        return None
    source, field = "VirtualMachine", f"{TEMPLATE_BASE}.domain.memory"
    if instancetype is not None:
        source, field = "instance type", _INSTANCETYPE
    text = f"insufficient Memory resources of {provided} provided by {source}, preference requires {needed}"
    return text, [field]
