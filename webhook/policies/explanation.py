"""Where a VM can't go, in words for people and as a list for the audit record."""

from __future__ import annotations

from typing import Any, Final

from webhook.placement.requirement import ADDED
from webhook.placement.verdict import Verdict

_AUDITED_NODES: Final = 100


def no_node(verdict: Verdict) -> str:
    """Why no node is eligible, class by class, and the single change that would help most."""
    if not verdict.total:
        return "no eligible node: the cluster has no nodes"
    text = f"no eligible node: of {verdict.total}, {', '.join(str(failure) for failure in verdict.failures)}"
    # Giving up what was just asked for is no advice.
    best = next((one for one in verdict.openings() if one.failure.requirement.origin != ADDED), None)
    return f"{text}; the only reason for {best.count} of them: {best.failure.lacking}" if best else text


def details(verdict: Verdict) -> dict[str, Any]:
    """All nodes by what they fail, for the audit record."""
    groups = []
    for group in verdict.groups():
        nodes = verdict.names(group)
        shown: dict[str, Any] = {"fails": [failure.lacking for failure in group.failures], "count": len(nodes)}
        groups.append(shown | {"nodes": nodes[:_AUDITED_NODES]})
    return {"nodes": groups}
