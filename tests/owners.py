"""Manifests as owners write them one after the other, and what a VM may look like after the second one.

Used with a model of the API server, and with a real one beside a real KubeVirt.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.builders import Json
from webhook import names

# Ways of writing whole manifests: Argo CD and kubectl, Flux, and clients that replace the stored object.
DECLARING = ("client-side apply", "server-side apply", "replace")
# Only what has changed: of scripts and of user interfaces.
PATCHING = ("merge patch", "JSON patch")
WAYS = DECLARING + PATCHING

INJECTED_ANNOTATIONS = {
    "instancetype": names.INJECTED_INSTANCETYPE_ANNOTATION,
    "preference": names.INJECTED_PREFERENCE_ANNOTATION,
    "schedulerName": names.INJECTED_SCHEDULER_ANNOTATION,
}
OWN_INSTANCETYPE = {"kind": "VirtualMachineInstancetype", "name": "own"}
OWN_PREFERENCE = {"kind": "VirtualMachinePreference", "name": "own"}
# By pairs of an instancetype and a preference: the defaults of a namespace.
CLUSTER_WIDE = ("u1.small", "fedora")
OF_THE_NAMESPACE = ("VirtualMachineInstancetype/own", "VirtualMachinePreference/own")

# The options for the parts of a manifest; None, the first, leaves them out, and is the most frequent.
OPTIONS: Mapping[str, Sequence[Any]] = {
    "instancetype": (
        *[None] * 4,
        {"name": "u1.medium"},
        {"name": "u1.nano"},
        {"name": "u1.small"},
        {"kind": "VirtualMachineClusterInstancetype", "name": "u1.medium"},
        OWN_INSTANCETYPE,
        {"kind": "VirtualMachineInstancetype", "name": "placed"},
        {"name": "nowhere"},
    ),
    "preference": (*[None] * 3, {"name": "fedora"}, {"name": "alpine"}, OWN_PREFERENCE),
    "memory": (*[None] * 3, "4Gi"),
    "cores": (*[None] * 4, 2),
    "dedicated": (*[None] * 5, True),
    "scheduler": (*[None] * 3, "default-scheduler", "volcano", "kubevirt"),
    "grace": (None, 5),
    "annotated": (*[None] * 2, "yes"),
    "run": ("Halted", "Manual"),
}


def manifest_of(chosen: Mapping[str, Any], name: str = "web") -> Json:
    """The VM of one choice among each of the `OPTIONS`."""
    domain: Json = {"devices": {}}
    cpu = {"cores": chosen["cores"], "dedicatedCpuPlacement": chosen["dedicated"]}
    if cpu := _given(cpu):
        domain["cpu"] = cpu
    if chosen["memory"]:
        domain["memory"] = {"guest": chosen["memory"]}
    inner = {"schedulerName": chosen["scheduler"], "terminationGracePeriodSeconds": chosen["grace"]}
    template: Json = {"spec": {"domain": domain} | _given(inner)}
    if chosen["annotated"]:
        template["metadata"] = {"annotations": {"mine": chosen["annotated"]}}
    matchers = _given({field: chosen[field] for field in ("instancetype", "preference")})
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": chosen["run"], "template": template, **copy.deepcopy(matchers)},
    }


def _given(members: Json) -> Json:
    return {name: value for name, value in members.items() if value is not None}


def merge(old: Any, patch: Any) -> Any:
    """What a JSON merge patch (RFC 7396) makes of a value."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def merge_patch(before: Any, after: Any) -> Any:
    """The merge patch from one object to another: null for removed fields."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return copy.deepcopy(after)
    changed = {key: merge_patch(before.get(key), value) for key, value in after.items() if before.get(key) != value}
    return changed | dict.fromkeys(before.keys() - after.keys())


def marks_of(stored: Mapping[str, Any]) -> Json:
    """The webhook's annotations by their keys, those of the template with ``template`` before them."""
    outer = stored["metadata"].get("annotations") or {}
    inner = (stored["spec"]["template"].get("metadata") or {}).get("annotations") or {}
    found = {key: value for key, value in outer.items() if key in INJECTED_ANNOTATIONS.values()}
    return found | {f"template {key}": value for key, value in inner.items() if key in INJECTED_ANNOTATIONS.values()}


