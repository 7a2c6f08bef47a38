"""Strings, booleans, numbers and quantities, as Go's structs read and write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from msgspec import Meta

from webhook.admission.step_budget import spend
from webhook.k8s import quantity
from webhook.kubevirt.go_json.exact import NEVER
from webhook.kubevirt.go_json.exact import QUANTITY as EXACT_QUANTITY
from webhook.kubevirt.go_json.scalars import check_quantity, integer_check

OMITTED: Final = object()
# What uses up a review's work, for the message.
LISTED: Final = "lists and maps, read anew for each step of KubeVirt's,"
_NUMBER_STEPS: Final = 20
# msgspec compares with no larger bound.
_MOST_EXACT: Final = 2**63 - 1


def _exact(kept: type | None, *, omitted: bool) -> Any:
    """The type of the values of a Python type that are written as they stand."""
    if not omitted:
        return kept or NEVER
    return Annotated[str, Meta(min_length=1)] if kept is str else NEVER


class Scalar:
    """A string, boolean, number or quantity.

    Args:
        check: the value as it is to be kept; raises `WrongValue`.
        zero: what Go takes for absent; falsy.
        omitted: the zero is not written.
        always: the zero is written even when there is no value.
        kept: the type whose values `check` keeps as they are, so that it need not be called.
        exact: the type of the values that are written as they stand; None: ``kept``, but for an omitted zero.

    Attributes:
        exact: that type, for `webhook.kubevirt.go_json.exact`.
    """

    __slots__ = ("_check", "_omitted", "always", "exact", "kept", "zero")

    def __init__(
        self,
        check: Callable[[Any], Any],
        zero: Any,
        *,
        omitted: bool = False,
        always: bool = False,
        kept: type | None = None,
        exact: Any = None,
    ) -> None:
        self.exact: Final = exact or _exact(kept, omitted=omitted)
        self._check = check
        self.zero: Final = zero
        self._omitted = omitted
        self.always: Final = always
        self.kept: Final = kept

    def take(self, value: Any, live: bool) -> Any:
        """A copy of a value that is not null; ``OMITTED`` for a zero that Go's ``omitempty`` drops.

        Raises:
            WrongValue: the value is of another kind.
        """
        checked = value if type(value) is self.kept else self._check(value)
        return checked if checked or not self._omitted else OMITTED

    def share(self, value: Any, live: bool) -> Any:
        """The same as `take`: a scalar has no parts."""
        return self.take(value, live)

    def absent(self, live: bool) -> Any:
        """The zero where Go writes it without a value, else ``OMITTED``."""
        return self.zero if self.always else OMITTED


class WholeNumber(Scalar):
    """A whole number between two bounds, both included.

    Args:
        least: the lower bound.
        most: the upper bound.
        omitted: zero is not written.
        always: zero is written even when there is no value.
    """

    __slots__ = ("_least", "_most")

    def __init__(self, least: int, most: int, *, omitted: bool = False, always: bool = False) -> None:
        bounds = Meta(ge=max(least, int(omitted)), le=min(most, _MOST_EXACT))
        super().__init__(integer_check(least, most), 0, omitted=omitted, always=always, exact=Annotated[int, bounds])
        self._least: Final = least
        self._most: Final = most

    def take(self, value: Any, live: bool) -> Any:
        """The number; ``OMITTED`` for a zero that Go's ``omitempty`` drops.

        Raises:
            WrongValue: the value is another one.
        """
        if type(value) is int and value and self._least <= value <= self._most:
            return value
        return super().take(value, live)


class Amount(Scalar):
    """A quantity. Read, it stays as it was written, which can decide over its value; written, it is canonical.

    Args:
        always: the zero is written even when there is no value.
        computed: KubeVirt's steps compute it; such a value is always looked at, since it is no plain text yet.
    """

    __slots__ = ()

    def __init__(self, *, always: bool = False, computed: bool = False) -> None:
        super().__init__(check_quantity, "0", always=always, exact=NEVER if computed else EXACT_QUANTITY)

    def take(self, value: Any, live: bool) -> Any:
        """The quantity, as it was written where ``live`` is set, else in its canonical form.

        Raises:
            WrongValue: the value is not a quantity.
            TooComplex: the review has no steps left for it.
        """
        # A long one, with a large exponent, takes a hundred microseconds.
        spend(1 + len(value) if isinstance(value, str) else _NUMBER_STEPS, LISTED)
        written = super().take(value, live)
        return quantity.text(value) if live else written
