"""The section ``headroom`` of the settings."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from webhook.settings.policy_section import PolicySettings

HEADROOM: Final = "headroom"


class HeadroomSettings(PolicySettings):
    """The headroom policy: VMs start only where any one node may be lost, and where quotas leave room to migrate."""

    enabled: bool = Field(
        default=False,
        description=(
            "Watch all pods and VirtualMachines of the cluster, without which the policy decides nothing. It takes a"
            " role of its own, and some 4 KB of memory for each pod."
        ),
    )
    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/headroom."
    )
    node_loss: bool = Field(
        default=True, description="A VM starts only if any one node may be lost then, whose VMs find room elsewhere."
    )
    migration_quota: bool = Field(
        default=True,
        description="A VM starts only if the namespace's ResourceQuotas leave room for each of its VMs to migrate.",
    )
