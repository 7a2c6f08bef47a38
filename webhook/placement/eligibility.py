"""Why one node is not eligible, without an index."""

from __future__ import annotations

from webhook.placement.node import Node
from webhook.placement.requirement import Requirements, UnmetRequirement


def reasons(requirements: Requirements, node: Node) -> tuple[UnmetRequirement, ...]:
    """All that keeps a node out, in the order of the requirements; empty: it is eligible."""
    return tuple(reason for requirement in requirements for reason in requirement.reasons(node))
