"""The scheduling policy as a value."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.k8s.resources import LEASES, PODS
from webhook.k8s.rights import Right
from webhook.k8s.types.core import SchedulingPod
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, REVISIONS, UNSTRUCTURED_VMS, VMIS
from webhook.kubevirt.resources import INSTANCETYPES as NAMESPACED_INSTANCETYPES
from webhook.kubevirt.types.views import VirtualMachine
from webhook.names import INSTANCETYPES, SCHEDULING
from webhook.policies.common.match_conditions import LAUNCHERS
from webhook.policies.scheduling import match_conditions
from webhook.policies.scheduling.admission_policies import admission_policies
from webhook.policies.scheduling.reasons import REASONS, SHARED_REASONS
from webhook.policies.scheduling.scheduler_name import schedule_pod, schedule_vm, schedule_vmi
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.policies.scheduling.spread import spread_pod, spread_vm, spread_vmi
from webhook.policy import METADATA, OF_TEMPLATE, OwnerKey, Policy, both_stages, combine


def _looks_at_vms(settings: SchedulingSettings) -> bool:
    return settings.virtual_machines or settings.spread_virtual_machines


def _looks_at_vmis(settings: SchedulingSettings) -> bool:
    return settings.virtual_machine_instances or settings.spread_virtual_machine_instances


POLICY: Final = Policy(
    name=SCHEDULING,
    settings=SchedulingSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    # An instancetype may set a scheduler.
    follows=(INSTANCETYPES,),
    endpoints=(
        *both_stages(
            "mutate",
            SCHEDULING,
            UNSTRUCTURED_VMS.decoded_as(VirtualMachine),
            combine(schedule_vm, spread_vm),
            is_on=_looks_at_vms,
            match_conditions=match_conditions.of_vms,
        ),
        *both_stages(
            "mutate",
            SCHEDULING,
            VMIS,
            combine(schedule_vmi, spread_vmi),
            is_on=_looks_at_vmis,
            match_conditions=match_conditions.of_vmis,
        ),
        *both_stages(
            "mutate",
            SCHEDULING,
            PODS.decoded_as(SchedulingPod),
            combine(schedule_pod, spread_pod),
            match_conditions=match_conditions.of_pods,
            object_selector=LAUNCHERS,
        ),
    ),
    rights=(
        Right.on(PODS, verbs=("list", "watch"), why="pods that their scheduler leaves waiting"),
        Right.on(
            LEASES,
            verbs=("get",),
            why="whether a scheduler is available; by no names: settings may declare another scheduler at any time",
        ),
        Right.on(VMIS, verbs=("get",), why="what the owner of a pod chose"),
        Right.on(
            NAMESPACED_INSTANCETYPES,
            CLUSTER_INSTANCETYPES,
            verbs=("get", "list", "watch"),
            why="whether a VM's instancetype sets a scheduler",
        ),
        Right.on(REVISIONS, verbs=("get",), why="instancetypes and preferences as they were when a VM took them up"),
    ),
    annotations={names.SCHEDULER_NAME_ANNOTATION: (), names.SPREAD_ANNOTATION: names.SPREADS},
    owner_keys=(OwnerKey("spread", OF_TEMPLATE[1:], METADATA[1:], names.SPREADS),),
    marks=(names.INJECTED_SCHEDULER_ANNOTATION, names.INJECTED_SPREAD_ANNOTATION),
    admission_policies=admission_policies,
    annotations_decide=True,
)
