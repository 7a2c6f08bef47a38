"""Filling a VMI that no VM stands behind, which KubeVirt itself never does.

The steps are virt-controller's for the VMIs of VMs, in its order (see `vmi`), without those that are about the VM. What
KubeVirt's VM webhook checks before, divisible spreads and requirements, is checked here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from webhook.k8s import quantity
from webhook.kubevirt import defaults
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.structs import (
    Json,
    Struct,
    Value,
    check_size,
    copy_written,
    decode_remembered,
    share,
    share_changes,
)
from webhook.kubevirt.instancetype import preferences
from webhook.kubevirt.instancetype.apply import apply_instancetype
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, PREFERENCE_MATCHER, Matcher, SpecReference
from webhook.kubevirt.rejection import TEMPLATE_BASE, VMI_BASE, Cause, Conflicts
from webhook.kubevirt.rules import Rules


@dataclass(frozen=True, slots=True)
class Filled:
    """A VMI as KubeVirt would write it, before and after; neither is to be changed."""

    before: Json
    after: Json


def fill(vmi: Any, objects: Mapping[Matcher, tuple[SpecReference, Any]], configuration: ClusterConfig) -> Filled:
    """The VMI that virt-controller would have made of a VM with this spec, instancetype and preference.

    Args:
        vmi: plain JSON.
        objects: the references of the VMI, each with the whole object of that name, plain JSON.
        configuration: the cluster's settings.

    Returns:
        Objects that share with the VMI, and with each other, whatever stays as it is.

    Raises:
        Conflicts: the VMI and the instancetype set the same fields.
        Rejection: the default network interface is forbidden, or KubeVirt would crash.
        InputError: an object is malformed.
        Cause: a requirement is not met, or a spread of CPUs does not divide.
    """
    rules = configuration.rules
    shape = rules.types.vmi
    check_size(vmi)
    # As of a VM's template, virt-controller sees what the API stores: empty maps, which would conflict, are gone.
    before = share(shape, vmi)
    changed = _copy(before)
    wanted = [_spec(matcher, objects, rules) for matcher in (INSTANCETYPE_MATCHER, PREFERENCE_MATCHER)]
    spec, annotations = changed["spec"], changed["metadata"]["annotations"]
    if wanted[0] is not None:
        cause = preferences.check_divisible(wanted[0]["cpu"]["guest"], wanted[1])
        if cause is not None:
            raise cause
        # What virt-controller applies it has captured before, in canonical form: the share of it that is requested
        # depends on that.
        memory = wanted[0]["memory"]
        wanted[0] = {**wanted[0], "memory": {**memory, "guest": quantity.canonical(memory["guest"])}}
    defaults.disks(spec)
    preferences.autoattach(wanted[1], spec)
    defaults.input_device(spec)
    defaults.network_interface(spec, configuration)
    for matcher, (reference, _) in objects.items():
        annotations[matcher.name_annotation(reference.kind)] = reference.name
    conflicts = apply_instancetype(wanted[0], wanted[1], spec, annotations, VMI_BASE, rules=rules)
    if conflicts:
        raise Conflicts(conflicts).in_vmi()
    _check(wanted[0], wanted[1], spec, configuration)
    return Filled(before, _write(shape, changed, before))


def _copy(vmi: Json) -> Json:
    """A VMI that shares with the given one what no step changes: all but its annotations and its domain."""
    metadata, spec = vmi["metadata"], vmi["spec"]
    return {
        **vmi,
        "metadata": {**metadata, "annotations": dict(metadata.get("annotations", {}))},
        "spec": {**spec, "domain": copy_written(spec["domain"])},
    }


def _write(shape: Struct, changed: Json, before: Json) -> Json:
    """The VMI as KubeVirt writes it, of which only annotations and spec can be others than before."""
    parts = {name: cast("Value", shape.fields[name]).shape for name in ("metadata", "spec")}
    written = {name: share_changes(part, changed[name], before[name], name) for name, part in parts.items()}
    return {**before, **written}


def _spec(matcher: Matcher, objects: Mapping[Matcher, tuple[SpecReference, Any]], rules: Rules) -> Json | None:
    if matcher not in objects:
        return None
    reference, whole = objects[matcher]
    spec: Json = decode_remembered(matcher.shape(rules), whole, str(reference))["spec"]
    return spec


def _check(wanted: Json | None, preferred: Json | None, spec: Json, configuration: ClusterConfig) -> None:
    """What the preference requires, of the spec with KubeVirt's defaults."""
    if "requirements" not in (preferred or {}):
        return
    cause = preferences.check(wanted, preferred, defaults.size_defaults(spec, configuration))
    if cause is not None:
        raise Cause(cause.reason, cause.what, cause.field.replace(TEMPLATE_BASE, VMI_BASE))
