"""Objects and settings of the defaults policy's tests."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.builders import CONTROLLER, Json, installed, launcher_pod, read_node, review
from tests.policies.decisions import evaluate, patched
from webhook.admission.decision import Decision
from webhook.facts import Facts, Key, KubeVirtKey, NodesKey, ObjectKey
from webhook.k8s.types.meta import Object
from webhook.names import Stage
from webhook.placement.index import NodeIndex
from webhook.policies.defaults.settings import DefaultsSettings
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES

REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))
GPU: Json = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
POOL: Json = {"key": "pool", "operator": "In", "values": ["vms"]}
FAST: Json = {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]}}
SECTION: Json = {
    "tolerations": [GPU],
    "nodeSelector": {"zone": "a"},
    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [POOL]}]}, PREFERRED: [FAST]},
    "priorityClassName": "vms",
    "evictionStrategy": "LiveMigrate",
    "terminationGracePeriodSeconds": 0,
    "cpuModel": "Skylake-Server",
}
LABELS = {"kubernetes.io/arch": "amd64", "cpu-model.node.kubevirt.io/Skylake-Server": "true"}
CLASS = ObjectKey(PRIORITY_CLASSES, "", "vms")
FACTS: dict[Key[Any], object] = {
    KubeVirtKey(): installed(),
    CLASS: Object(),
    NodesKey(): NodeIndex([read_node({"metadata": {"name": "n1", "labels": LABELS}})]),
}


def section(**rows: Any) -> DefaultsSettings:
    """The section with some rows as a file has them; with all of `SECTION` where none is named."""
    return DefaultsSettings.model_validate(rows or SECTION, by_alias=True, by_name=False)


def vmi(metadata: Json | None = None, **spec: Any) -> Json:
    meta = {"name": "web01", "namespace": "demo"} | (metadata or {})
    spec = {"domain": {"devices": {}}} | spec
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta, "spec": spec}


def pod(annotations: Json | None = None, **spec: Any) -> Json:
    made = launcher_pod(**spec)
    made["metadata"]["annotations"] |= annotations or {}
    return made


def decide(
    obj: Json,
    settings: DefaultsSettings | None = None,
    facts: Any = None,
    user: str = CONTROLLER,
    stage: Stage = "enforce",
    **request: Any,
) -> Decision:
    """The decision; what it patches is evaluated once more, and changes nothing."""
    body = review(obj, user, **request)
    path = f"/mutate/defaults/{body['request']['resource']['resource']}/{stage}"
    given = Facts.of(FACTS | (facts or {})), settings or section()
    decision = evaluate(path, body, *given)
    if decision.changes:
        again = evaluate(path, review(patched(obj, decision), user, **request), *given)
        assert not again.changes, "a reinvocation must change nothing"
    return decision


def after(obj: Json, settings: DefaultsSettings | None = None, facts: Any = None) -> Json:
    return patched(obj, decide(obj, settings, facts))


def recorded(settings: DefaultsSettings | None = None) -> Json:
    """The annotations that a VMI gets at its creation, which KubeVirt copies to its pods."""
    found: Json = after(vmi(), settings)["metadata"].get("annotations") or {}
    return found


def encoded(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
