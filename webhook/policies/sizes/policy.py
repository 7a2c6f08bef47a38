"""The sizes policy as a value."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.policies.common.namespace_annotations import validates_annotations
from webhook.policies.sizes import match_conditions
from webhook.policies.sizes.reasons import REASONS, SHARED_REASONS
from webhook.policies.sizes.settings import REQUIRE_INSTANCETYPE_ANNOTATION, SIZE_LIMITS_ANNOTATION, SizeSettings
from webhook.policies.sizes.virtualmachineinstances import SizedVmi, validate_vmi
from webhook.policies.sizes.virtualmachines import SizedVm, validate_vm
from webhook.policy import Policy, both_stages

SIZES: Final = "sizes"

POLICY: Final = Policy(
    name=SIZES,
    settings=SizeSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    endpoints=(
        *both_stages(
            "validate",
            SIZES,
            UNSTRUCTURED_VMS.decoded_as(SizedVm),
            validate_vm,
            match_conditions=match_conditions.of_sized_vms,
            match_conditions_if_closed=match_conditions.no_update_by_kubevirt,
        ),
        *both_stages(
            "validate",
            SIZES,
            UNSTRUCTURED_VMIS.decoded_as(SizedVmi),
            validate_vmi,
            match_conditions=match_conditions.of_sized_vmis,
            match_conditions_if_closed=match_conditions.of_sized_vmis_if_closed,
        ),
        *validates_annotations(SIZES, (SIZE_LIMITS_ANNOTATION,)),
    ),
    annotations={
        REQUIRE_INSTANCETYPE_ANNOTATION: ("true", "false"),
        SIZE_LIMITS_ANNOTATION: (),
    },
    annotations_decide=True,
)
