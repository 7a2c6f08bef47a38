"""The webhook's answers to the placement vectors, node by node and over the index, beside kube-scheduler's."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tests.builders import read_node
from tests.placement.node_by_node import reasons_node_by_node
from tests.vectors.cases import VectorCase
from webhook.k8s.types.scheduling import Placed
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.placement.requirements import OneOf, Origin, Requirements
from webhook.placement.target_pods import own_requirements

# By the requirements that a stage is about.
_ORIGINS = {
    "affinity": (Origin.VM, Origin.AFFINITY),
    "taints": (Origin.TAINTS, Origin.CORDONED),
    "fit": (Origin.VM, Origin.AFFINITY, Origin.TAINTS, Origin.CORDONED),
}
STAGES = (*_ORIGINS, "error")


def failures(case: VectorCase) -> dict[str, list[str]]:
    """The stages in which the webhook differs from kube-scheduler, and how.

    For a malformed pod, which the API server would have rejected, a reason is enough.
    """
    try:
        requirements = tuple(own_requirements(msgspec.convert(case.given.get("pod"), Placed)))
        nodes = [read_node(node) for node in case.given.get("nodes") or ()]
    except msgspec.ValidationError as rejection:
        return {} if "error" in case.expected else {"error": [f"+ {rejection}"]}
    if "error" in case.expected:
        terms = [term for each in requirements if isinstance(each, OneOf) for term in each.terms]
        return (
            {}
            if any(term.problems for term in terms)
            else {"error": [f"- {case.expected['error']}", "+ no reason at all"]}
        )
    found = {stage: _differences(case, stage, requirements, nodes) for stage in _ORIGINS if stage in case.expected}
    return {stage: lines for stage, lines in found.items() if lines}


def answers(stage: str, requirements: Requirements, nodes: list[Node]) -> dict[str, list[str]]:
    """The names of the nodes that the webhook finds eligible, by the way of finding them; in the order of the nodes."""
    asked = tuple(requirement for requirement in requirements if requirement.origin in _ORIGINS[stage])
    plain = [name for name, reasons in reasons_node_by_node(asked, nodes).items() if not reasons]
    indexed = set(NodeIndex(nodes).review(asked).names())
    return {"node by node": plain, "over the index": [node.name for node in nodes if node.name in indexed]}


def _differences(case: VectorCase, stage: str, requirements: Requirements, nodes: list[Node]) -> list[str]:
    expected: list[Any] = case.expected[stage]
    lines = []
    for way, ours in answers(stage, requirements, nodes).items():
        if ours != expected:
            lines += [f"{way}:", f"- {json.dumps(expected)}", f"+ {json.dumps(ours)}"]
    return lines
