"""The defaults policy as a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.k8s.resources import PODS
from webhook.k8s.rights import Right
from webhook.kubevirt.resources import VMIS
from webhook.names import INSTANCETYPES, OFF
from webhook.policies.common.match_conditions import LAUNCHERS, made_by_kubevirt, unset
from webhook.policies.common.namespace_annotations import validates_annotations
from webhook.policies.defaults import additions, rows
from webhook.policies.defaults.checks import check_defaults
from webhook.policies.defaults.pods import default_pod, observe_pod
from webhook.policies.defaults.reasons import REASONS, SHARED_REASONS
from webhook.policies.defaults.settings import ANNOTATIONS, DEFAULTS, DefaultsSettings
from webhook.policies.defaults.views import DefaultedPod, DefaultedVmi
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES, default_vmi
from webhook.policy import METADATA, OF_TEMPLATE, OwnerKey, PodAdder, Policy, both_stages


def _of_vmis(_: DefaultsSettings) -> Mapping[str, str]:
    return {"has-a-spec": "has(object.spec)"}


def _of_pods(settings: DefaultsSettings) -> Mapping[str, str]:
    return {
        "made-by-kubevirt": made_by_kubevirt(settings.kubevirt_namespace),
        "unbound": unset("object.spec", "nodeName"),
    }


POLICY: Final = Policy(
    name=DEFAULTS,
    settings=DefaultsSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    # What an instancetype sets in a VMI without a VM is its owner's choice.
    follows=(INSTANCETYPES,),
    endpoints=(
        *both_stages("mutate", DEFAULTS, VMIS.decoded_as(DefaultedVmi), default_vmi, match_conditions=_of_vmis),
        *both_stages(
            "mutate",
            DEFAULTS,
            PODS.decoded_as(DefaultedPod),
            default_pod,
            observer=observe_pod,
            match_conditions=_of_pods,
            object_selector=LAUNCHERS,
        ),
        *validates_annotations(DEFAULTS, ANNOTATIONS.values()),
    ),
    rights=(Right.on(PRIORITY_CLASSES, verbs=("get",), why="whether the default PriorityClass exists"),),
    annotations=dict.fromkeys(ANNOTATIONS.values(), ()),
    owner_keys=(OwnerKey(DEFAULTS, OF_TEMPLATE, METADATA, (OFF,)),),
    marks=tuple(default.annotation for default in rows.ALL),
    checks=(check_defaults,),
    pods=PodAdder(adds=additions.added_to_next, added=additions.added_to_present),
    annotations_decide=True,
)
