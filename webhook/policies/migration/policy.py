"""The migration policy as a value."""

from __future__ import annotations

from typing import Final

from webhook.k8s.resources import PODS
from webhook.k8s.rights import Right
from webhook.k8s.types.core import TargetPod
from webhook.names import MIGRATION
from webhook.placement.machines import MIGRATIONS
from webhook.policies.common import migration_targets
from webhook.policies.migration import match_conditions
from webhook.policies.migration.admission_policies import admission_policies
from webhook.policies.migration.checks import check_pinning
from webhook.policies.migration.pods import constrain_pod
from webhook.policies.migration.reasons import REASONS, SHARED_REASONS
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.migration.virtualmachineinstancemigrations import validate_migration, warn_of_migration
from webhook.policy import Policy, both_stages

POLICY: Final = Policy(
    name=MIGRATION,
    settings=MigrationSettings,
    reasons=REASONS,
    shared_reasons=SHARED_REASONS,
    endpoints=(
        *both_stages(
            "mutate",
            MIGRATION,
            MIGRATIONS,
            warn_of_migration,
            match_conditions=match_conditions.without_a_selector,
        ),
        *both_stages(
            "mutate",
            MIGRATION,
            PODS.decoded_as(TargetPod),
            constrain_pod,
            match_conditions=match_conditions.of_target_pods,
            object_selector=match_conditions.TARGET_PODS,
        ),
        *both_stages(
            "validate",
            MIGRATION,
            MIGRATIONS,
            validate_migration,
            match_conditions=match_conditions.with_a_selector,
        ),
    ),
    rights=(
        *migration_targets.RIGHTS,
        Right.on(MIGRATIONS, verbs=("get",), why="the selector that a target pod gets"),
        Right.on(MIGRATIONS, verbs=("list",), why="how many migrations are unfinished"),
        Right(
            "authorization.k8s.io",
            ("subjectaccessreviews",),
            ("create",),
            "may a user choose nodes, or see their names?",
        ),
    ),
    checks=(check_pinning,),
    admission_policies=admission_policies,
)
