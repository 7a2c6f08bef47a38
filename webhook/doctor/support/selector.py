"""Label selectors of webhook entries, evaluated as the API server does (apimachinery, ``metav1.LabelSelector``)."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.doctor.support.views import Selector
from webhook.placement.expression import Expression


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels is selected. An empty selector selects all.

    So does a malformed one, which the API server takes from nobody: better a false alarm than a false calm.
    """
    if selector is None:
        return True
    expressions = [Expression.equals(key, value) for key, value in (selector.match_labels or {}).items()]
    expressions += [
        Expression(one.key, one.operator, tuple(one.values or ())) for one in selector.match_expressions or ()
    ]
    if any(expression.problems() for expression in expressions):
        return True
    return all(expression.accepts(labels.get(expression.key)) for expression in expressions)
