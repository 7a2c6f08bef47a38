"""Which taints are tolerated (k8s.io/api, core/v1/toleration.go)."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.placement.node import Taint
from webhook.placement.workload import Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint: no effect covers all effects, no key all keys, no operator means Equal.

    Gt and Lt cover nothing, as in the API server's own default: the feature is behind a gate that is closed.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in {None, "", "Equal"}:
        return (toleration.value or "") == taint.value
    return toleration.operator == "Exists"


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether any of them covers a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)
