"""Removes what kubevirt-webhook wrote into VMs, after the webhooks are removed, which would otherwise write it again.

schedulerName is removed only if an annotation names it, or the admin declares that no owner has chosen it, and no
manifest of the owner declares it. Topology spread constraints are removed only if an annotation names them, and the
owner's are kept. Instancetypes and preferences are kept: a VM without them is a different VM. VMIs and pods are not
changed; their annotations end with them.

A change that was accepted need not last: a webhook may put the fields back in the same request, and a controller later.
So the answer to each change is compared with what was asked for, and at the end the VMs are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.patch import pointer
from webhook.cluster.reader import all_of
from webhook.errors import Unavailable
from webhook.k8s.client.api import NO_QUERY, ApiConnectionError, Requests, Transport, decode, explain
from webhook.k8s.json_tree import ABSENT, MAX_LEVELS, flatten, member
from webhook.k8s.resources import POD_METADATA, Resource
from webhook.k8s.types.meta import Object
from webhook.kubevirt.resources import STORED_VMS, VMIS
from webhook.kubevirt.types.views import UnstructuredVm
from webhook.policies.common.ownership import Manifests, writers
from webhook.policies.instancetypes.namespace_defaults import INJECTED_ANNOTATIONS as DEFAULTS_ANNOTATIONS
from webhook.policies.registry import POLICIES
from webhook.policies.scheduling.spread import without_injected

FIELD_MANAGER: Final = "kubevirt-webhook-cleanup"
INJECTED_ANNOTATIONS: Final = (
    *(names.INJECTED_SCHEDULER_ANNOTATION, names.INJECTED_SPREAD_ANNOTATION),
    *DEFAULTS_ANNOTATIONS.values(),
)
# VMIs and pods have those of other policies, too, which never stand in VMs.
_OF_VMIS: Final = tuple(mark for policy in POLICIES for mark in policy.marks)
_SCHEDULER: Final = ("spec", "template", "spec", "schedulerName")
_CONSTRAINTS: Final = ("spec", "template", "spec", "topologySpreadConstraints")
_VMS: Final = STORED_VMS.decoded_as(UnstructuredVm)
_ANNOTATED_VMIS: Final = VMIS.decoded_as(Object)
_LAUNCHER_LABEL: Final = {"labelSelector": f"{names.APP_LABEL}={names.LAUNCHER_APP}"}
_SECONDS: Final = 60.0
_FIND_WEBHOOK: Final = "find it with kubectl get mutatingwebhookconfigurations, and run the command again without it"
Operation = dict[str, Any]


class Task(msgspec.Struct, frozen=True):
    """The clean-up of one VM.

    Attributes:
        operations: a JSON patch, which applies only to the values that were found.
        texts: the operations in words.
        left: what is kept, in words, and why; empty: nothing is.
    """

    namespace: str
    name: str
    operations: tuple[Operation, ...]
    texts: tuple[str, ...]
    left: str = ""

    @property
    def title(self) -> str:
        """The VM as ``VirtualMachine NAMESPACE/NAME``."""
        return f"VirtualMachine {self.namespace}/{self.name}"


def task(vm: UnstructuredVm, *, allow_restart_required: bool, schedulers: Collection[str] = ()) -> Task | None:
    """The clean-up of a VM; None where nothing in it came from this server.

    Templates of running VMs, which then need a restart, are changed only if that is allowed. What only this server
    ever chose, ``schedulers``, is removed even without an annotation.
    """
    annotations = vm.meta.annotations or {}
    operations: list[Operation] = []
    texts = []
    for field, injected_value in DEFAULTS_ANNOTATIONS.items():
        if injected_value in annotations:
            operations += _operations(("metadata", "annotations", injected_value), annotations[injected_value])
            # The VM keeps what it has, which can differ from the annotation's.
            matcher = _mapping(vm.spec, field)
            named = matcher.get("name") or matcher.get("revisionName")
            kind = f"{matcher['kind']}/" if matcher.get("kind") else ""
            kept = f"keep spec.{field} {kind}{named}" if named else f"the VM has no spec.{field}"
            texts.append(f"remove annotation {injected_value}; {kept}")
    held, runs = [], bool((vm.status or {}).get("created"))
    for changes, text in (_scheduler(vm, schedulers), _spread_operations(vm)):
        if any(one["path"].startswith("/spec/") for one in changes) and runs and not allow_restart_required:
            held.append(text)
        elif changes:
            operations += changes
            texts.append(text)
    left = f"skipped because the VM is running: {'; '.join(held)} (see --allow-restart-required)" if held else ""
    if not operations and not left:
        return None
    return Task(vm.meta.namespace or "", vm.meta.name or "", tuple(operations), tuple(texts), left)


def _scheduler(vm: UnstructuredVm, schedulers: Collection[str]) -> tuple[list[Operation], str]:
    """Operations on schedulerName and its annotations, and a clause about them."""
    injected_values, operations = _injected_annotations(vm, names.INJECTED_SCHEDULER_ANNOTATION)
    written = member(vm.spec, "template.spec.schedulerName")
    chosen = written if isinstance(written, str) else ""
    is_injected = chosen and (chosen in injected_values or chosen in schedulers)
    is_injected = is_injected and not Manifests(vm).declare(_SCHEDULER, chosen)
    annotated = f"annotation {names.INJECTED_SCHEDULER_ANNOTATION}"
    if is_injected:
        operations += _operations(_SCHEDULER, chosen)
        return operations, f"remove schedulerName {chosen}" + (f" and {annotated}" if injected_values else "")
    kept = f"keep schedulerName {chosen}" if chosen else "the VM has no schedulerName"
    return operations, f"remove {annotated}; {kept}" if operations else ""


def _spread_operations(vm: UnstructuredVm) -> tuple[list[Operation], str]:
    """Operations on topology spread constraints and their annotations, and a clause about them."""
    injected_values, operations = _injected_annotations(vm, names.INJECTED_SPREAD_ANNOTATION)
    annotated = f"annotation {names.INJECTED_SPREAD_ANNOTATION}"
    injected_value = next((value for value in injected_values if value in names.SPREADS and value != names.OFF), None)
    present = member(vm.spec, "template.spec.topologySpreadConstraints")
    if not isinstance(present, list) or not present:
        return operations, f"remove {annotated}; the VM has no topologySpreadConstraints" if operations else ""
    # The template has no schema, so an owner's list can hold anything. kubevirt-webhook writes objects.
    readable = all(isinstance(one, dict) for one in present)
    kept = without_injected(present, injected_value, Manifests(vm)) if injected_value and readable else present
    if kept == present:
        return operations, f"remove {annotated}; keep the owner's topologySpreadConstraints" if operations else ""
    if kept:
        operations += _operations(_CONSTRAINTS, present, kept)
        return operations, f"remove the injected topologySpreadConstraints and {annotated}; keep the owner's"
    operations += _operations(_CONSTRAINTS, present)
    return operations, f"remove the injected topologySpreadConstraints ({injected_value}) and {annotated}"


def _injected_annotations(vm: UnstructuredVm, annotation: str) -> tuple[list[str], list[Operation]]:
    """The values of one of the server's annotations on a VM and on its template, and the operations that remove it."""
    path = ("metadata", "annotations", annotation)
    of_template: Any = _mapping(vm.spec, "template.metadata.annotations").get(annotation)
    entries = [(path, (vm.meta.annotations or {}).get(annotation)), (("spec", "template", *path), of_template)]
    # The template has no schema. kubevirt-webhook writes strings; other values can have any size and depth.
    written = [(path, value) for path, value in entries if isinstance(value, str)]
    return [value for _, value in written], [each for one in written for each in _operations(*one)]


