"""The groups policy as a value."""

from __future__ import annotations

from typing import Final

from webhook.k8s.resources import PODS
from webhook.k8s.rights import Right
from webhook.k8s.types.core import Eviction
from webhook.k8s.types.meta import Object
from webhook.kubevirt.resources import UNSTRUCTURED_VMS, VMIS
from webhook.placement.machines import MIGRATIONS
from webhook.policies.common import migration_targets
from webhook.policies.common.namespace_annotations import validates_annotations
from webhook.policies.groups import additions, match_conditions
from webhook.policies.groups.checks import check_groups
from webhook.policies.groups.evictions import evaluate_eviction
from webhook.policies.groups.pods import observe_pod, place_pod
from webhook.policies.groups.reasons import REASONS, SHARED_REASONS
from webhook.policies.groups.settings import GROUPS, GROUPS_ANNOTATION, INJECTED_ANNOTATION, GroupSettings
from webhook.policies.groups.views import GroupedPod, GroupedVm
from webhook.policies.groups.virtualmachineinstancemigrations import validate_migration
from webhook.policies.groups.virtualmachineinstances import record_group
from webhook.policies.groups.virtualmachines import warn_of_group
from webhook.policy import METADATA, OF_TEMPLATE, OwnerKey, PodAdder, Policy, Subresource, both_stages

POLICY: Final = Policy(
    name=GROUPS,
    settings=GroupSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    endpoints=(
        *both_stages(
            "mutate",
            GROUPS,
            UNSTRUCTURED_VMS.decoded_as(GroupedVm),
            warn_of_group,
            match_conditions=match_conditions.of_vms,
        ),
        *both_stages(
            "mutate",
            GROUPS,
            VMIS.decoded_as(Object),
            record_group,
            match_conditions=match_conditions.of_vmis,
            object_selector=match_conditions.IN_A_GROUP,
        ),
        *both_stages(
            "mutate",
            GROUPS,
            PODS.decoded_as(GroupedPod),
            place_pod,
            observer=observe_pod,
            match_conditions=match_conditions.of_pods,
            object_selector=match_conditions.PODS_IN_A_GROUP,
        ),
        # It never changes anything, but only a mutating webhook is called before virt-api marks the VM. Under overload
        # it denies nobody: what it denies could only fail, and drains must not wait.
        *both_stages(
            "mutate",
            GROUPS,
            PODS.decoded_as(Eviction),
            evaluate_eviction,
            match_conditions=match_conditions.of_evictions,
            subresource=Subresource("eviction", "policy", "Eviction", "evictions"),
        ),
        *both_stages(
            "validate",
            GROUPS,
            MIGRATIONS,
            validate_migration,
            match_conditions=match_conditions.of_migrations,
        ),
        *validates_annotations(GROUPS, (GROUPS_ANNOTATION,)),
    ),
    rights=(
        Right.on(PODS, verbs=("get",), why="a pod that is to be evicted"),
        *migration_targets.RIGHTS,
    ),
    annotations={GROUPS_ANNOTATION: ()},
    owner_keys=(OwnerKey("group", OF_TEMPLATE[:1], METADATA[:1]),),
    marks=(INJECTED_ANNOTATION,),
    checks=(check_groups,),
    pods=PodAdder(adds=additions.added_to_next, added=additions.added_to_present),
)
