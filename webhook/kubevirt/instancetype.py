"""Applying an instancetype to a VMI's spec, or saying what is in its way (KubeVirt, pkg/instancetype/apply).

The functions here, in `preference` and in `defaults` change the spec that they are given: one step of many in `vmi`,
`expand` or `admission`, whose inputs are copies. Everything that they put into it is a copy, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from webhook.kubevirt import preference as preferences
from webhook.kubevirt import quantity, topology
from webhook.kubevirt.origins import Note, Origin, ignore
from webhook.kubevirt.refusal import Conflict
from webhook.kubevirt.shape import Json, copied

# Of a VM's template, and of a VMI.
TEMPLATE_BASE: Final = "spec.template.spec"
VMI_BASE: Final = "spec"


def apply(
    instancetype: Json | None,
    preference: Json | None,
    spec: Json,
    annotations: dict[str, str],
    base: str,
    note: Note = ignore,
) -> list[Conflict]:
    """Apply an instancetype and a preference to a VMI's spec, in KubeVirt's order.

    Args:
        instancetype: its spec, decoded; None for none.
        preference: its spec, decoded; None for none.
        spec: the spec of a VMI or template, decoded; changed.
        annotations: of the VMI or template; changed.
        base: the path of ``spec`` in the object that the user knows.
        note: is told after each of the two.

    Returns:
        All conflicts in KubeVirt's order. If there are any, ``spec`` is half done and to be thrown away.

    Raises:
        Crash: KubeVirt would crash.
    """
    conflicts: list[str] = []
    if instancetype is not None:
        for step in _STEPS:
            conflicts += [f"{base}.{path}" for path in step(instancetype, preference, spec)]
        conflicts += _annotations(instancetype, annotations)
        note(Origin.INSTANCETYPE)
    if preference is not None and not conflicts:
        preferences.apply(preference, spec, annotations)
        note(Origin.PREFERENCE)
    return [Conflict(path) for path in conflicts]


def _node_selector(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    # Even an empty one counts, on both sides.
    return _whole(instancetype, "nodeSelector", spec, "nodeSelector", "nodeSelector")


def _scheduler_name(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    return _whole(instancetype, "schedulerName", spec, "schedulerName", "schedulerName")


def _cpu(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    domain, wanted = spec["domain"], instancetype["cpu"]
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
            cpu[mine] = copied(wanted[name])
    if "maxSockets" in wanted:
        cpu["maxSockets"] = wanted["maxSockets"]
    cpu["sockets"], cpu["cores"], cpu["threads"] = topology.divide(wanted["guest"], preference)
    return []


_CPU_FIELDS: Final = {
    "model": "model",
    "dedicatedCPUPlacement": "dedicatedCpuPlacement",
    "isolateEmulatorThread": "isolateEmulatorThread",
    "numa": "numa",
    "realtime": "realtime",
}


def _memory(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    domain, wanted = spec["domain"], instancetype["memory"]
    memory = domain.setdefault("memory", {})
    for name in ("guest", "hugepages", "maxGuest"):
        if name in wanted and name in memory:
            return [f"domain.memory.{name}"]
    for kind in ("requests", "limits"):
        if "memory" in domain["resources"].get(kind, {}):
            return [f"domain.resources.{kind}.memory"]
    for name in ("guest", "hugepages", "maxGuest"):
        if name in wanted:
            memory[name] = copied(wanted[name])
    percent = wanted.get("overcommitPercent", 0)
    if percent > 0:
        request = quantity.overcommitted(quantity.parse(wanted["guest"]), percent)
        domain["resources"].setdefault("requests", {})["memory"] = str(request)
    return []


def _io_threads(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    name = "supplementalPoolThreadCount"
    threads = instancetype.get("ioThreads", {})
    if name not in threads:
        return []
    target = spec["domain"].setdefault("ioThreads", {})
    return _whole(threads, name, target, name, f"domain.ioThreads.{name}")


def _io_threads_policy(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    return _whole(instancetype, "ioThreadsPolicy", spec["domain"], "ioThreadsPolicy", "domain.ioThreadsPolicy")


def _launch_security(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    return _whole(instancetype, "launchSecurity", spec["domain"], "launchSecurity", "domain.launchSecurity")


def _gpus(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    return _whole(instancetype, "gpus", spec["domain"]["devices"], "gpus", "domain.devices.gpus")


def _host_devices(instancetype: Json, preference: Json | None, spec: Json) -> list[str]:
    return _whole(instancetype, "hostDevices", spec["domain"]["devices"], "hostDevices", "domain.devices.hostDevices")


_STEPS: Final[tuple[Callable[[Json, Json | None, Json], list[str]], ...]] = (
    _node_selector,
    _scheduler_name,
    _cpu,
    _memory,
    _io_threads,
    _io_threads_policy,
    _launch_security,
    _gpus,
    _host_devices,
)


def _whole(source: Json, name: str, target: Json, key: str, path: str) -> list[str]:
    """Copy a field as a whole, or say that both sides set it: nothing is ever merged, equal values are no excuse."""
    if name not in source:
        return []
    if key in target:
        return [path]
    target[key] = copied(source[name])
    return []


def _annotations(instancetype: Json, annotations: dict[str, Any]) -> list[str]:
    conflicts = []
    for key, value in instancetype.get("annotations", {}).items():
        if annotations.setdefault(key, value) != value:
            conflicts.append(f"annotations.{key}")
    return conflicts
