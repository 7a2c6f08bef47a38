"""The scheduling policy: virtual machines on the scheduler that the admin declared, where the owner chose none.

There are three places for the choice, each with its own price. The *pod* is always right: it is where the scheduler
looks, and it covers VMs older than this server. In the *VM* the choice is visible to its owner and reaches every later
VMI; but there it may only be written at CREATE, because a changed template of a running VM requires a restart and
blocks hotplug until then. In the *VMI* it is visible too and never requires a restart, but only the next start of a VM
gets it. An owner who chose anything keeps it, an explicit ``default-scheduler`` too.

An injected scheduler has an annotation with the same name. On VMs it stands on the template as well, so that VMI and
pod carry it: that is how an injected scheduler, which falls back to the default scheduler while it is unavailable, is
distinguished from an owner's choice in a pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from webhook import names
from webhook.admission.decision import Change, Decision, Reason, RepeatedChanges, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import Unavailable
from webhook.facts import Facts, ObjectKey, SchedulerHealth, SchedulerKey, Unreadable, VmiKey
from webhook.k8s.json_tree import ABSENT, locate, lookup
from webhook.k8s.types.core import SchedulingPod
from webhook.k8s.types.meta import Object, OwnerReference
from webhook.kubevirt.instancetype import revisions
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER
from webhook.kubevirt.launcher import vmi_owner
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES, REVISIONS
from webhook.kubevirt.types.views import InstancetypeSpec, MatcherView, VirtualMachine, VirtualMachineInstance, VmStatus
from webhook.policies.common.ownership import Manifests
from webhook.policies.common.required_facts import is_kubevirts
from webhook.policies.scheduling import reasons
from webhook.policies.scheduling.settings import SchedulingSettings

_INJECTED_ANNOTATION: Final = ("metadata", "annotations", names.INJECTED_SCHEDULER_ANNOTATION)
_SCHEDULER: Final = ("spec", "schedulerName")
_VM_SCHEDULER: Final = ("spec", "template", "spec", "schedulerName")
_TEMPLATE_ANNOTATION: Final = ("spec", "template", *_INJECTED_ANNOTATION)
# What most objects have at these paths: nothing, or what the API server has written into a pod.
_USUAL: Final = (ABSENT, names.DEFAULT_SCHEDULER)


async def schedule_pod(
    pod: SchedulingPod, request: Request[SchedulingPod], facts: Facts, settings: SchedulingSettings
) -> Decision:
    """Put a virt-launcher pod on the declared scheduler, or undo that choice while the scheduler is unavailable.

    The pod alone cannot show what the owner chose: the API server has written ``default-scheduler`` into it before any
    webhook runs, also where the owner wrote exactly that. The VMI that owns the pod can.
    """
    if request.operation != "CREATE":
        return allow(common.immutable_after_create("a pod's schedulerName", request.operation))
    if pod.spec and pod.spec.node_name:
        return allow(reasons.already_bound(pod.spec.node_name))
    owner = vmi_owner(pod)
    if isinstance(owner, Reason):
        return allow(owner)
    foreign = await _skip_foreign_pod(request, facts, settings)
    if foreign:
        return foreign
    namespace = request.namespace or pod.meta.namespace or ""
    chosen = (pod.spec.scheduler_name if pod.spec else None) or names.DEFAULT_SCHEDULER
    if chosen == names.DEFAULT_SCHEDULER:
        return await _inject_pod(pod, owner, namespace, facts, settings)
    injected_value = pod.meta.annotation(names.INJECTED_SCHEDULER_ANNOTATION)
    if injected_value != chosen and not _is_only_by_webhook(chosen, settings):
        return allow(reasons.foreign_scheduler(chosen))
    # The pod already has an injected scheduler.
    why = await _reason_unavailable(chosen, namespace, facts, settings)
    if why is None:
        return allow(reasons.already_injected(chosen))
    reason = reasons.fell_back(chosen, why)
    change = Change(_SCHEDULER, chosen, names.DEFAULT_SCHEDULER, reason.code)
    return Decision((reason,), (change,), warnings=(reason,), notes={"scheduler": chosen})


async def _skip_foreign_pod(
    request: Request[SchedulingPod], facts: Facts, settings: SchedulingSettings
) -> Decision | None:
    """The decision on a pod that virt-controller did not make; None if it did."""
    user = request.user_info
    try:
        by_kubevirt = await is_kubevirts(user, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace)
    except Unreadable as error:
        return allow(reasons.kubevirt_unreadable(error.why), warn=True)
    if by_kubevirt:
        return None
    if by_kubevirt is None:
        return allow(common.kubevirt_absent)
    return allow(common.not_created_by_kubevirt(user.username))


async def _reason_unavailable(name: str, namespace: str, facts: Facts, settings: SchedulingSettings) -> str | None:
    """Why an injected scheduler cannot place the pod now; None if it can, or if that is not known."""
    if name not in settings.schedulers:
        return reasons.no_longer_declared
    health = await facts.get(SchedulerKey(name, namespace))
    return health.why if isinstance(health, SchedulerHealth) and health.state == "unavailable" else None


async def _inject_pod(
    pod: SchedulingPod, owner: OwnerReference, namespace: str, facts: Facts, settings: SchedulingSettings
) -> Decision:
    """The decision on a pod with the default scheduler; its annotation names what was injected before, if anything."""
    injected_value = pod.meta.annotation(names.INJECTED_SCHEDULER_ANNOTATION)
    name = settings.scheduler_name
    objection = await _unfit(name, namespace, facts, settings)
    if objection:
        return objection
    vmi = await facts.get(VmiKey(namespace, owner.name or "", owner.uid or ""))
    where = f"VirtualMachineInstance {namespace}/{owner.name}"
    if isinstance(vmi, Unavailable):
        return allow(reasons.vmi_unreadable(where, vmi.why), warn=True)
    if vmi is None:
        return allow(common.vmi_not_found(namespace, owner.name or ""))
    if vmi.meta.uid != owner.uid:
        return allow(common.vmi_replaced(namespace, owner.name or ""))
    chosen = vmi.scheduler_name
    if chosen == names.DEFAULT_SCHEDULER:
        return allow(reasons.owner_chose_default(where))
    if chosen:
        if chosen == injected_value or _is_only_by_webhook(chosen, settings):
            return allow(reasons.already_fell_back(chosen))
        return allow(reasons.rewritten(where, chosen))
    if injected_value and await _reason_unavailable(injected_value, namespace, facts, settings) is not None:
        return allow(reasons.already_fell_back(injected_value))
    return _write(pod, name, reasons.injected(where), _SCHEDULER, _INJECTED_ANNOTATION)


async def schedule_vm(
    vm: VirtualMachine, request: Request[VirtualMachine], facts: Facts, settings: SchedulingSettings
) -> Decision:
    """Write the declared scheduler into a new VM's template; at UPDATE, the owner's choice replaces an injected one."""
    if not settings.virtual_machines:
        return allow(common.disabled("scheduling.virtualMachines"))
    if request.operation not in ("CREATE", "UPDATE"):
        return allow(common.other_operation(request.operation))
    if vm.meta.deletion_timestamp:
        return allow(common.being_deleted("the VM"))
    template = vm.template
    if template is None or template.spec is None:
        return allow(reasons.no_template)
    if request.operation == "UPDATE":
        return await _evaluate_update(vm, request, facts, settings)
    if vm.scheduler_name:
        return _restore_annotations(vm) if _is_injected(vm, settings) else allow(reasons.owner_chose(vm.scheduler_name))
    name = settings.scheduler_name
    namespace = request.namespace or vm.meta.namespace or ""
    objection = await _unfit(name, namespace, facts, settings) or await _instancetype_objection(
        vm, namespace, facts, None
    )
    if objection:
        return objection
    return _write(vm, name, reasons.injected("the VM"), _VM_SCHEDULER, _INJECTED_ANNOTATION, _TEMPLATE_ANNOTATION)


async def _evaluate_update(
    vm: VirtualMachine, request: Request[VirtualMachine], facts: Facts, settings: SchedulingSettings
) -> Decision:
    """The decision on an update: it never injects again, and puts back what an overwrite removed unintentionally."""
    namespace = request.namespace or vm.meta.namespace or ""
    status = request.old_object.status if request.old_object else None
    if not vm.scheduler_name:
        return await _preserve(vm, request, namespace, facts, settings)
    manifests = Manifests(vm)
    if manifests.declare(_VM_SCHEDULER, vm.scheduler_name) or not _is_injected(vm, settings):
        reason = reasons.owner_chose(vm.scheduler_name)
        return Decision((reason,), tuple(_remove_annotations(vm, manifests, reason.code)))
    objection = await _instancetype_objection(vm, namespace, facts, status)
    before = request.old_object.spec.instancetype if request.old_object and request.old_object.spec else None
    # Beside an instancetype that cannot be resolved yet, a new VM would not get an injected scheduler.
    renamed = (vm.spec.instancetype if vm.spec else None) != before
    unresolved = renamed and objection is not None and objection.code == reasons.INSTANCETYPE_UNRESOLVED
    if objection and (unresolved or objection.code == reasons.INSTANCETYPE_SETS_SCHEDULER):
        # KubeVirt would deny the VM with the injected scheduler.
        reason = reasons.withdrawn(vm.scheduler_name, objection.reasons[0].text)
        field = Change(_VM_SCHEDULER, vm.scheduler_name, None, reason.code)
        changes = (field, *_remove_annotations(vm, manifests, reason.code))
        return Decision((reason,), changes, warnings=(reason,))
    return _restore_annotations(vm)


async def _preserve(
    vm: VirtualMachine, request: Request[VirtualMachine], namespace: str, facts: Facts, settings: SchedulingSettings
) -> Decision:
    """Put the injected scheduler and its annotations back where an overwrite has removed all of them.

    A VirtualMachinePool and `kubectl replace` write ``spec`` and annotations again. Left alone, the VM would change its
    scheduler, which requires a restart. An owner who removes the field and keeps the annotation, or names another
    scheduler, intends it.
    """
    old = request.old_object
    if old is None or not _is_injected(old, settings) or Manifests(old).declare(_VM_SCHEDULER, old.scheduler_name):
        return allow(reasons.nothing_to_preserve)
    name = old.scheduler_name
    if any(value is not ABSENT and value != "" for value in _injected_annotations(vm).values()):
        return allow(reasons.owner_removed(name))
    if name not in settings.schedulers:
        return allow(reasons.not_preserved(name))
    objection = await _instancetype_objection(vm, namespace, facts, old.status)
    if objection:
        return objection
    return _write(vm, name, reasons.preserved(name), _VM_SCHEDULER, _INJECTED_ANNOTATION, _TEMPLATE_ANNOTATION)


def _is_only_by_webhook(name: str, settings: SchedulingSettings) -> bool:
    """Whether the settings declare that only this server ever chooses a scheduler."""
    declared = settings.schedulers.get(name)
    return declared is not None and declared.only_by_webhook


def _injected_annotations(vm: VirtualMachine) -> dict[tuple[str, ...], object]:
    """The values of the server's annotations on a VM and on its template, by their paths; `ABSENT` for none."""
    return {path: lookup(vm, path) for path in (_INJECTED_ANNOTATION, _TEMPLATE_ANNOTATION)}


