"""Filling a VMI that no VM stands behind, which KubeVirt itself never does.

The steps are virt-controller's for the VMIs of VMs, in its order (see `webhook.kubevirt.vm.controller`), without those
about the VM. What KubeVirt's VM webhook checks before, divisible spreads and requirements, is checked here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from webhook.k8s import quantity
from webhook.kubevirt import defaults
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import preferences
from webhook.kubevirt.instancetype.apply import apply_instancetype, copy_domain_and_annotations
from webhook.kubevirt.instancetype.find import MATCHERS, Matcher, SpecReference
from webhook.kubevirt.rejection import TEMPLATE_BASE, VMI_BASE, Cause


@dataclass(frozen=True, slots=True)
class Filled:
    """A VMI as KubeVirt would write it, before and after; neither is to be changed."""

    before: Json
    after: Json


def fill(vmi: Any, objects: Mapping[Matcher, tuple[SpecReference, Any]], configuration: ClusterConfig) -> Filled:
    """The VMI that virt-controller would have made of a VM with this spec, instancetype and preference.

    The objects are those that the references of the VMI name, whole, plain JSON.

    Returns:
        Objects that share with the VMI, and with each other, whatever stays as it is.

    Raises:
        Conflicts: the VMI and the instancetype set the same fields.
        Rejection: the default network interface is forbidden, or KubeVirt would crash.
        InputError: an object is malformed.
        Cause: a requirement is not met, or a spread of CPUs does not divide.
    """
    rules = configuration.rules
    shape = rules.vmi
    structs.check_size(vmi)
    # As of a VM's template, virt-controller sees what the API stores: empty maps, which would conflict, are gone.
    before = structs.share(shape, vmi)
    # No step changes anything else.
    changed = copy_domain_and_annotations(before)
    specs: dict[Matcher, Json] = {}
    for matcher in MATCHERS:
        if matcher in objects:
            reference, whole = objects[matcher]
            specs[matcher] = structs.decode_remembered(matcher.shape(rules), whole, str(reference))["spec"]
    instancetype, preference = map(specs.get, MATCHERS)
    spec, annotations = changed["spec"], changed["metadata"]["annotations"]
    if instancetype is not None:
        preferences.check_divisible(instancetype["cpu"]["guest"], preference)
        # What virt-controller applies it has captured before, in canonical form: the share of it that is requested
        # depends on that.
        memory = instancetype["memory"]
        instancetype = {**instancetype, "memory": {**memory, "guest": quantity.canonical(memory["guest"])}}
    defaults.disks(spec)
    preferences.autoattach(preference, spec)
    defaults.input_device(spec)
    defaults.network_interface(spec, configuration)
    for matcher, (reference, _) in objects.items():
        annotations[matcher.name_annotation(reference.kind)] = reference.name
    apply_instancetype(instancetype, preference, spec, annotations, VMI_BASE, rules=rules)
    if "requirements" in (preference or {}):
        try:
            preferences.check_requirements(instancetype, preference, defaults.size_defaults(spec, configuration))
        except Cause as cause:
            raise Cause(cause.reason, cause.what, cause.field.replace(TEMPLATE_BASE, VMI_BASE)) from None
    # Only the annotations and the spec can be others than before.
    parts = {name: cast("structs.Struct", shape.fields[name]) for name in ("metadata", "spec")}
    written = {name: structs.share_changes(part, changed[name], before[name], name) for name, part in parts.items()}
    return Filled(before, {**before, **written})
