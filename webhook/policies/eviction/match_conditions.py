"""CEL that keeps requests away which the policy would allow without changes anyway."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.policies.common.match_conditions import BY_A_USER
from webhook.policies.eviction.pods import REQUESTED_BY
from webhook.policies.eviction.settings import EvictionSettings

_LAUNCHER_NAME: Final = f'request.name.startsWith("{names.LAUNCHER_APP}-")'


def of_evictions(settings: EvictionSettings) -> dict[str, str]:
    """The conditions on Evictions, by name."""
    annotations, requester = "object.metadata.annotations", f'"{REQUESTED_BY}"'
    value, listed = f"{annotations}[{requester}]", ", ".join(f'"{each}"' for each in settings.requesters)
    # Drains must not wait for kubevirt-webhook. An Eviction lacks its pod's labels, so its name is tested.
    return {
        # Pods that copy disks have names of many kinds.
        **({} if settings.protect_transfers_seconds else {"of-a-launcher-pod": _LAUNCHER_NAME}),
        "requested-by": f"has({annotations}) && {requester} in {annotations} && {value} in [{listed}]",
        "not-by-kubevirt": BY_A_USER,
    }
