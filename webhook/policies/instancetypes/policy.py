"""The instancetypes policy as a value."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.k8s.rights import Right
from webhook.kubevirt.resources import NAMED_BY_VMS, PRESETS, REVISIONS, UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.kubevirt.types.views import UnstructuredVm
from webhook.names import INSTANCETYPES
from webhook.policies.instancetypes import match_conditions
from webhook.policies.instancetypes.pools import check_pools
from webhook.policies.instancetypes.reasons import REASONS, SHARED_REASONS
from webhook.policies.instancetypes.settings import DEFAULT_PREFERENCE_SCOPE_ANNOTATION, InstancetypeSettings
from webhook.policies.instancetypes.virtualmachineinstances import fill_vmi
from webhook.policies.instancetypes.virtualmachines import apply_defaults, validate_vm
from webhook.policy import METADATA, OwnerKey, Policy, both_stages

_VMS: Final = UNSTRUCTURED_VMS.decoded_as(UnstructuredVm)


def _looks_at_vms(settings: InstancetypeSettings) -> bool:
    return settings.virtual_machines


def _looks_at_vmis(settings: InstancetypeSettings) -> bool:
    return settings.virtual_machine_instances


POLICY: Final = Policy(
    name=INSTANCETYPES,
    settings=InstancetypeSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    endpoints=(
        *both_stages(
            "mutate",
            INSTANCETYPES,
            _VMS,
            apply_defaults,
            is_on=_looks_at_vms,
            match_conditions=match_conditions.of_vms,
        ),
        *both_stages(
            "mutate",
            INSTANCETYPES,
            UNSTRUCTURED_VMIS,
            fill_vmi,
            is_on=_looks_at_vmis,
            match_conditions=match_conditions.of_vmis,
            denies=True,
        ),
        *both_stages(
            "validate",
            INSTANCETYPES,
            _VMS,
            validate_vm,
            is_on=_looks_at_vms,
            match_conditions=match_conditions.of_validated_vms,
            match_conditions_if_closed=match_conditions.no_update_by_kubevirt,
        ),
    ),
    rights=(
        Right.on(
            *(resource for resource in NAMED_BY_VMS if resource is not PRESETS),
            verbs=("get", "list", "watch"),
            why="what VMs name; get: what has just been created, and what is written out in a VM or VMI",
        ),
        Right.on(REVISIONS, verbs=("get",), why="instancetypes and preferences as they were when a VM took them up"),
        Right.on(PRESETS, verbs=("list", "watch"), why="what gives VMIs a size by their labels"),
    ),
    annotations={
        names.DEFAULT_INSTANCETYPE_ANNOTATION: (),
        names.DEFAULT_PREFERENCE_ANNOTATION: (),
        DEFAULT_PREFERENCE_SCOPE_ANNOTATION: ("unsized", "all"),
        names.ALLOWED_INSTANCETYPES_ANNOTATION: (),
        names.EXPAND_INSTANCETYPES_ANNOTATION: ("true", "false"),
    },
    owner_keys=(
        OwnerKey(INSTANCETYPES, METADATA, METADATA, (names.OFF,)),
        # A VM names them in its spec.
        OwnerKey("instancetype", (), METADATA[1:]),
        OwnerKey("preference", (), METADATA[1:]),
    ),
    marks=(names.INJECTED_INSTANCETYPE_ANNOTATION, names.INJECTED_PREFERENCE_ANNOTATION),
    checks=(check_pools,),
    annotations_decide=True,
)
