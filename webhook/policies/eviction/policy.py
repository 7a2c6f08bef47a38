"""The eviction policy as a value."""

from __future__ import annotations

from typing import Final

from webhook.k8s.resources import PODS
from webhook.k8s.rights import Right
from webhook.k8s.types.core import Eviction
from webhook.names import EVICTION
from webhook.placement.machines import MIGRATIONS
from webhook.policies.common import migration_targets
from webhook.policies.eviction import match_conditions
from webhook.policies.eviction.pods import evaluate_eviction
from webhook.policies.eviction.reasons import REASONS, SHARED_REASONS
from webhook.policies.eviction.settings import EvictionSettings
from webhook.policy import Policy, Subresource, both_stages

POLICY: Final = Policy(
    name=EVICTION,
    settings=EvictionSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    endpoints=(
        # It never changes anything, but only a mutating webhook is called before virt-api sets the VM's
        # evacuationNodeName.
        *both_stages(
            "mutate",
            EVICTION,
            PODS.decoded_as(Eviction),
            evaluate_eviction,
            match_conditions=match_conditions.of_evictions,
            denies=True,
            subresource=Subresource("eviction", "policy", "Eviction"),
        ),
    ),
    rights=(
        Right.on(PODS, verbs=("get",), why="a pod that is to be evicted"),
        *migration_targets.RIGHTS,
        *migration_targets.QUOTA_RIGHTS,
        Right.on(MIGRATIONS, verbs=("list",), why="how many migrations are unfinished"),
        Right.on(MIGRATIONS, verbs=("list",), why="when a VM's migrations have ended"),
    ),
)
