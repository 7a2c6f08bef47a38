"""The webhook's answers to the placement vectors: nodes for pods, and for target pods of migrations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests.builders import installed, known, read_node, review
from tests.placement.samples import reasons_node_by_node
from tests.policies.decisions import evaluate, patched
from tests.vectors.cases import Json, VectorCase
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey, from_memory
from webhook.k8s.types.scheduling import Placed
from webhook.kubevirt.config import ClusterConfig
from webhook.placement import requirements as module
from webhook.placement.index import NodeIndex
from webhook.placement.machines import JOB_NAME, LAUNCHER_PODS, MIGRATIONS, PLACED_VMIS, LauncherPod, Migration, Vmi
from webhook.placement.nodes import Node
from webhook.placement.requirements import OneOf, Origin, Requirements
from webhook.placement.target_pods import own_requirements
from webhook.policies.common import migration_targets
from webhook.policies.migration.settings import MigrationSettings

# By the requirements that a stage is about.
_ORIGINS = {
    "affinity": (Origin.VM, Origin.AFFINITY),
    "taints": (Origin.TAINTS, Origin.CORDONED),
    "fit": (Origin.VM, Origin.AFFINITY, Origin.TAINTS, Origin.CORDONED),
}
STAGES = (*_ORIGINS, "error")
TARGET_STAGES = ("kubevirt",)
_HELD = (MigrationSettings(collision="deny"), MigrationSettings(collision="ignore"))


def _eligible(requirements: Requirements, nodes: Iterable[Node]) -> list[str]:
    return [name for name, reasons in reasons_node_by_node(requirements, nodes).items() if not reasons]


def _differences(what: str, theirs: list[str], ours: list[str]) -> list[str]:
    return [] if theirs == ours else [f"{what}:", f"- {json.dumps(theirs)}", f"+ {json.dumps(ours)}"]


# -- kube-scheduler's: node by node and over the index -----------------------------------------------------------------


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
        missing = {"error": [f"- {case.expected['error']}", "+ no reason at all"]}
        return {} if any(term.problems for term in terms) else missing
    found = {
        stage: [
            line
            for way, ours in answers(stage, requirements, nodes).items()
            for line in _differences(way, case.expected[stage], ours)
        ]
        for stage in _ORIGINS
        if stage in case.expected
    }
    return {stage: lines for stage, lines in found.items() if lines}


def answers(stage: str, requirements: Requirements, nodes: list[Node]) -> dict[str, list[str]]:
    """The names of the nodes that the webhook finds eligible, by the way of finding them; in the order of the nodes."""
    asked = tuple(requirement for requirement in requirements if requirement.origin in _ORIGINS[stage])
    indexed = set(NodeIndex(nodes).review(asked).names())
    over_the_index = [node.name for node in nodes if node.name in indexed]
    return {"node by node": _eligible(asked, nodes), "over the index": over_the_index}


# -- KubeVirt's: both layers require of nodes what KubeVirt itself requires --------------------------------------------


def target_failures(case: VectorCase) -> dict[str, list[str]]:
    """Where the webhook's requirements leave other nodes than the target pod, as KubeVirt or the webhook makes it."""
    nodes = [read_node(node) for node in case.given["nodes"]]
    facts = _facts(case, nodes)
    vmi, migration = msgspec.convert(case.given["vmi"], Vmi), msgspec.convert(case.given["migration"], Migration)
    # The nodes say nothing of what they offer: their labels, taints and names are what these answers are about.
    target = from_memory(migration_targets.of(vmi, case.namespace, Facts.of(facts), migration))
    asked = tuple(each for each in target.requirements if not isinstance(each, module.Allocatable))
    lines = _differences("alone", case.expected["kubevirt"], _eligible(module.kept_by_kubevirt(asked), nodes))
    elsewhere = tuple(each for each in asked if isinstance(each, module.Elsewhere | module.Kvm))
    for settings in _HELD:
        pod = _constrained(case, facts, settings)
        theirs = _eligible((*own_requirements(msgspec.convert(pod["spec"], Placed)), *elsewhere), nodes)
        ours = _eligible(module.without_dropped(asked) if settings.collision == "ignore" else asked, nodes)
        lines += _differences(f"constrained, collision: {settings.collision}", theirs, ours)
    return {"kubevirt": lines} if lines else {}


def _facts(case: VectorCase, nodes: Iterable[Node]) -> dict[Key[Any], object]:
    given = case.given
    namespace, uid = case.namespace, given["vmi"]["metadata"]["uid"]
    pods = [msgspec.convert(pod, LauncherPod) for pod in given.get("sourcePods") or ()]
    found: dict[Key[Any], object] = {
        **known(),
        ObjectKey(PLACED_VMIS, namespace, given["vmi"]["metadata"]["name"]): msgspec.convert(given["vmi"], Vmi),
        ListKey(LAUNCHER_PODS, namespace, f"kubevirt.io/created-by={uid}"): tuple(pods),
        NodesKey(): NodeIndex(nodes),
        KubeVirtKey(): installed(ClusterConfig.of(given["configuration"])),
    }
    for pod in pods:
        if policy := pod.meta.annotation(JOB_NAME):
            found[ObjectKey(MIGRATIONS, namespace, policy)] = None  # gone, unless it is among those below
    for migration in (given["migration"], *(given.get("migrations") or ())):
        key = ObjectKey(MIGRATIONS, namespace, migration["metadata"]["name"])
        found[key] = msgspec.convert(migration, Migration)
    return found


def _constrained(case: VectorCase, facts: Mapping[Key[Any], object], settings: MigrationSettings) -> Json:
    """The target pod as the webhook's second layer makes it."""
    pod: Json = case.given["targetPod"]
    body = review(pod, namespace=case.namespace)
    return patched(pod, evaluate("/mutate/migration/pods/enforce", body, Facts.of(facts), settings))