def _operations(path: tuple[str, ...], before: object, after: object = None) -> list[Operation]:
    """Remove a value, or replace it, if it is still there."""
    change: Operation = {"op": "replace", "value": after} if after else {"op": "remove"}
    return [{"op": "test", "path": pointer(path), "value": before}, {**change, "path": pointer(path)}]


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    """The mapping at a path with dots between names; empty if there is none."""
    mapping = member(value, path)
    return mapping if isinstance(mapping, dict) else {}


async def tasks(
    api: Transport, namespace: str = "", schedulers: Collection[str] = (), *, allow_restart_required: bool
) -> list[Task]:
    """The changes of all VMs of a namespace, empty for all, in the API server's order; see `task`.

    Raises:
        InputError: the VMs cannot be listed.
    """
    async with aclosing(all_of(api, _VMS, namespace)) as vms:
        return [
            one
            async for vm in vms
            if (one := task(vm, allow_restart_required=allow_restart_required, schedulers=schedulers))
        ]


async def remaining(api: Transport, namespace: str = "") -> tuple[int, int]:
    """How many VMIs and how many launcher pods carry one of the server's annotations; raises as `tasks`."""
    vmis = await _count_annotated(api, _ANNOTATED_VMIS, namespace, NO_QUERY)
    return vmis, await _count_annotated(api, POD_METADATA, namespace, _LAUNCHER_LABEL)


