"""How much computing one review may take, counted in steps and not in time.

Tenants choose how long the lists of their objects are, and all reviews share one event loop. So every loop over what a
tenant wrote says beforehand how many steps it takes (`spend`), and a review that would take more than `MAX_STEPS` ends
with `TooComplex`, on every machine and under any load alike. A step is about what one element of a list costs, a
microsecond or two.

The budget belongs to one review: `StepBudget.run` makes it the present one while a policy runs, until it suspends.
Outside of reviews, in tests and on the command line of `expand`, no budget is the present one, and nothing is counted.

What reviews share is changed outside of all budgets (`outside_budgets`): a change that ends between two of its steps
would leave it wrong for all later reviews.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Final, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

# The largest VM that KubeVirt's CRDs admit, 256 disks, volumes, interfaces, networks and data volumes, takes half of it
# to be expanded and a seventh to be given defaults; an everyday migration takes 100 steps. All of it takes some 150 ms.
MAX_STEPS: Final = 50_000


class TooComplex(BaseException):
    """A review would take more steps than it may. A BaseException, so that no ``except Exception`` swallows it.

    Args:
        what: the part of the object that used up the budget, as a noun phrase.
        limit: the steps that a review may take.
    """

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what: Final = what
        self.limit: Final = limit

    def __str__(self) -> str:
        return f"the object is too complex: {self.what} take it beyond the {self.limit} steps that a review may take"


class StepBudget:
    """The budget of one review.

    Args:
        limit: the steps that it may take.

    Attributes:
        spent: the steps so far.
    """

    __slots__ = ("limit", "spent")

    def __init__(self, limit: int = MAX_STEPS) -> None:
        self.limit = limit
        self.spent = 0

    def run(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """The result of a function whose steps this budget pays for; `TooComplex` where it does not suffice."""
        token = _present.set(self)
        try:
            return function(*arguments, **named)
        finally:
            _present.reset(token)


_present: Final[ContextVar[StepBudget | None]] = ContextVar("step_budget", default=None)


def outside_budgets(function: Callable[P, T]) -> Callable[P, T]:
    """Have no budget pay for a function, so that it never ends by `TooComplex`; not for generators.

    It is for whatever changes what reviews share. What that may cost has to be limited otherwise.
    """

    @wraps(function)
    def run(*arguments: P.args, **named: P.kwargs) -> T:
        if _present.get() is None:
            return function(*arguments, **named)
        token = _present.set(None)
        try:
            return function(*arguments, **named)
        finally:
            _present.reset(token)

    return run


def spend(steps: int, what: str) -> None:
    """Take steps from the budget of the present review, before they are taken.

    Args:
        steps: the steps that the next part takes.
        what: the part of the object that needs them, a noun phrase in the plural, for the message.

    Raises:
        TooComplex: so many are not left.
    """
    budget = _present.get()
    if budget is not None:
        budget.spent += steps
        if budget.spent > budget.limit:
            raise TooComplex(what, budget.limit)
