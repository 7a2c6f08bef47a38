"""The section ``migration`` of the settings."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    Field,
)

from webhook.settings.policy_section import FailurePolicy, PolicySettings


class MigrationSettings(PolicySettings):
    """The migration policy: enforces addedNodeSelector, and denies migrations that cannot meet it."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/migration."
    )
    collision: Literal["deny", "warn", "ignore"] = Field(
        default="deny",
        description=(
            "Action for a selector that contradicts the VM's own requirements. ignore: KubeVirt drops the added value,"
            " and the migration goes to a node that the VM itself permits."
        ),
    )
    no_eligible_node: Literal["deny", "warn", "ignore"] = Field(
        default="deny",
        description="Action for a migration without an eligible node. Use warn or ignore with an autoscaler.",
    )
    reserved_keys: Literal["deny", "allow"] = Field(
        default="deny",
        description="Action for a selector with keys that KubeVirt itself sets, for example CPU vendors.",
    )
    require_right: bool = Field(
        default=False,
        description=("Require the verb use on migrationtargets.kubevirt-webhook.github.io in the VM's namespace."),
    )
    via_virtctl: Literal["allow", "deny"] = Field(
        default="allow",
        description=("With requireRight: action for migrations by virtctl, whose user KubeVirt does not pass on."),
    )
    max_unfinished: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Maximum number of unfinished user migrations in a namespace; 0: no limit.",
    )
    max_inbound_per_node: int = Field(
        default=0,
        ge=0,
        le=1000,
        examples=[2],
        description=(
            "Maximum number of migrations that a node receives at the same time; 0: no limit. With a limit, the target"
            " pods of all migrations are evaluated, those of drains too, and each lists the migrations of the cluster."
        ),
    )
    failure_policy: FailurePolicy = Field(
        default="Fail",
        description=(
            "Action for new migrations with addedNodeSelector while kubevirt-webhook is down or cannot determine their"
            " nodes. Fail: they are denied; Ignore: they are allowed, and not enforced."
        ),
    )

    @property
    def fails_closed(self) -> bool:
        """Whether ``failurePolicy`` is Fail."""
        return self.failure_policy == "Fail"
