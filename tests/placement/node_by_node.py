"""What a `NodeIndex` answers, worked out the plain way: one node after the other."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.placement.eligibility import Eligibility, unmet_requirements
from webhook.placement.nodes import Node
from webhook.placement.requirements import Requirements, UnmetRequirement


def reasons_node_by_node(requirements: Requirements, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """Why each node is not eligible, by the nodes' names; empty for an eligible node."""
    return {node.name: unmet_requirements(requirements, node) for node in nodes}


def reasons_by_node(eligibility: Eligibility, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """The same as an `Eligibility` of these nodes has it: for each, a reason for each failure that names it."""
    known = {node.name: node for node in nodes}
    rows: dict[str, list[UnmetRequirement]] = {name: [] for name in known}
    for failure in eligibility.failures:
        for name in eligibility.names(failure):
            reasons = failure.requirement.reasons(known[name])
            rows[name] += [each for each in reasons if failure.taint is None or each.has.endswith(f" {failure.taint}")]
    return {name: tuple(row) for name, row in rows.items()}
