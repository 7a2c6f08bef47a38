"""CEL that keeps the target pods of migrations away, and an objectSelector that keeps all other pods away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.placement.machines import JOB_UID
from webhook.policies.common.match_conditions import LAUNCHERS
from webhook.policies.headroom.settings import HeadroomSettings

STARTING_PODS: Final[dict[str, Any]] = {**LAUNCHERS, "matchExpressions": [{"key": JOB_UID, "operator": "DoesNotExist"}]}


def of_pods(_: HeadroomSettings) -> Mapping[str, str]:
    """The conditions on pods, by name: a pod that is bound is not scheduled."""
    return {"not-bound": '!has(object.spec.nodeName) || object.spec.nodeName == ""'}