def _is_injected(vm: VirtualMachine, settings: SchedulingSettings) -> bool:
    """Whether the scheduler in a VM's template was injected: a clone or a restore may bring only one annotation."""
    name = vm.scheduler_name
    return bool(name) and (name in _injected_annotations(vm).values() or _is_only_by_webhook(name, settings))


def _restore_annotations(vm: VirtualMachine) -> Decision:
    """The decision on a VM with an injected scheduler: annotations that a copy has lost are put back."""
    name = vm.scheduler_name
    if all(injected_value == name for injected_value in _injected_annotations(vm).values()):
        return allow(reasons.already_injected(name))
    return _write(vm, name, reasons.annotation_restored(name), _INJECTED_ANNOTATION, _TEMPLATE_ANNOTATION)


def _remove_annotations(vm: VirtualMachine, manifests: Manifests, reason: str) -> Iterator[Change]:
    """The changes that remove the server's annotations, except those that a manifest declares, and would bring back."""
    for path, injected_value in _injected_annotations(vm).items():
        if injected_value is not ABSENT and not manifests.declare(path, injected_value):
            yield Change(path, injected_value, None, reason)


async def schedule_vmi(
    vmi: VirtualMachineInstance, request: Request[VirtualMachineInstance], facts: Facts, settings: SchedulingSettings
) -> Decision:
    """Write the declared scheduler into a new VMI: VM and instancetype have had their say in it by then."""
    if not settings.virtual_machine_instances:
        return allow(common.disabled("scheduling.virtualMachineInstances"))
    if request.operation != "CREATE":
        return allow(common.immutable_after_create("a VMI's schedulerName", request.operation))
    if vmi.spec is None:
        return allow(reasons.no_spec)
    if vmi.scheduler_name:
        is_ours = vmi.meta.annotation(names.INJECTED_SCHEDULER_ANNOTATION) == vmi.scheduler_name
        return allow((reasons.already_injected if is_ours else reasons.owner_chose)(vmi.scheduler_name))
    name = settings.scheduler_name
    objection = await _unfit(name, request.namespace or vmi.meta.namespace or "", facts, settings)
    if objection:
        return objection
    return _write(vmi, name, reasons.injected("the VMI"), _SCHEDULER, _INJECTED_ANNOTATION)


