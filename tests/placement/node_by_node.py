"""What a `NodeIndex` answers, worked out the plain way: one node after the other."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.placement.eligibility import Eligibility, unmet_requirements
from webhook.placement.nodes import Node
from webhook.placement.requirements import Requirements, UnmetRequirement, Untainted


def reasons_node_by_node(requirements: Requirements, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """Why each node is not eligible, by the nodes' names; empty for an eligible node."""
    return {node.name: unmet_requirements(requirements, node) for node in nodes}


def reasons_by_node(eligibility: Eligibility, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """The same as an `Eligibility` has it: for each node, a reason for each failure that names it.

    Args:
        eligibility: what the index answered.
        nodes: the nodes of the index, as they were then.
    """
    known = {node.name: node for node in nodes}
    rows: dict[str, list[UnmetRequirement]] = {name: [] for name in known}
    for failure in eligibility.failures:
        requirement = failure.requirement
        for name in eligibility.names(failure):
            if isinstance(requirement, Untainted) and failure.taint:
                rows[name].append(requirement.reason(failure.taint))
            else:
                rows[name].extend(requirement.reasons(known[name]))
    return {name: tuple(row) for name, row in rows.items()}
