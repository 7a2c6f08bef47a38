from __future__ import annotations

import pytest

from tests.golden_files import Golden
from webhook.admission.step_budget import MAX_STEPS, StepBudget, TooComplex, outside_budgets, spend
from webhook.facts import Facts


def test_without_a_review_nothing_is_counted() -> None:
    spend(MAX_STEPS + 1, "terms")


@pytest.mark.control("largest-objects")
def test_the_last_step_may_be_taken(golden: Golden) -> None:
    budget = StepBudget(3)
    budget.run(lambda: spend(3, "terms"))
    assert budget.spent == 3
    with pytest.raises(TooComplex) as caught:
        budget.run(lambda: spend(1, "terms"))
    assert (caught.value.what, caught.value.limit) == ("terms", 3)
    golden(str(caught.value))


@pytest.mark.control("largest-objects")
def test_no_handler_of_policies_swallows_it() -> None:
    assert not issubclass(TooComplex, Exception)


def test_a_budget_is_present_only_while_it_runs() -> None:
    outer, inner = StepBudget(10), StepBudget(10)

    def nested() -> None:
        spend(1, "terms")
        inner.run(lambda: spend(2, "terms"))
        spend(1, "terms")

    outer.run(nested)
    with pytest.raises(ZeroDivisionError):
        outer.run(lambda: 1 // 0)
    spend(100, "terms")

    assert (outer.spent, inner.spent) == (2, 2)


@pytest.mark.control("largest-objects")
def test_what_reviews_share_is_changed_outside_of_their_budgets() -> None:
    budget = StepBudget(10)

    def change(steps: int) -> int:
        spend(steps, "pods")
        return steps

    def review() -> int:
        spend(1, "terms")
        changed = outside_budgets(change)(100)
        with pytest.raises(ZeroDivisionError):
            outside_budgets(lambda: 1 // 0)()
        spend(1, "terms")
        return changed

    assert budget.run(review) == 100
    assert budget.spent == 2
    assert outside_budgets(change)(100) == 100


@pytest.mark.control("largest-objects")
def test_every_review_has_a_budget_of_its_own() -> None:
    assert Facts().budget is not Facts().budget
    assert Facts().budget.limit == MAX_STEPS
