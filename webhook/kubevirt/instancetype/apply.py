"""Applying an instancetype to a VMI's spec, or saying what is in its way, and expanding VMs.

KubeVirt, pkg/instancetype/apply and pkg/instancetype/expand. The functions here, in `preferences` and in `defaults`
change the spec that they are given: one step of many, whose inputs are copies. Everything that they put into it is a
copy, too.

Expansion is what ``virtctl expand`` and the reference policies ``expand`` and ``expandAll`` do, and not the same as
what a VMI gets: preferences about automatic devices come too late there, and KubeVirt's defaults are frozen into the
VM.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from webhook.k8s import quantity
from webhook.k8s.quantity import Computed
from webhook.kubevirt import defaults
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.origins import FieldOrigin, Note, Origins, ignore
from webhook.kubevirt.go_json.structs import Json, copy_json, copy_written, encode
from webhook.kubevirt.instancetype import preferences
from webhook.kubevirt.instancetype.find import MATCHERS
from webhook.kubevirt.rejection import TEMPLATE_BASE, VMI_BASE, Conflicts, Get
from webhook.kubevirt.releases.capabilities import MEMORY_CONFLICT_PER_MEMBER
from webhook.kubevirt.rules import NEWEST, Rules, read_vm

# By the instancetype's spelling, the VMI's.
_CPU_FIELDS: Final = {
    "model": "model",
    "dedicatedCPUPlacement": "dedicatedCpuPlacement",
    "isolateEmulatorThread": "isolateEmulatorThread",
    "numa": "numa",
    "realtime": "realtime",
}


def apply_instancetype(  # noqa: PLR0913 - the arguments of KubeVirt's own function
    instancetype: Json | None,
    preference: Json | None,
    spec: Json,
    annotations: dict[str, str],
    base: str,
    note: Note = ignore,
    rules: Rules = NEWEST,
) -> None:
    """Apply the specs of an instancetype and a preference to a VMI's spec and annotations, in KubeVirt's order.

    All of them are decoded; the latter two are changed. ``base`` is the path of ``spec`` in the object that the user
    knows, and ``note`` runs after each of the two, with the origin of what has changed.

    Raises:
        Conflicts: both sides set the same fields; ``spec`` is half done then, and to be thrown away. Of a VMI the text
            is what virt-controller writes into the status of its VM.
        Crash: KubeVirt would crash.
    """
    conflicts: list[str] = []
    if instancetype is not None:
        conflicts += [f"{base}.{path}" for path in _spec(instancetype, preference, spec, rules)]
        for key, value in instancetype.get("annotations", {}).items():
            if annotations.setdefault(key, value) != value:
                conflicts.append(f"annotations.{key}")
        note(FieldOrigin.INSTANCETYPE)
    if conflicts:
        of_vmi = f"VMI conflicts with instancetype spec in fields: [{', '.join(conflicts)}]"
        raise Conflicts(conflicts, of_vmi if base == VMI_BASE else "")
    if preference is not None:
        preferences.apply(preference, spec, annotations, rules)
        note(FieldOrigin.PREFERENCE)


def copy_domain_and_annotations(vmi: Json) -> Json:
    """A copy of a VMI, or of a VM's template, that shares with it all but its annotations and its domain."""
    metadata, spec = vmi["metadata"], vmi["spec"]
    return {
        **vmi,
        "metadata": {**metadata, "annotations": dict(metadata.get("annotations", {}))},
        "spec": {**spec, "domain": copy_written(spec["domain"])},
    }


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


def _cpu(source: Json, preference: Json | None, domain: Json) -> list[str]:
    cpu = domain.setdefault("cpu", {})
    conflicts = [
        f"domain.resources.{kind}.cpu" for kind in ("requests", "limits") if "cpu" in domain["resources"].get(kind, {})
    ]
    conflicts += [f"domain.cpu.{name}" for name in ("sockets", "cores", "threads") if cpu.get(name)]
    # The path is spelled as in the instancetype, even where the VMI spells it otherwise.
    conflicts += [f"domain.cpu.{name}" for name, mine in _CPU_FIELDS.items() if name in source and mine in cpu]
    if conflicts:
        return conflicts
    for name, mine in _CPU_FIELDS.items():
        if name in source:
            cpu[mine] = copy_json(source[name])
    if "maxSockets" in source:
        cpu["maxSockets"] = source["maxSockets"]
    cpu["sockets"], cpu["cores"], cpu["threads"] = preferences.divide(source["guest"], preference)
    return []


