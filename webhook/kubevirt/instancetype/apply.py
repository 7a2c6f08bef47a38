"""Applying an instancetype to a VMI's spec, or saying what is in its way (KubeVirt, pkg/instancetype/apply).

The functions here, in `preference` and in `defaults` change the spec that they are given: one step of many in `vmi`,
`expand` or `admission`, whose inputs are copies. Everything that they put into it is a copy, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from webhook.k8s import quantity
from webhook.k8s.quantity import Computed
from webhook.kubevirt.go_json.origins import Note, Origin, ignore
from webhook.kubevirt.go_json.structs import Json, copy_json
from webhook.kubevirt.instancetype import cpu_topology
from webhook.kubevirt.instancetype.conflict import Conflict
from webhook.kubevirt.preference import apply as preferences
from webhook.kubevirt.releases.capabilities import MEMORY_CONFLICT_PER_MEMBER
from webhook.kubevirt.rules import NEWEST, Rules

# Of a VM's template, and of a VMI.
TEMPLATE_BASE: Final = "spec.template.spec"
VMI_BASE: Final = "spec"

# By the instancetype's spelling, the VMI's.
_CPU_FIELDS: Final = {
    "model": "model",
    "dedicatedCPUPlacement": "dedicatedCpuPlacement",
    "isolateEmulatorThread": "isolateEmulatorThread",
    "numa": "numa",
    "realtime": "realtime",
}


def apply(  # noqa: PLR0913 - the arguments of KubeVirt's own function
    instancetype: Json | None,
    preference: Json | None,
    spec: Json,
    annotations: dict[str, str],
    base: str,
    note: Note = ignore,
    rules: Rules = NEWEST,
) -> list[Conflict]:
    """Apply an instancetype and a preference to a VMI's spec, in KubeVirt's order.

    Args:
        instancetype: its spec, decoded; None for none.
        preference: its spec, decoded; None for none.
        spec: the spec of a VMI or template, decoded; changed.
        annotations: the annotations of the VMI or template; changed.
        base: the path of ``spec`` in the object that the user knows.
        note: runs after each of the two, with the origin of what has changed.
        rules: the rules of the release that applies them.

    Returns:
        All conflicts in KubeVirt's order. If there are any, ``spec`` is half done and to be thrown away.

    Raises:
        Crash: KubeVirt would crash.
    """
    conflicts: list[str] = []
    if instancetype is not None:
        conflicts += [f"{base}.{path}" for path in _spec(instancetype, preference, spec, rules)]
        conflicts += _annotations(instancetype, annotations)
        note(Origin.INSTANCETYPE)
    if preference is not None and not conflicts:
        preferences.apply(preference, spec, annotations, rules)
        note(Origin.PREFERENCE)
    return [Conflict(path) for path in conflicts]


def _spec(instancetype: Json, preference: Json | None, spec: Json, rules: Rules) -> list[str]:
    domain, devices = spec["domain"], spec["domain"]["devices"]
    return [
        *_whole(instancetype, spec, "nodeSelector"),
        *_whole(instancetype, spec, "schedulerName"),
        *_cpu(instancetype["cpu"], preference, domain),
        *_memory(instancetype["memory"], domain, rules),
        *_io_threads(instancetype.get("ioThreads", {}), domain),
        *_whole(instancetype, domain, "ioThreadsPolicy", "domain."),
        *_whole(instancetype, domain, "launchSecurity", "domain."),
        *_whole(instancetype, devices, "gpus", "domain.devices."),
        *_whole(instancetype, devices, "hostDevices", "domain.devices."),
    ]


def _whole(source: Json, target: Json, name: str, prefix: str = "") -> list[str]:
    """Copy a field as a whole, or say that both sides set it: nothing is ever merged, equal values are no excuse.

    An empty node selector is one, too.
    """
    if name not in source:
        return []
    if name in target:
        return [f"{prefix}{name}"]
    target[name] = copy_json(source[name])
    return []


def _cpu(wanted: Json, preference: Json | None, domain: Json) -> list[str]:
    cpu = domain.setdefault("cpu", {})
    conflicts = [
        f"domain.resources.{kind}.cpu" for kind in ("requests", "limits") if "cpu" in domain["resources"].get(kind, {})
    ]
    conflicts += [f"domain.cpu.{name}" for name in ("sockets", "cores", "threads") if cpu.get(name)]
    # The path is spelled as in the instancetype, even where the VMI spells it otherwise.
    conflicts += [f"domain.cpu.{name}" for name, mine in _CPU_FIELDS.items() if name in wanted and mine in cpu]
    if conflicts:
        return conflicts
    for name, mine in _CPU_FIELDS.items():
        if name in wanted:
            cpu[mine] = copy_json(wanted[name])
    if "maxSockets" in wanted:
        cpu["maxSockets"] = wanted["maxSockets"]
    cpu["sockets"], cpu["cores"], cpu["threads"] = cpu_topology.divide(wanted["guest"], preference)
    return []


def _memory(wanted: Json, domain: Json, rules: Rules) -> list[str]:
    if "memory" in domain and not rules.has(MEMORY_CONFLICT_PER_MEMBER):
        return ["domain.memory"]
    memory = domain.setdefault("memory", {})
    for name in ("guest", "hugepages", "maxGuest"):
        if name in wanted and name in memory:
            return [f"domain.memory.{name}"]
    for kind in ("requests", "limits"):
        if "memory" in domain["resources"].get(kind, {}):
            return [f"domain.resources.{kind}.memory"]
    for name in ("guest", "hugepages", "maxGuest"):
        if name in wanted:
            memory[name] = copy_json(wanted[name])
    percent = wanted.get("overcommitPercent", 0)
    if percent > 0:
        domain["resources"].setdefault("requests", {})["memory"] = _request(wanted["guest"], percent)
    return []


# A few instancetypes are behind all VMs.
@lru_cache(maxsize=256)
def _request(guest: str, percent: int) -> Computed:
    return Computed(quantity.overcommit(quantity.parse(guest), percent))


def _io_threads(wanted: Json, domain: Json) -> list[str]:
    name = "supplementalPoolThreadCount"
    return _whole(wanted, domain.setdefault("ioThreads", {}), name, "domain.ioThreads.") if name in wanted else []


def _annotations(instancetype: Json, annotations: dict[str, Any]) -> list[str]:
    conflicts = []
    for key, value in instancetype.get("annotations", {}).items():
        if annotations.setdefault(key, value) != value:
            conflicts.append(f"annotations.{key}")
    return conflicts