def value_of(vm: Mapping[str, Any], field: str) -> Any:
    """The value of a VM's field that the webhook writes too; None: it is not set."""
    spec = vm["spec"]["template"]["spec"] if field == "schedulerName" else vm["spec"]
    return spec.get(field)


@dataclass(frozen=True)
class WrittenField:
    """The outcome of a VM after an owner wrote two manifests to it, one after the other.

    Attributes:
        way: how.
        manifest: the second one.
        first: the VM after the first one.
        stored: the VM after both; None: the API server denied the second one.
        created: the VM that the second one made where there was none; None: the API server denied it.
    """

    way: str
    manifest: Json
    first: Json
    stored: Json | None
    created: Json | None

    def surprises(self) -> Iterator[str]:
        """The undocumented differences between the VM and the one that the second manifest creates anew."""
        if self.created is None:
            if self.stored is not None and self.way in DECLARING:
                yield "the second manifest was admitted, though it makes no new VM"
            return
        if self.stored is None:
            if not any(self._has_not_come_back(field) for field in INJECTED_ANNOTATIONS):
                yield "the second manifest was refused, though it makes a new VM"
            return
        for field in INJECTED_ANNOTATIONS:
            yield from self._of_field(field, self.stored, self.created)
        stored, created = (_without_ours(found) for found in (self.stored, self.created))
        if stored != created:
            yield f"spec: {stored} instead of {created}"

    def _of_field(self, field: str, stored: Json, created: Json) -> Iterator[str]:
        found, expected = value_of(stored, field), value_of(created, field)
        if self._restates(field) and found == value_of(self.first, field):
            # A spec that stays as it is isn't looked at.
            return
        if self._restates(field) and found is None and self.way in PATCHING:
            # A patch does not mention what stays as it is, so that value is still the webhook's.
            return
        if found != expected and not (
            found is None and any(self._has_not_come_back(other) for other in INJECTED_ANNOTATIONS)
        ):
            yield f"{field}: {found} instead of {expected}"
        elif found == expected and _marks(stored, field) != _marks(created, field):
            yield f"{field}: marked {_marks(stored, field)} instead of {_marks(created, field)}"

    def _was_ours(self, field: str) -> bool:
        return bool(_marks(self.first, field))

    def _has_not_come_back(self, field: str) -> bool:
        """Whether a new VM would get a default that this one had not before."""
        assert self.created
        declared = value_of(self.manifest, field) is not None
        return bool(_marks(self.created, field)) and not declared and not self._was_ours(field)

    def _restates(self, field: str) -> bool:
        """Whether the second manifest explicitly sets what the webhook had injected."""
        value = value_of(self.manifest, field)
        if value is None or not self._was_ours(field):
            return False
        ours = value_of(self.first, field)
        return value == ours or (isinstance(value, dict) and value.get("name") == ours.get("name"))


def _marks(vm: Json, field: str) -> Json:
    return {key: value for key, value in marks_of(vm).items() if key.endswith(INJECTED_ANNOTATIONS[field])}


def _without_ours(vm: Json) -> Json:
    """The spec without what `WrittenField` compares, and without what KubeVirt gives a new VM once and for all."""
    spec: Json = copy.deepcopy(vm["spec"])
    template = spec["template"]
    for field in ("instancetype", "preference"):
        spec.pop(field, None)
    template["spec"].pop("schedulerName", None)
    for field in ("firmware", "machine"):
        template["spec"]["domain"].pop(field, None)
    metadata = template.pop("metadata", None) or {}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key == "mine"}
    return {**spec, "annotations": annotations}