def _memory(source: Json, domain: Json, rules: Rules) -> list[str]:
    if "memory" in domain and not rules.has(MEMORY_CONFLICT_PER_MEMBER):
        return ["domain.memory"]
    memory = domain.setdefault("memory", {})
    for name in ("guest", "hugepages", "maxGuest"):
        if name in source and name in memory:
            return [f"domain.memory.{name}"]
    for kind in ("requests", "limits"):
        if "memory" in domain["resources"].get(kind, {}):
            return [f"domain.resources.{kind}.memory"]
    for name in ("guest", "hugepages", "maxGuest"):
        if name in source:
            memory[name] = copy_json(source[name])
    percent = source.get("overcommitPercent", 0)
    if percent > 0:
        domain["resources"].setdefault("requests", {})["memory"] = _request(source["guest"], percent)
    return []


# A few instancetypes are behind all VMs.
@lru_cache(maxsize=256)
def _request(guest: str, percent: int) -> Computed:
    return Computed(quantity.overcommit(quantity.parse(guest), percent))


def _io_threads(source: Json, domain: Json) -> list[str]:
    name = "supplementalPoolThreadCount"
    return _whole(source, domain.setdefault("ioThreads", {}), name, "domain.ioThreads.") if name in source else []


def expand(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> Json:
    """The VM with what its matchers name written out, and without the matchers; unchanged where it has none.

    Returns:
        A new object that shares nothing with ``vm``, which is plain JSON.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Rejection: an object is missing, the default interface is forbidden, or KubeVirt would crash.
        InputError: an object is malformed.
    """
    return explain_expansion(vm, get, configuration, traced=False)[0]


def explain_expansion(
    vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS, *, traced: bool = True
) -> tuple[Json, dict[str, FieldOrigin]]:
    """What `expand` returns, and the origin of each of its leaves by the leaf's path; none unless ``traced``.

    Raises:
        Rejection: as of `expand`, and `Conflicts` too.
        InputError: an object is malformed.
    """
    rules = configuration.rules
    decoded = read_vm(vm, rules)
    # Watching copies the whole VM at every change.
    origins = before = Origins(decoded, source=vm) if traced else Origins({})
    if any(matcher.field in decoded["spec"] for matcher in MATCHERS):
        instancetype, preference = (matcher.find_spec(decoded, get, rules) for matcher in MATCHERS)
        decoded, origins = resolve_matchers(decoded, instancetype, preference, configuration, traced=traced)
        origins.inherit(before)
    expanded = encode(rules.vm, decoded)
    return expanded, origins.by_path(expanded) if traced else {}


def resolve_matchers(
    vm: Json, instancetype: Json | None, preference: Json | None, configuration: ClusterConfig, *, traced: bool = True
) -> tuple[Json, Origins]:
    """The expansion of a decoded VM from the specs of what it names, and who set its fields.

    Returns:
        A new decoded VM, and the origins of its fields; they are empty unless ``traced``, which takes time.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Rejection: the default interface is forbidden, or KubeVirt would crash.
        InputError: an object is malformed.
    """
    expanded: Json = copy_json(vm)
    origins = Origins(expanded if traced else {})
    note = origins.note
    template = expanded["spec"]["template"]
    spec, annotations = template["spec"], template["metadata"].setdefault("annotations", {})
    defaults.disks(spec)
    note(FieldOrigin.KUBEVIRT)
    defaults.network_interface(spec, configuration)
    note(configuration.origin("network_interface"))
    apply_instancetype(instancetype, preference, spec, annotations, TEMPLATE_BASE, note, configuration.rules)
    defaults.spec_defaults(spec, configuration, note)
    for matcher in MATCHERS:
        expanded["spec"].pop(matcher.field, None)
        expanded["status"].pop(matcher.reference, None)
    note(FieldOrigin.KUBEVIRT)
    return expanded, origins
