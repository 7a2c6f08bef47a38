"""Soft topology spread constraints for virtual machines whose owners wrote none.

The scheduler's scores are whole numbers, so a small VM does not change a large node's score and many VMs pile up on one
node before the next one gets any. A soft constraint counts the launcher pods on each node instead. It needs no second
scheduler, and it can never keep a pod from being scheduled (``ScheduleAnyway``). It counts the pods of one namespace:
that is how Kubernetes defines constraints (KEP-895).

The scheduler gives a node no score that lacks one of the topology keys of a pod (PodTopologySpread, ``IgnoredNodes``).
So the constraint on zones is written only where every node that the pod may use has a zone, and there are two.

The *pod* is always right, because KubeVirt copies a VMI's constraints into its pods: a launcher pod without any belongs
to a VMI without any. In the *VMI* and the *VM* the constraints are visible to the owner; both are off by default.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from webhook import names
from webhook.admission.decision import Decision, Reason, allow
from webhook.admission.wire import Request
from webhook.facts import Facts, NodesKey, Unreadable
from webhook.k8s.types.core import SchedulingPod
from webhook.k8s.types.meta import Object
from webhook.k8s.types.scheduling import TopologySpreadConstraint
from webhook.k8s.types.selectors import Expression
from webhook.kubevirt.launcher import vmi_owner
from webhook.kubevirt.types.views import VirtualMachine, VirtualMachineInstance
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import HOSTNAME, ZONE
from webhook.placement.requirements import Label, Origin, Requirements
from webhook.placement.target_pods import own_requirements
from webhook.policies.common.injected_defaults import Choice, InjectedDefault, Place, Reasons, Update
from webhook.policies.common.ownership import Manifests
from webhook.policies.common.required_facts import is_kubevirts
from webhook.policies.scheduling import reasons
from webhook.policies.scheduling.settings import SchedulingSettings

_TOPOLOGY_KEYS: Final = {"hostname": (HOSTNAME,), "zone": (ZONE,), "both": (ZONE, HOSTNAME)}
# What the pods of all VMs require of nodes.
EVERY_VM: Final = (Label(Origin.SCHEDULABLE, Expression.equals("kubevirt.io/schedulable", "true")),)
# The CRDs' x-kubernetes-list-map-keys.
_KEY: Final = ("topologyKey", "whenUnsatisfiable")
# Whether nodes have zones, which is asked only where it matters.
_Zoned: TypeAlias = Callable[[], Awaitable[bool]]


def constraints(spread: str) -> list[dict[str, Any]]:
    """The constraints of a value of `names.Spread` other than ``off``, as plain JSON.

    Nodes that the pod's selector or affinity excludes, and nodes whose taints it does not tolerate, are not counted:
    they would look empty for good (KEP-3094, both fields in every supported release).
    """
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {names.APP_LABEL: names.LAUNCHER_APP}},
            "nodeAffinityPolicy": "Honor",
            "nodeTaintsPolicy": "Honor",
        }
        for key in _TOPOLOGY_KEYS[spread]
    ]


async def spread_pod(
    pod: SchedulingPod, request: Request[SchedulingPod], facts: Facts, settings: SchedulingSettings
) -> Decision | None:
    """Give a virt-launcher pod soft constraints where its VMI has none; None where there is nothing to say."""
    own = pod.meta.annotation(names.SPREAD_ANNOTATION)
    if _is_unwanted(own, settings) or request.operation != "CREATE" or (pod.spec and pod.spec.node_name):
        return None
    if isinstance(vmi_owner(pod), Reason):
        return None
    try:
        if not await is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return None
    except Unreadable:
        # The policy of the scheduler's name warns of it.
        return None
    return await _evaluate_create(pod, own, settings, lambda: has_zones(facts, _required_by(pod)), SPREAD.in_objects)


def _required_by(pod: SchedulingPod) -> Requirements:
    """What a pod requires of nodes; of one that cannot be decoded, what every VM requires."""
    try:
        return tuple(own_requirements(pod.spec.placed())) if pod.spec else EVERY_VM
    except msgspec.ValidationError:
        return EVERY_VM


async def has_zones(facts: Facts, requirements: Requirements = EVERY_VM) -> bool:
    """Whether every node that meets the requirements has a zone, and there are at least two zones.

    False also where the nodes cannot be read. The default requirements are those of every VM's pod.
    """
    nodes = await facts.get(NodesKey())
    return isinstance(nodes, NodeIndex) and nodes.spans(ZONE, requirements)


async def spread_vmi(
    vmi: VirtualMachineInstance, request: Request[VirtualMachineInstance], facts: Facts, settings: SchedulingSettings
) -> Decision | None:
    """Give a new VMI soft constraints where it has none; KubeVirt copies them into its pods."""
    own = vmi.meta.annotation(names.SPREAD_ANNOTATION)
    if not settings.spread_virtual_machine_instances or _is_unwanted(own, settings):
        return None
    if request.operation != "CREATE" or vmi.spec is None:
        return None
    return await _evaluate_create(vmi, own, settings, lambda: has_zones(facts), SPREAD.in_objects)


async def spread_vm(
    vm: VirtualMachine, request: Request[VirtualMachine], facts: Facts, settings: SchedulingSettings
) -> Decision | None:
    """Give a new VM's template soft constraints where it has none; at UPDATE the owner's word counts."""
    template = vm.template
    if template is None or template.spec is None or vm.meta.deletion_timestamp:
        return None
    if request.operation == "UPDATE":
        # Whatever the settings say now: what was injected earlier must never stand in the owner's way.
        namespace = request.namespace or vm.meta.namespace or ""
        return await SPREAD.at_update(Update(vm, request.old_object, namespace, facts, settings))
    own = _owners_annotation(vm)
    if not settings.spread_virtual_machines or _is_unwanted(own, settings) or request.operation != "CREATE":
        return None
    return await _evaluate_create(vm, own, settings, lambda: has_zones(facts), SPREAD.in_vms)


async def launchers_of(
    vm_or_vmi: VirtualMachineInstance | VirtualMachine,
    settings: SchedulingSettings,
    zoned: _Zoned,
    *,
    annotation: object,
) -> Decision:
    """What the next launcher pods of a VM get, as far as the VM says: KubeVirt copies constraints and annotations.

    The VM itself counts where no VMI exists. ``zoned`` is whether the pods' nodes have zones, see `has_zones`, and
    ``annotation`` the value of the owner's annotation on the VMI or on the VM's template; None for none.
    """
    if _is_unwanted(annotation, settings):
        return allow(reasons.spread_off)
    place = SPREAD.in_vms if isinstance(vm_or_vmi, VirtualMachine) else SPREAD.in_objects
    return await _evaluate_create(vm_or_vmi, annotation, settings, zoned, place)


def without_injected(present: list[dict[str, Any]], injected_value: str, manifests: Manifests) -> list[dict[str, Any]]:
    """What of a VM's constraints, plain JSON, at least one, its owner wrote; empty where all of them were injected.

    What the annotation says that was injected is a value of `names.Spread` other than ``off``.
    """
    if _is_injected(present, injected_value) and not manifests.declare(SPREAD.in_vms.field, present):
        return []
    # The CRDs key this list by topologyKey and whenUnsatisfiable, so server-side apply merges an owner's constraint
    # into an injected one of the same key, and keeps the injected fields that the owner does not name.
    injected = {_key(constraint): constraint for constraint in constraints(injected_value)}
    declared, kept = manifests.declared_items(SPREAD.in_vms.field, *_KEY), []
    for constraint in present:
        key = _key(constraint)
        if key not in injected or (key not in declared and constraint != injected[key]):
            kept.append(constraint)
        elif key in declared:
            kept.append(_select_declared(constraint, declared[key]))
    return kept


def _is_unwanted(own: object, settings: SchedulingSettings) -> bool:
    """Whether neither the namespace nor the owner requests constraints: then there is nothing to report either."""
    return settings.spread == names.OFF and not own


async def _evaluate_create(
    view: Object, own: object, settings: SchedulingSettings, zoned: _Zoned, place: Place
) -> Decision:
    """The decision on a new object.

    The owner's annotation, ``own``, counts before the namespace's. Whether nodes have zones is asked only where a
    constraint on zones is wanted.
    """

    async def choose() -> Choice | Decision:
        spread = own.strip() if isinstance(own, str) else settings.spread
        if spread == names.OFF:
            return allow(reasons.spread_opted_out)
        if spread not in _TOPOLOGY_KEYS:
            return allow(reasons.spread_invalid(spread), warn=True)
        if spread == "hostname" or await zoned():
            return Choice(spread, reasons.spread_injected)
        if spread == "both":
            return Choice("hostname", reasons.spread_hosts_only)
        return allow(reasons.spread_without_zones)

    return await SPREAD.at_create(view, place, settings, choose)


async def _put_back(update: Update[SchedulingSettings], injected_value: str) -> Reason | Decision | None:
    """What an overwrite removed is put back unless the owner's annotation asks for something else."""
    wish = _wish(update, injected_value)
    if wish == names.OFF:
        return allow(reasons.spread_opted_out)
    return None if wish else reasons.spread_preserved(injected_value)


