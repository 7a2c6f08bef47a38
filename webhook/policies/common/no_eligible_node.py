"""Where a VM cannot go, in words for people and as a list for the audit record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from webhook.admission.decision import Reason
from webhook.names import Code
from webhook.placement.eligibility import Eligibility, Failure
from webhook.placement.requirements import Origin
from webhook.policies.common import messages

# Nodes are all in the audit record; the combinations of reasons could be as many as they.
_AUDITED_GROUPS: Final = 100
_AUDITED_FAILURES: Final = 50
_TOLD_CLASSES: Final = 10


def no_node(eligibility: Eligibility) -> Reason:
    """Why no node is eligible, class by class as the scheduler words it, and the single change that would help most."""
    if not eligibility.total:
        return Reason(Code.NO_ELIGIBLE_NODE, f"{availability(eligibility)}: the cluster has no nodes")
    text = f"{availability(eligibility)}: {_classes(eligibility.failures)}"
    # To give up what was just requested is not advice.
    best = next(
        (opening for opening in eligibility.openings() if opening.failure.requirement.origin != Origin.ADDED), None
    )
    if best:
        text += f"; for {best.count} node(s) the only reason is: {best.failure.lacking}"
    return Reason(Code.NO_ELIGIBLE_NODE, text)


def availability(eligibility: Eligibility) -> str:
    """``0/6 nodes are available``, as the scheduler words it."""
    return messages.eligible(eligibility.count, eligibility.total).text


def _classes(failures: Sequence[Failure]) -> str:
    """The classes of reasons with their numbers; of many the largest, as every node may have a taint of its own."""
    if len(failures) <= _TOLD_CLASSES:
        return ", ".join(map(str, failures))
    largest = sorted(failures, key=lambda failure: -failure.count)[:_TOLD_CLASSES]
    return f"{', '.join(map(str, largest))} and {len(failures) - _TOLD_CLASSES} more reasons"


def details(eligibility: Eligibility) -> dict[str, Any]:
    """All nodes by what they fail, for the audit record; those of the rarest combinations of reasons together."""
    node_groups = eligibility.groups()
    lacking = Lacking(eligibility)
    groups = [
        _describe_fails(lacking.first(group.failures, _AUDITED_FAILURES), eligibility.names(group))
        for group in node_groups[:_AUDITED_GROUPS]
    ]
    if rest := node_groups[_AUDITED_GROUPS:]:
        names = sorted(name for group in rest for name in eligibility.names(group))
        groups.append(_describe_fails([f"other reasons, in {len(rest)} combinations"], names))
    return {"nodes": groups}


class Lacking(dict[int, str]):
    """What nodes lack that fail something, by the failure's identity: many groups share a failure, worded once.

    Args:
        eligibility: whose failures they are.
    """

    def __init__(self, eligibility: Eligibility) -> None:
        super().__init__()
        self._failures: Final = {id(failure): failure for failure in eligibility.failures}

    def __missing__(self, identity: int) -> str:
        text = self[identity] = self._failures[identity].lacking
        return text

    def first(self, failures: Sequence[Failure], most: int) -> list[str]:
        """The words for the first failures, and the number of the others.

        Args:
            failures: the failures of one group of nodes.
            most: how many failures are written out.
        """
        told = list(map(self.__getitem__, map(id, failures[:most])))
        return [*told, f"{len(failures) - most} more"] if len(failures) > most else told


def _describe_fails(fails: list[str], names: list[str]) -> dict[str, Any]:
    return {"fails": fails, "count": len(names), "nodes": names}
