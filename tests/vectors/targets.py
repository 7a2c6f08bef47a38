"""Target pods of migrations: both layers of the webhook require of nodes what KubeVirt itself requires."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests.builders import installed, known, read_node, review
from tests.placement.node_by_node import reasons_node_by_node
from tests.policies.decisions import evaluate, patched
from tests.vectors.cases import Json, VectorCase
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey
from webhook.k8s.types.scheduling import Placed
from webhook.kubevirt.config import ClusterConfig
from webhook.placement.index import NodeIndex
from webhook.placement.machines import JOB_NAME, LAUNCHER_PODS, MIGRATIONS, VMIS, LauncherPod, Migration, Vmi
from webhook.placement.nodes import Node
from webhook.placement.requirements import Allocatable, Elsewhere, Kvm, Requirements, kept_by_kubevirt, without_dropped
from webhook.placement.target_pods import own_requirements
from webhook.policies.common import migration_targets
from webhook.settings.model import MigrationSettings

STAGES = ("kubevirt",)
_HELD = (MigrationSettings(collision="deny"), MigrationSettings(collision="ignore"))


def failures(case: VectorCase) -> dict[str, list[str]]:
    """Where the webhook's requirements leave other nodes than the target pod, as KubeVirt or the webhook makes it."""
    nodes = [read_node(node) for node in case.given["nodes"]]
    facts = _facts(case, nodes)
    vmi, migration = (
        msgspec.convert(case.given["vmi"], Vmi),
        msgspec.convert(case.given["migration"], Migration),
    )
    # The nodes say nothing of what they offer: their labels, taints and names are what these answers are about.
    target = migration_targets.of(vmi, case.namespace, Facts.of(facts), migration)
    asked = tuple(each for each in target.requirements if not isinstance(each, Allocatable))
    lines = _differences("alone", case.expected["kubevirt"], _eligible(kept_by_kubevirt(asked), nodes))
    elsewhere = tuple(each for each in asked if isinstance(each, Elsewhere | Kvm))
    for settings in _HELD:
        pod = _constrained(case, facts, settings)
        theirs = _eligible((*own_requirements(msgspec.convert(pod["spec"], Placed)), *elsewhere), nodes)
        ours = _eligible(without_dropped(asked) if settings.collision == "ignore" else asked, nodes)
        lines += _differences(f"constrained, collision: {settings.collision}", theirs, ours)
    return {"kubevirt": lines} if lines else {}


def _facts(case: VectorCase, nodes: Iterable[Node]) -> dict[Key[Any], object]:
    given = case.given
    namespace, uid = case.namespace, given["vmi"]["metadata"]["uid"]
    pods = [msgspec.convert(pod, LauncherPod) for pod in given.get("sourcePods") or ()]
    found: dict[Key[Any], object] = {
        **known(),
        ObjectKey(VMIS, namespace, given["vmi"]["metadata"]["name"]): msgspec.convert(given["vmi"], Vmi),
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


def _eligible(requirements: Requirements, nodes: Iterable[Node]) -> list[str]:
    return [name for name, reasons in reasons_node_by_node(requirements, nodes).items() if not reasons]


def _differences(what: str, theirs: list[str], ours: list[str]) -> list[str]:
    return [] if theirs == ours else [f"{what}:", f"- {json.dumps(theirs)}", f"+ {json.dumps(ours)}"]
