"""Target pods of migrations: both layers of the webhook require of nodes what KubeVirt itself requires."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

import jsonpatch
import msgspec

from tests.builders import CONTROLLER, installed, known
from tests.placement.node_by_node import eligibility
from tests.vectors.cases import Json, VectorCase
from webhook.admission.patch import operations
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey
from webhook.kubevirt.config import ClusterConfig
from webhook.placement.affinity import Placed
from webhook.placement.allocation import Allocatable
from webhook.placement.constraints import own
from webhook.placement.contradictions import kept_by_kubevirt, without_dropped
from webhook.placement.index import NodeIndex
from webhook.placement.launcher_pods import LAUNCHER_PODS, LauncherPod
from webhook.placement.migrations import MIGRATIONS, Migration
from webhook.placement.node import Node
from webhook.placement.reading import read
from webhook.placement.requirement import Elsewhere, Kvm, Requirements
from webhook.placement.vmis import VMIS, Vmi
from webhook.policies.common import migration_targets
from webhook.review.endpoints import BY_PATH
from webhook.settings.snapshot import MigrationSettings

STAGES = ("kubevirt",)
_HELD = (MigrationSettings(collision="deny"), MigrationSettings(collision="ignore"))
_ENDPOINT = BY_PATH["/mutate/migration/pods/enforce"]


def failures(case: VectorCase) -> dict[str, list[str]]:
    """Where the webhook's requirements leave other nodes than the target pod, as KubeVirt or the webhook makes it."""
    nodes = [Node.read(node) for node in case.given["nodes"]]
    facts = _facts(case, nodes)
    vmi, migration = read(Vmi, case.given["vmi"], "vmi"), read(Migration, case.given["migration"], "migration")
    # The nodes say nothing of what they offer: their labels, taints and names are what these answers are about.
    target = migration_targets.of(vmi, case.namespace, Facts.of(facts), migration)
    asked = tuple(each for each in target.requirements if not isinstance(each, Allocatable))
    lines = _differences("alone", case.expected["kubevirt"], _eligible(kept_by_kubevirt(asked), nodes))
    elsewhere = tuple(each for each in asked if isinstance(each, Elsewhere | Kvm))
    for settings in _HELD:
        pod = _constrained(case, facts, settings)
        theirs = _eligible((*own(read(Placed, pod["spec"], "pod")), *elsewhere), nodes)
        ours = _eligible(without_dropped(asked) if settings.collision == "ignore" else asked, nodes)
        lines += _differences(f"constrained, collision: {settings.collision}", theirs, ours)
    return {"kubevirt": lines} if lines else {}


def _facts(case: VectorCase, nodes: Iterable[Node]) -> dict[Key[Any], object]:
    given = case.given
    namespace, uid = case.namespace, given["vmi"]["metadata"]["uid"]
    pods = [read(LauncherPod, pod, "pod") for pod in given.get("sourcePods") or ()]
    found: dict[Key[Any], object] = {
        **known(),
        ObjectKey(VMIS, namespace, given["vmi"]["metadata"]["name"]): read(Vmi, given["vmi"], "vmi"),
        ListKey(LAUNCHER_PODS, namespace, f"kubevirt.io/created-by={uid}"): tuple(pods),
        NodesKey(): NodeIndex(nodes),
        KubeVirtKey(): installed(ClusterConfig.of(given["configuration"])),
    }
    for pod in pods:
        if policy := pod.meta.annotation(migration_targets.JOB_NAME):
            found[ObjectKey(MIGRATIONS, namespace, policy)] = None  # gone, unless it is among those below
    for migration in (given["migration"], *(given.get("migrations") or ())):
        key = ObjectKey(MIGRATIONS, namespace, migration["metadata"]["name"])
        found[key] = read(Migration, migration, "migration")
    return found


def _constrained(case: VectorCase, facts: Mapping[Key[Any], object], settings: MigrationSettings) -> Json:
    """The target pod as the webhook's second layer makes it."""
    pod: Json = case.given["targetPod"]
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": case.namespace,
        "operation": "CREATE",
        "userInfo": {"username": CONTROLLER},
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    received = _ENDPOINT.codec.decode(msgspec.json.encode(review)).request
    decision = _ENDPOINT.handler(received.object, received, Facts.of(facts), settings)
    patch = msgspec.json.decode(msgspec.json.encode(operations(received.object, decision.changes)))
    result: Json = jsonpatch.apply_patch(copy.deepcopy(pod), patch)
    return result


def _eligible(requirements: Requirements, nodes: Iterable[Node]) -> list[str]:
    return [name for name, reasons in eligibility(requirements, nodes).items() if not reasons]


def _differences(what: str, theirs: list[str], ours: list[str]) -> list[str]:
    return [] if theirs == ours else [f"{what}:", f"- {json.dumps(theirs)}", f"+ {json.dumps(ours)}"]
