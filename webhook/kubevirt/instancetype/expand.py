"""Expansion: the matchers of a VM resolved into its template (KubeVirt, pkg/instancetype/expand).

It is what ``virtctl expand`` and the reference policies ``expand`` and ``expandAll`` do, and not the same as what a VMI
gets: preferences about automatic devices come too late here, and KubeVirt's defaults are frozen into the VM.
"""

from __future__ import annotations

from typing import Any

from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.defaults import vmi_spec
from webhook.kubevirt.go_json.origins import Origin, Origins
from webhook.kubevirt.go_json.structs import Json, copy_json, encode
from webhook.kubevirt.instancetype import apply as apply_instancetype
from webhook.kubevirt.instancetype.apply import TEMPLATE_BASE
from webhook.kubevirt.instancetype.conflict import Conflicts
from webhook.kubevirt.instancetype.matcher import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER
from webhook.kubevirt.lookup import Get
from webhook.kubevirt.vm.manifest import read_vm


def expand(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> Json:
    """The VM with what its matchers name written out, and without the matchers; unchanged where it has none.

    Args:
        vm: plain JSON.
        get: looks up instancetypes, preferences and revisions.
        configuration: the cluster's settings.

    Returns:
        A new object that shares nothing with ``vm``.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Rejection: an object is missing, the default interface is forbidden, or KubeVirt would crash.
        InputError: an object is malformed.
    """
    decoded, _ = _expand(vm, get, configuration, traced=False)
    return encode(configuration.rules.types.vm, decoded)


def explain(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> tuple[Json, dict[str, Origin]]:
    """The VM with what its matchers name written out, and where every field came from.

    Args:
        vm: plain JSON.
        get: looks up instancetypes, preferences and revisions.
        configuration: the cluster's settings.

    Returns:
        A new object that shares nothing with ``vm``, and the origin of each of its leaves by the leaf's path.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Rejection: an object is missing, the default interface is forbidden, or KubeVirt would crash.
        InputError: an object is malformed.
    """
    decoded, origins = _expand(vm, get, configuration, traced=True)
    expanded = encode(configuration.rules.types.vm, decoded)
    return expanded, origins.by_path(expanded)


def _expand(vm: Any, get: Get, configuration: ClusterConfig, *, traced: bool) -> tuple[Json, Origins]:
    rules = configuration.rules
    decoded = read_vm(vm, rules)
    # Watching copies the whole VM at every change.
    before = Origins(decoded, given=vm) if traced else Origins({})
    if any(matcher.field in decoded["spec"] for matcher in MATCHERS):
        instancetype = INSTANCETYPE_MATCHER.find_spec(decoded, get, rules)
        preference = PREFERENCE_MATCHER.find_spec(decoded, get, rules)
        decoded, origins = resolve(decoded, instancetype, preference, configuration, traced=traced)
        origins.inherit(before)
        return decoded, origins
    return decoded, before


def resolve(
    vm: Json,
    found_instancetype: Json | None,
    found_preference: Json | None,
    configuration: ClusterConfig,
    *,
    traced: bool = True,
) -> tuple[Json, Origins]:
    """The expansion of a decoded VM from the specs of what it names, and who set its fields.

    Args:
        vm: decoded; it stays as it is.
        found_instancetype: the spec of the instancetype that the VM names, decoded; None: it names none.
        found_preference: the spec of the preference that the VM names, decoded; None: it names none.
        configuration: the cluster's settings.
        traced: remember the origins, which takes time; False: they are empty.

    Returns:
        A new decoded VM, and the origins of its fields.

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
    vmi_spec.disks(spec)
    note(Origin.KUBEVIRT)
    vmi_spec.network_interface(spec, configuration)
    note(configuration.origin("network_interface"))
    conflicts = apply_instancetype.apply(
        found_instancetype, found_preference, spec, annotations, TEMPLATE_BASE, note, configuration.rules
    )
    if conflicts:
        raise Conflicts(conflicts)
    vmi_spec.spec_defaults(spec, configuration, note)
    for matcher in MATCHERS:
        expanded["spec"].pop(matcher.field, None)
        expanded["status"].pop(matcher.reference, None)
    note(Origin.KUBEVIRT)
    return expanded, origins