async def _count_annotated(api: Transport, resource: Resource[Object], namespace: str, query: Mapping[str, str]) -> int:
    async with aclosing(all_of(api, resource, namespace, query)) as items:
        return sum([any(one.meta.annotation(each) is not None for each in _OF_VMIS) async for one in items])


async def clean(api: Requests, one: Task) -> str:
    """Apply the changes to one VM, and return the failure as a clause; empty on success."""
    path = STORED_VMS.path(one.namespace, one.name)
    query, kind = {"fieldManager": FIELD_MANAGER}, "application/json-patch+json"
    try:
        status, body = await api.request("PATCH", path, query, list(one.operations), kind, seconds=_SECONDS)
    except ApiConnectionError as error:
        return error.why
    if status == 404:
        return ""
    if status == 200:
        vm = decode(flatten(body, MAX_LEVELS + 1), UnstructuredVm, _VMS.kind)
        if isinstance(vm, Unavailable):
            return f"whether the change has lasted is not known: {vm.why}"
        fields = _present_fields(vm, one)
        return f"{' and '.join(fields)} put back by a webhook in the same request; {_FIND_WEBHOOK}" if fields else ""
    if status in (409, 422):
        return "the VM has changed in the meantime, or a webhook denied the change; run the command again"
    return explain("patch", STORED_VMS, one.namespace, status, body).why


async def put_back(api: Transport, namespace: str, cleaned: Iterable[Task]) -> dict[str, str]:
    """What has been put back into VMs that were cleaned, of a namespace or of all, as clauses by the VMs' titles.

    Raises:
        InputError: the VMs cannot be listed.
    """
    by_name, result = {(one.namespace, one.name): one for one in cleaned}, {}
    async with aclosing(all_of(api, _VMS, namespace)) as vms:
        async for vm in vms:
            one = by_name.get((vm.meta.namespace or "", vm.meta.name or ""))
            fields = _present_fields(vm, one) if one else {}
            if not one or not fields:
                continue
            who = sorted({writer for path in fields.values() for writer in writers(vm, path)} - {FIELD_MANAGER})
            by = f" by {' and '.join(who)}" if who else ", by whom is not known"
            result[one.title] = f"{' and '.join(fields)} put back after the change{by}"
    return result


def _present_fields(vm: UnstructuredVm, one: Task) -> dict[str, tuple[str, ...]]:
    """The paths of the fields that a task removed and that a VM has, by their names in messages.

    An annotation is this server's whatever its value; of a field that owners set too, only the value that was removed.
    """
    obj, result = {"metadata": {"annotations": vm.meta.annotations or {}}, "spec": vm.spec}, {}
    for test in one.operations[::2]:
        path = tuple(segment.replace("~1", "/").replace("~0", "~") for segment in test["path"].split("/")[1:])
        value: Any = obj
        for segment in path:
            value = value.get(segment, ABSENT) if isinstance(value, dict) else ABSENT
        is_annotation = path[-2] == "annotations"
        if value is not ABSENT and (is_annotation or value == test["value"]):
            result[f"annotation {path[-1]}" if is_annotation else path[-1]] = path
    return result
