"""The section ``preemption`` of the settings."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from webhook.settings.fields import Items, Syntax
from webhook.settings.policy_section import PolicySettings

PREEMPTION: Final = "preemption"

User = Annotated[
    str, Syntax("user", "[A-Za-z0-9][-A-Za-z0-9_.:@/]*", 253, "use the user name that the API server's audit log has")
]


class PreemptionSettings(PolicySettings):
    """The preemption policy: VMs move before a scheduler's preemption or a NoExecute taint deletes their pods."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/preemption."
    )
    request_migrations: bool = Field(
        default=False,
        description=(
            "Create a migration for a VM whose pod is to be deleted, which takes a role of its own. Without it, only"
            " VMs that are being migrated already are waited for."
        ),
    )
    schedulers: Items[User] = Field(
        default=("system:kube-scheduler", "system:serviceaccount:kubevirt-scheduler:kubevirt-scheduler"),
        description="The users as which schedulers delete pods.",
    )
    taint_controllers: Items[User] = Field(
        default=("system:serviceaccount:kube-system:node-controller", "system:kube-controller-manager"),
        description="The users as which the controller deletes pods that removes them from tainted nodes.",
    )
    deadline_seconds: int = Field(
        default=300,
        ge=30,
        le=86_400,
        description=(
            "How long after the beginning of its migration a VM's pod is not deleted, whatever the VM's size."
            " Shorter where KubeVirt gives a VM of its size less (completionTimeoutPerGiB)."
        ),
    )
    window_seconds: int = Field(
        default=600,
        ge=0,
        le=86_400,
        description="How long after the end of a migration that it requested no other one is requested for a VM.",
    )
    max_per_cluster: int = Field(
        default=10, ge=1, le=10_000, description="Maximum number of unfinished migrations that it has requested."
    )
    max_priority: int = Field(
        default=1_000_000_000,
        ge=0,
        le=2_147_483_647,
        description=(
            "The highest priority of pods that wait for a VM. The default is the highest that a PriorityClass of users"
            " can have: system-cluster-critical and system-node-critical are higher."
        ),
    )