async def _withdraw(update: Update[SchedulingSettings], injected_value: str) -> Reason | None:
    """What was injected gives way where the owner's annotation asks for something else."""
    wish = _wish(update, injected_value)
    return reasons.spread_withdrawn_for(wish) if wish else None


def _wish(update: Update[SchedulingSettings], injected_value: str) -> str:
    """What the owner's annotation asks for instead of what was injected, which the next pods get; empty: nothing.

    Where nodes have no zones, less was injected than the annotation asked for: only another value asks for more.
    """
    own, before = _owners_annotation(update.vm), _owners_annotation(update.old) if update.old else None
    spread = (own or "").strip()
    is_new = spread in _TOPOLOGY_KEYS and spread != injected_value and own != before
    return spread if spread == names.OFF or is_new else ""


def _owners_annotation(vm: VirtualMachine) -> str | None:
    """What the owner of a VM asks for in its template; None: nothing."""
    metadata = vm.template.metadata if vm.template else None
    return metadata.annotation(names.SPREAD_ANNOTATION) if metadata else None


def _is_injected(present: object, injected_value: object) -> bool:
    """Whether constraints are exactly those that the server's annotation says were injected."""
    if not _is_spread(injected_value):
        return False
    injected = constraints(injected_value)
    return present == injected or present == msgspec.convert(injected, list[TopologySpreadConstraint])


