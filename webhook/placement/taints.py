"""Which taints are tolerated (k8s.io/api, core/v1/toleration.go)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook.placement.affinity import Toleration
from webhook.placement.node import Taint

_EQUAL: Final = "Equal"
_EXISTS: Final = "Exists"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint: no effect covers all effects, no key all keys, no operator means Equal.

    Gt and Lt cover nothing, as in the API server's own default: the feature is behind a gate that is closed.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in {None, "", _EQUAL}:
        return (toleration.value or "") == taint.value
    return toleration.operator == _EXISTS


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether any of them covers a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


class Tolerated:
    """The taints that some tolerations cover, as `is_tolerated` evaluates them, by look-up instead of comparison.

    Taints and tolerations may both be thousands.

    Args:
        tolerations: the tolerations of a pod or a VMI.
    """

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._covered: Final[set[tuple[str, str, str | None]]] = set()
        for each in tolerations:
            operator = each.operator or _EQUAL
            if operator == _EXISTS:
                self._covered.add((each.key or "", each.effect or "", None))
            elif operator == _EQUAL:
                self._covered.add((each.key or "", each.effect or "", each.value or ""))

    def covers(self, taint: Taint) -> bool:
        """Whether any of the tolerations covers a taint."""
        for key in (taint.key, ""):
            for effect in (taint.effect, ""):
                if (key, effect, None) in self._covered or (key, effect, taint.value) in self._covered:
                    return True
        return False
