"""Which nodes have what is required, and why the others do not: node by node, the plain way.

`NodeIndex` answers the same faster; this is what it is measured by.
"""

from __future__ import annotations

from collections.abc import Iterable

from webhook.placement.node import Node
from webhook.placement.requirement import Requirements, UnmetRequirement


def reasons(requirements: Requirements, node: Node) -> tuple[UnmetRequirement, ...]:
    """All that keeps a node out, in the order of the requirements; empty: it is eligible."""
    return tuple(reason for requirement in requirements for reason in requirement.reasons(node))


def eligibility(requirements: Requirements, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """Why each of many nodes is not eligible, by the nodes' names; empty for an eligible node.

    Args:
        requirements: the requirements of a migration's target pod.
        nodes: the nodes to evaluate.
    """
    return {node.name: reasons(requirements, node) for node in nodes}
