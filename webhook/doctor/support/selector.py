"""Label selectors of webhook entries, evaluated as the API server does (apimachinery, ``metav1.LabelSelector``)."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.k8s.types.selectors import LabelSelector


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches an object with these labels. An empty or absent selector matches all.

    A malformed one counts as a match: the API server does not accept it, and a false alarm is better than a missed one.
    """
    if selector is None:
        return True
    expressions = selector.expressions()
    if any(expression.problems() for expression in expressions):
        return True
    return all(expression.accepts(labels.get(expression.key)) for expression in expressions)
