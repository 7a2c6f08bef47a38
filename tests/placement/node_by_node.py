"""What a `NodeIndex` answers, worked out the plain way: one node after the other."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.placement.eligibility import reasons
from webhook.placement.node import Node
from webhook.placement.requirement import Requirements, UnmetRequirement, Untainted
from webhook.placement.verdict import Verdict


def eligibility(requirements: Requirements, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """Why each node is not eligible, by the nodes' names; empty for an eligible node."""
    return {node.name: reasons(requirements, node) for node in nodes}


def reasons_by_node(verdict: Verdict, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """The same as a verdict has it: for each node, a reason for each failure that names it.

    Args:
        verdict: the verdict on the nodes.
        nodes: the nodes of the index, as they were then.
    """
    known = {node.name: node for node in nodes}
    rows: dict[str, list[UnmetRequirement]] = {name: [] for name in known}
    for failure in verdict.failures:
        requirement = failure.requirement
        for name in verdict.names(failure):
            if isinstance(requirement, Untainted) and failure.taint:
                rows[name].append(requirement.reason(failure.taint))
            else:
                rows[name].extend(requirement.reasons(known[name]))
    return {name: tuple(row) for name, row in rows.items()}
