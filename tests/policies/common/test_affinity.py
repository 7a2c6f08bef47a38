from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import Json
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.policies.common.affinity import add_expressions, add_missing

EXPRESSIONS: list[Json] = [{"key": f"zone-{number}", "operator": "Exists"} for number in range(4)]


def test_whatever_an_owner_wrote_stays_and_what_is_there_is_not_added_again() -> None:
    assert add_missing(EXPRESSIONS[:2], EXPRESSIONS[1:3]) == EXPRESSIONS[:3]
    terms: list[Json] = [{"matchExpressions": EXPRESSIONS[:2]}, {"matchFields": [{"key": "metadata.name"}]}]
    assert add_expressions(terms, [{"matchExpressions": EXPRESSIONS[1:3]}]) == [
        {"matchExpressions": EXPRESSIONS[:3]},
        {"matchFields": [{"key": "metadata.name"}], "matchExpressions": EXPRESSIONS[1:3]},
    ]
    nothing: list[Json] = [{}, {"matchExpressions": []}, {"matchExpressions": "text"}]
    assert add_expressions(nothing, [{"matchExpressions": EXPRESSIONS}]) == nothing


@pytest.mark.parametrize(
    "add",
    [
        add_missing,
        lambda present, added: add_expressions([{"matchExpressions": present}], [{"matchExpressions": added}]),
    ],
    ids=["items", "expressions"],
)
def test_each_item_is_paid_for_with_each_that_is_added(add: Callable[[Any, Any], Any]) -> None:
    """A comparison of two lists costs the product of their lengths, of which a tenant chooses one."""
    present = [{"key": str(number)} for number in range(100)]
    assert StepBudget(300).run(add, present, EXPRESSIONS[:3])
    with pytest.raises(TooComplex):
        StepBudget(300).run(add, present, EXPRESSIONS)