async def _unfit(name: str, namespace: str, facts: Facts, settings: SchedulingSettings) -> Decision | None:
    """Why a scheduler must not be written into anything now; None if it may."""
    declared = settings.schedulers.get(name)
    if declared is None:
        return allow(reasons.undeclared(name), warn=True) if settings.schedulers else allow(reasons.none_declared)
    health = await facts.get(SchedulerKey(name, namespace))
    state = health.state if isinstance(health, SchedulerHealth) else ""
    if health and state == "unavailable":
        return allow(reasons.unavailable(name, health.why), warn=True)
    if state == "available" or declared.assume_alive:
        return None
    why = health.why if health else reasons.no_health_check
    return allow(reasons.health_unknown(name, why), warn=True)


async def _instancetype_objection(
    vm: VirtualMachine, namespace: str, facts: Facts, status: VmStatus | None
) -> Decision | None:
    """Why the VM's instancetype forbids a scheduler in the template; None if it does not.

    KubeVirt denies a VM that sets what its instancetype sets, even to the same value.
    """
    vm_matcher = vm.spec.instancetype if vm.spec else None
    if vm_matcher is None:
        return None
    spec = await _find_instancetype(vm_matcher, namespace, facts, status)
    if isinstance(spec, Decision):
        return spec
    scheduler = spec.scheduler_name if spec else None
    return allow(reasons.instancetype_sets_scheduler(scheduler)) if scheduler else None


