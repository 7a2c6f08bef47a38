"""The preemption policy as a value."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.k8s.resources import PODS
from webhook.k8s.rights import Right
from webhook.placement.machines import MIGRATIONS
from webhook.policies.common import migration_targets
from webhook.policies.preemption.checks import check_preemption
from webhook.policies.preemption.match_conditions import of_deletions
from webhook.policies.preemption.pods import evaluate_deletion
from webhook.policies.preemption.reasons import REASONS, SHARED_REASONS
from webhook.policies.preemption.settings import PREEMPTION, PreemptionSettings
from webhook.policies.preemption.views import DISRUPTED_PODS
from webhook.policy import Policy, both_stages

POLICY: Final = Policy(
    name=PREEMPTION,
    settings=PreemptionSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    endpoints=both_stages(
        "validate",
        PREEMPTION,
        DISRUPTED_PODS,
        evaluate_deletion,
        match_conditions=of_deletions,
        # What cannot be evaluated goes as it would without this policy.
        denies=False,
        operations=("DELETE",),
        object_selector={"matchLabels": {names.APP_LABEL: names.LAUNCHER_APP}},
    ),
    checks=(check_preemption,),
    rights=(
        *migration_targets.RIGHTS,
        *migration_targets.QUOTA_RIGHTS,
        Right.on(PODS, verbs=("list",), why="which pods wait for the room of a VM, and whether its target pod has any"),
        Right.on(MIGRATIONS, verbs=("list",), why="whether a VM migrates, and which migrations were requested"),
    ),
)
