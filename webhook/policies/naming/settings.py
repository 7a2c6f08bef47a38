"""The section ``naming`` of the settings."""

from __future__ import annotations

from pydantic import Field

from webhook.settings.policy_section import PolicySettings


class NamingSettings(PolicySettings):
    """The naming policy: denies new VMs whose names are too long for KubeVirt to migrate them."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/naming."
    )
