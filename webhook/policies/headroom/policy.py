"""The headroom policy as a value."""

from __future__ import annotations

from typing import Final

from webhook.k8s.resources import PODS
from webhook.k8s.rights import Right
from webhook.placement.quota import QUOTAS
from webhook.placement.running_pods import RunningPod
from webhook.policies.headroom.checks import check_headroom
from webhook.policies.headroom.match_conditions import STARTING_PODS, of_pods
from webhook.policies.headroom.pods import evaluate_start
from webhook.policies.headroom.reasons import REASONS, SHARED_REASONS
from webhook.policies.headroom.settings import HEADROOM, HeadroomSettings
from webhook.policy import Policy, both_stages

POLICY: Final = Policy(
    name=HEADROOM,
    settings=HeadroomSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    endpoints=both_stages(
        "validate",
        HEADROOM,
        PODS.decoded_as(RunningPod),
        evaluate_start,
        match_conditions=of_pods,
        # A start that cannot be evaluated is one without headroom at worst, and that VMs start is worth more.
        always_ignores=True,
        is_on=lambda settings: settings.enabled,
        object_selector=STARTING_PODS,
    ),
    rights=(Right.on(QUOTAS, verbs=("list",), why="whether a namespace leaves room for migrations"),),
    checks=(check_headroom,),
    judges_what_exists=False,
)
