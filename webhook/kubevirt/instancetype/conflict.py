"""What stands in the way of a virtual machine, in KubeVirt's own words where it has some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from webhook.errors import InputError

CAUSES_SHOWN: Final = 10


class Rejection(InputError):  # noqa: N818 - an answer, not a fault
    """KubeVirt, or the rules here in its place, would not accept an object; ``what`` is the text for the user."""


class NotFound(Rejection):
    """An object that is needed does not exist; the text is the API server's.

    Args:
        plural: the resource with its group, for example ``datasources.cdi.kubevirt.io``.
        name: the object's name.
    """

    def __init__(self, plural: str, name: str) -> None:
        super().__init__(f'{plural} "{name}" not found')


class Crash(Rejection):
    """KubeVirt would crash on this, which users see as a failed call of its webhook."""


class Cause(Rejection):
    """One cause of a denial, as ``status.details.causes`` of an API answer carries it.

    Args:
        reason: ``FieldValueInvalid``, ``FieldValueNotFound`` or ``FieldValueNotSupported``.
        message: the text for people.
        field: the path, several joined by ``", "``.
    """

    def __init__(self, reason: str, message: str, field: str) -> None:
        super().__init__(message)
        self.reason: Final = reason
        self.field: Final = field

    def as_json(self) -> dict[str, str]:
        """The cause on the wire, where no field is none at all."""
        said = {"reason": self.reason, "message": self.what, "field": self.field}
        return {key: value for key, value in said.items() if value}


class Conflict(Cause):
    """A field that both the VM and its instancetype set.

    Args:
        path: the field's path in the object that the user knows.
    """

    def __init__(self, path: str) -> None:
        super().__init__("FieldValueInvalid", conflict_sentence([path]), path)


class Conflicts(Rejection):
    """All fields that both the VM and its instancetype set.

    Args:
        conflicts: the fields, in KubeVirt's order.
        what: the text that a user sees; empty: that of KubeVirt's webhook for VMs.
    """

    def __init__(self, conflicts: Iterable[Conflict], what: str = "") -> None:
        self.conflicts: Final = tuple(conflicts)
        super().__init__(what or conflict_sentence(self.paths))

    @property
    def paths(self) -> list[str]:
        """The paths of the fields, in KubeVirt's order."""
        return [conflict.field for conflict in self.conflicts]

    def in_vmi(self) -> Conflicts:
        """These conflicts with the text that virt-controller writes into the status of a VM whose VMI has them."""
        return Conflicts(self.conflicts, f"VMI conflicts with instancetype spec in fields: [{', '.join(self.paths)}]")


def conflict_sentence(paths: Sequence[str]) -> str:
    """KubeVirt's sentence about conflicting fields."""
    return f"VM field(s) {', '.join(paths)} conflicts with selected instance type"


def top_message(causes: Sequence[Cause]) -> str:
    """The message over several causes: the first ten, and how many more there are."""
    text = ", ".join(cause.what for cause in causes[:CAUSES_SHOWN])
    more = len(causes) - CAUSES_SHOWN
    return f"{text}, and {more} more validation errors" if more > 0 else text