def _is_spread(value: object) -> TypeGuard[str]:
    """Whether a value of a template, where any type can stand, is one that constraints are injected for."""
    return isinstance(value, str) and value in _TOPOLOGY_KEYS


def _key(constraint: Mapping[str, Any]) -> tuple[object, ...]:
    """The key by which a constraint is distinguished from the others of its list."""
    return tuple(value if isinstance(value := constraint.get(field), str) else None for field in _KEY)


def _select_declared(value: Any, declared: Mapping[str, Any]) -> Any:
    """The part of plain JSON that a tree of ``fieldsV1`` declares."""
    if not isinstance(value, dict) or not declared:
        return value
    return {
        name: _select_declared(member, declared[f"f:{name}"])
        for name, member in value.items()
        if f"f:{name}" in declared
    }


SPREAD: Final = InjectedDefault[SchedulingSettings](
    name="spread",
    path=("spec", "topologySpreadConstraints"),
    annotation=names.INJECTED_SPREAD_ANNOTATION,
    value=constraints,
    is_value=_is_injected,
    is_said=_is_spread,
    owners_part=without_injected,
    put_back=_put_back,
    withdraw=_withdraw,
    reasons=Reasons(
        present=reasons.spread_present,
        chosen=lambda _: reasons.spread_chosen,
        removed=reasons.spread_removed,
        replaced=reasons.spread_withdrawn,
        restored=None,
        # That of the scheduler's name says it.
        untouched=None,
    ),
)
