"""Types whose values one call of msgspec recognizes, where KubeVirt would write them as they stand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from msgspec import ValidationError

from webhook.kubevirt.go_json.exact import Check, check_of


class Recognized(ABC):
    """A type whose values one call of msgspec recognizes, where they are written as they stand."""

    @property
    @abstractmethod
    def exact(self) -> Any:
        """The type of the values that are written as they stand (`webhook.kubevirt.go_json.exact`)."""

    @abstractmethod
    def take(self, value: Any, live: bool, *, shared: bool = False) -> Any:
        """A copy of a value that is not null, or ``OMITTED``; if ``shared``, with parts of the value itself."""

    @cached_property
    def completed(self) -> Sequence[tuple[str, Any]]:
        """The members that people leave out, and those in which there are such."""
        return ()

    def complete(self, value: Any) -> Any:
        """A value of the type `exact` with what was left out."""
        return value

    @cached_property
    def _check(self) -> Check | None:
        return check_of(self.exact)

    def share(self, value: Any, live: bool) -> Any:
        """A value as it is written, as `take` makes it, which shares with the given one whatever stays as it is.

        Raises:
            WrongValue: as of `take`.
            TooComplex: as of `take`.
        """
        if self._check is not None:
            try:
                self._check(value)
            except ValidationError:
                pass
            else:
                return self.complete(value) if self.completed else value
        return self.take(value, live, shared=True)