async def _find_instancetype(
    vm_matcher: MatcherView, namespace: str, facts: Facts, status: VmStatus | None
) -> InstancetypeSpec | Decision | None:
    """The instancetype of a VM, found as KubeVirt finds it, or the decision on a VM whose instancetype is not known.

    The status is the stored one: None at CREATE, where it is only what the client claims.
    """
    reference = status.instancetype_ref.controller_revision_ref if status and status.instancetype_ref else None
    pinned = vm_matcher.revision_name or (reference.name if reference and vm_matcher.name else None)
    if pinned:
        stored = await facts.get(ObjectKey(REVISIONS, namespace, pinned))
        if isinstance(stored, Unavailable):
            return allow(reasons.instancetype_unreadable(stored.why), warn=True)
        data = stored.data if stored else None
        if stored is None or data is None or not revisions.is_captured(stored.meta, data.kind, data.api_version):
            return _unresolved(f"ControllerRevision {pinned} of an instancetype does not exist")
        # Of a revision in the status the label decides, and the kind is not compared: so it is upstream.
        if vm_matcher.revision_name or stored.meta.label(names.REVISION_OBJECT_NAME_LABEL) == vm_matcher.name:
            is_instancetype = data.kind in (INSTANCETYPES.kind, CLUSTER_INSTANCETYPES.kind)
            return data.spec if is_instancetype else _unresolved("its revision does not hold an instancetype")
    if not vm_matcher.name:
        inferred = "it is still to be inferred from a volume"
        return _unresolved(inferred if vm_matcher.infer_from_volume else "the matcher names none")
    try:
        is_namespaced = INSTANCETYPE_MATCHER.kind_of(vm_matcher.kind or "") == INSTANCETYPES.kind
    except Rejection:
        return _unresolved(f"{vm_matcher.kind} is not a kind of instancetype")
    resource = INSTANCETYPES if is_namespaced else CLUSTER_INSTANCETYPES
    live = await facts.get(ObjectKey(resource, namespace if is_namespaced else "", vm_matcher.name))
    if isinstance(live, Unavailable):
        return allow(reasons.instancetype_unreadable(live.why), warn=True)
    return _unresolved(f"{resource.kind} {vm_matcher.name} does not exist") if live is None else live.spec


def _unresolved(why: str) -> Decision:
    return allow(reasons.instancetype_unresolved(why))


def _write(view: Object, name: str, reason: Reason, *paths: tuple[str, ...]) -> Decision:
    """The decision to write a scheduler's name to all paths: the field and its annotations."""
    old, depths = zip(*[locate(view, path) for path in paths], strict=True)
    # By comparison: a template's annotations may have values of any type, which cannot all be hashed.
    if all(value in _USUAL for value in old):
        changes = _usual_changes(name, reason.code, paths, old, depths)
    else:
        changes = _changes(name, reason.code, paths, old)
    return Decision((reason,), changes, notes={"scheduler": name})


def _changes(name: str, code: str, paths: tuple[tuple[str, ...], ...], old: tuple[object, ...]) -> tuple[Change, ...]:
    """The changes that write a scheduler's name to all paths, for a reason; `ABSENT` is no old value."""
    return tuple(
        Change(path, None if value is ABSENT else value, name, code)
        for path, value in zip(paths, old, strict=True)
        if value != name
    )


@lru_cache(maxsize=64)
def _usual_changes(
    name: str, code: str, paths: tuple[tuple[str, ...], ...], old: tuple[object, ...], depths: tuple[int, ...]
) -> tuple[Change, ...]:
    """As `_changes`, cached: for objects without a tenant's value at these paths, ``depths`` of which exist."""
    written_depths = tuple(depth for value, depth in zip(old, depths, strict=True) if value != name)
    return RepeatedChanges(_changes(name, code, paths, old), written_depths)
