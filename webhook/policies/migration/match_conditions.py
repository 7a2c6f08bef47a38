"""CEL that keeps requests away which the policy would allow without changes anyway."""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.placement.machines import JOB_NAME, JOB_UID
from webhook.policies.common.match_conditions import BY_A_USER, LAUNCHERS, made_by_kubevirt, unset
from webhook.policies.migration.settings import MigrationSettings

_ADDS: Final = "has(object.spec.addedNodeSelector) && size(object.spec.addedNodeSelector) > 0"
_MIGRATION_NAME: Final = f'object.metadata.annotations["{JOB_NAME}"]'
_OF_A_DRAIN: Final = (
    f'has(object.metadata.annotations) && "{JOB_NAME}" in object.metadata.annotations && ('
    + " || ".join(f'{_MIGRATION_NAME}.startsWith("{prefix}")' for prefix in names.OWN_MIGRATIONS)
    + ")"
)
# Target pods: those that a migration has made.
TARGET_PODS: Final[dict[str, Any]] = {
    **LAUNCHERS,
    "matchExpressions": [{"key": JOB_UID, "operator": "Exists"}],
}


def with_a_selector(_: MigrationSettings) -> dict[str, str]:
    """The conditions on migrations that may be denied, by name."""
    return {"adds-a-selector": _ADDS}


def without_a_selector(_: MigrationSettings) -> dict[str, str]:
    """The conditions on migrations that are only warned of, by name."""
    # KubeVirt's own migrations, for example evacuations, must not wait for kubevirt-webhook.
    return {"adds-no-selector": f"!({_ADDS})", "made-by-a-user": BY_A_USER}


def of_target_pods(settings: MigrationSettings) -> dict[str, str]:
    """The conditions on target pods, by name."""
    conditions = {
        "made-by-kubevirt": made_by_kubevirt(settings.kubevirt_namespace),
        "unbound": unset("object.spec", "nodeName"),
    }
    # Drains must not wait for kubevirt-webhook; other migrations with such a name and a selector are denied.
    return conditions if settings.max_inbound_per_node else {**conditions, "not-of-a-drain": f"!({_OF_A_DRAIN})"}
