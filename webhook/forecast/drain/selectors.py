"""Which pods a rule between pods is about: by their namespace and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from webhook.forecast.drain.views import LabelSelector
from webhook.placement.expression import IN, Expression

Labels = Mapping[str, str]


class PodSelector(msgspec.Struct, frozen=True):
    """Pods by namespace and labels.

    Attributes:
        namespaces: None: all.
        expressions: all must hold; None: no pod is meant, as by an absent selector.
    """

    namespaces: frozenset[str] | None
    expressions: tuple[Expression, ...] | None

    def matches(self, namespace: str, labels: Labels) -> bool:
        """Whether a pod with these labels is meant."""
        if self.expressions is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return all(one.accepts(labels.get(one.key)) for one in self.expressions)

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Labels of which every pod that is meant has one; empty: there are none to look pods up by."""
        equal = next((one for one in self.expressions or () if one.operator == IN), None)
        return tuple((equal.key, value) for value in equal.values) if equal else ()


def expressions_of(selector: LabelSelector | None, more: tuple[Expression, ...] = ()) -> tuple[Expression, ...] | None:
    """The expressions of a label selector; None where it matches nothing: an absent or a malformed one.

    Args:
        selector: the selector.
        more: what Kubernetes adds to it.
    """
    if selector is None:
        return None
    found = (*_written(selector), *more)
    return None if any(one.problems() for one in found) else found


def _written(selector: LabelSelector) -> Iterator[Expression]:
    for key, value in (selector.match_labels or {}).items():
        yield Expression.equals(key, value)
    for one in selector.match_expressions or ():
        if one is not None:
            yield Expression(one.key or "", one.operator or "", tuple(one.values or ()))


def of_labels(keys: list[str] | None, labels: Labels, operator: str = IN) -> Iterator[Expression]:
    """What ``matchLabelKeys`` (or, with `NOT_IN`, ``mismatchLabelKeys``) add to the selector of a pod.

    Args:
        keys: labels; those that the pod does not have count for nothing.
        labels: the pod's own.
        operator: how the values of others compare to the pod's.
    """
    for key in keys or ():
        if key in labels:
            yield Expression(key, operator, (labels[key],))


def select_namespaces(selector: LabelSelector, namespaces: Mapping[str, Labels]) -> frozenset[str] | None:
    """The namespaces with labels that a selector matches; None: all, whichever there are."""
    expressions = expressions_of(selector)
    if expressions == ():
        return None
    return frozenset(
        name for name, labels in namespaces.items() if PodSelector(None, expressions).matches(name, labels)
    )
