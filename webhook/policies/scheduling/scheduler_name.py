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

import operator
from typing import Final

from webhook import names
from webhook.admission.decision import Change, Decision, Reason, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import Unavailable
from webhook.facts import Facts, ObjectKey, SchedulerHealth, SchedulerKey, Unreadable, VmiKey
from webhook.k8s.json_tree import ABSENT
from webhook.k8s.types.core import SchedulingPod
from webhook.k8s.types.meta import OwnerReference
from webhook.kubevirt.instancetype import revisions
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER
from webhook.kubevirt.launcher import vmi_owner
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES, REVISIONS
from webhook.kubevirt.types.views import InstancetypeSpec, MatcherView, VirtualMachine, VirtualMachineInstance, VmStatus
from webhook.policies.common.injected_defaults import Choice, InjectedDefault, Reasons, Update
from webhook.policies.common.required_facts import is_kubevirts
from webhook.policies.scheduling import reasons
from webhook.policies.scheduling.settings import SchedulingSettings

_FIELD: Final = ("spec", "schedulerName")


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
    change = Change(_FIELD, chosen, names.DEFAULT_SCHEDULER, reason.code)
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
    if not settings.schedulers:
        return allow(reasons.none_declared)
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
    name = settings.scheduler_name
    # After the owner's choice: who chose another scheduler need not hear that this one cannot be used.
    unfit = await _unfit(name, namespace, facts, settings)
    return unfit or SCHEDULER.write(pod, Choice(name, reasons.injected(where)), SCHEDULER.in_objects)


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
    namespace = request.namespace or vm.meta.namespace or ""
    if request.operation == "UPDATE":
        decision = await SCHEDULER.at_update(Update(vm, request.old_object, namespace, facts, settings))
        return decision or allow(reasons.nothing_to_preserve)

    async def choose() -> Choice | Decision:
        name = settings.scheduler_name
        objection = await _unfit(name, namespace, facts, settings)
        objection = objection or await _instancetype_objection(vm, namespace, facts, None)
        return objection or Choice(name, reasons.injected("the VM"))

    return await SCHEDULER.at_create(vm, SCHEDULER.in_vms, settings, choose)


async def _withdraw(update: Update[SchedulingSettings], name: str) -> Reason | None:
    """KubeVirt would deny the VM with the injected scheduler, because of the instancetype that it names now."""
    vm, old = update.vm, update.old
    objection = await _instancetype_objection(vm, update.namespace, update.facts, old.status if old else None)
    before = old.spec.instancetype if old and old.spec else None
    # Beside an instancetype that cannot be resolved yet, a new VM would not get an injected scheduler.
    renamed = (vm.spec.instancetype if vm.spec else None) != before
    unresolved = renamed and objection is not None and objection.code == reasons.INSTANCETYPE_UNRESOLVED
    if objection and (unresolved or objection.code == reasons.INSTANCETYPE_SETS_SCHEDULER):
        return reasons.withdrawn(name, objection.reasons[0].text)
    return None


async def _put_back(update: Update[SchedulingSettings], name: str) -> Reason | Decision:
    """What an overwrite removed is put back while it is declared, and fits the VM's instancetype."""
    if name not in update.settings.schedulers:
        return allow(reasons.not_preserved(name))
    status = update.old.status if update.old else None
    objection = await _instancetype_objection(update.vm, update.namespace, update.facts, status)
    return objection or reasons.preserved(name)


def _is_only_by_webhook(name: str, settings: SchedulingSettings) -> bool:
    """Whether the settings declare that only this server ever chooses a scheduler."""
    declared = settings.schedulers.get(name)
    return declared is not None and declared.only_by_webhook


def _only_by_webhook(name: str, settings: SchedulingSettings) -> str | None:
    return name if _is_only_by_webhook(name, settings) else None


SCHEDULER: Final = InjectedDefault[SchedulingSettings](
    name="scheduler",
    path=_FIELD,
    annotation=names.INJECTED_SCHEDULER_ANNOTATION,
    value=str,
    is_value=operator.eq,
    # Settings may declare any name, and an earlier one may have been removed.
    is_said=lambda text: text is not ABSENT,
    put_back=_put_back,
    withdraw=_withdraw,
    only_ours=_only_by_webhook,
    written_if_unset=names.DEFAULT_SCHEDULER,
    reasons=Reasons(
        present=reasons.already_injected,
        chosen=reasons.owner_chose,
        removed=reasons.owner_removed,
        replaced=None,
        # Only pods with the annotation fall back while the scheduler is unavailable.
        restored=reasons.annotation_restored,
        untouched=reasons.nothing_to_preserve,
    ),
)


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

    async def choose() -> Choice | Decision:
        name = settings.scheduler_name
        objection = await _unfit(name, request.namespace or vmi.meta.namespace or "", facts, settings)
        return objection or Choice(name, reasons.injected("the VMI"))

    return await SCHEDULER.at_create(vmi, SCHEDULER.in_objects, settings, choose)


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
