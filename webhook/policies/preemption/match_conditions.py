"""CEL that keeps deletions away of pods that nobody has announced to disrupt; evictions through the API pass, too.

Who may be waited for, the settings say; they take effect without a change of the webhook configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.policies.preemption.settings import PreemptionSettings

_CONDITIONS: Final = "oldObject.status.conditions"


def of_deletions(_: PreemptionSettings) -> Mapping[str, str]:
    """The conditions on deletions, by name: both write a condition into the pod first, which may be False again."""
    has_any = f"has(oldObject.status) && has({_CONDITIONS})"
    return {"disrupted": f'{has_any} && {_CONDITIONS}.exists(each, each.type == "DisruptionTarget")'}
