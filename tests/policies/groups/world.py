"""Objects and settings of the groups policy's tests: web01 of group ``db`` on node-a1, and others of the group."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from tests.builders import CONTROLLER, Json, installed, launcher_pod, read_node, review
from tests.policies.decisions import evaluate, patched
from tests.policies.eviction import world as eviction
from tests.policies.migration import world as migration
from webhook import names
from webhook.admission.decision import Decision
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey
from webhook.kubevirt.config import ClusterConfig
from webhook.names import Stage
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LAUNCHER_PODS, LauncherPod, Vmi
from webhook.placement.nodes import HOSTNAME, ZONE
from webhook.policies.groups.settings import GroupSettings

REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))
APART: Json = {"apart": {"required": True}}
APART_BY_ZONE: Json = {"apart": {"topologyKey": ZONE, "required": True}}
TOGETHER: Json = {"together": {"required": True}}
HOSTS: Json = {"nodes": {"labels": {"license": "oracle"}, "required": True}}
IN_GROUP = {GROUP_LABEL: "db"}
MEMBERS = ListKey(LAUNCHER_PODS, "demo", f"{GROUP_LABEL}=db")
SELECTED: Json = {"matchLabels": {"kubevirt.io": "virt-launcher", GROUP_LABEL: "db"}}
TERM: Json = {"labelSelector": SELECTED, "topologyKey": HOSTNAME}
MIGRATED = {"kubevirt.io/migrationJobUID": "m"}


def section(rules: Json | None = None, **others: Json) -> GroupSettings:
    """The section with the group ``db``, which has these rules, and others by name."""
    given = {"rules": {"db": APART if rules is None else rules} | others}
    return GroupSettings.model_validate(given, by_alias=True, by_name=False)


def vm(in_template: Json | None = None, labels: Json | None = None) -> Json:
    template = {"metadata": {"labels": in_template or {}}, "spec": {"domain": {}}}
    meta = {"name": "web01", "namespace": "demo", "labels": labels or {}}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": meta, "spec": {"template": template}}


def vmi(labels: Json | None = None, annotations: Json | None = None, name: str = "web01") -> Json:
    meta = {"name": name, "namespace": "demo", "labels": IN_GROUP if labels is None else labels}
    meta |= {"annotations": annotations} if annotations else {}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta, "spec": {"domain": {}}}


def pod(annotations: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
    made = launcher_pod(**spec)
    made["metadata"]["labels"] |= IN_GROUP | (labels or {})
    made["metadata"]["annotations"] |= annotations or {}
    return made


def recorded(settings: GroupSettings | None = None) -> Json:
    """The annotations that a VMI gets at its creation, which KubeVirt copies to its pods."""
    found: Json = after(vmi(), settings)["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if key == names.INJECTED_GROUP_ANNOTATION}


def member(
    node: str, uid: str = "other", affinity: Json | None = None, labels: Json | None = None, namespace: str = "demo"
) -> LauncherPod:
    """Another VM's pod on a node, as lists keep it."""
    owner = {"kind": "VirtualMachineInstance", "name": uid, "uid": uid, "controller": True}
    meta: Json = {"name": f"p-{uid}", "namespace": namespace, "ownerReferences": [owner]}
    meta["labels"] = {"kubevirt.io": "virt-launcher"} | (labels or {})
    spec: Json = {"nodeName": node} | ({"affinity": affinity} if affinity else {})
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, LauncherPod)


def decide(
    obj: Json,
    settings: GroupSettings | None = None,
    facts: Any = None,
    user: str = CONTROLLER,
    stage: Stage = "enforce",
    **request: Any,
) -> Decision:
    """The decision; what it patches is evaluated once more, and changes nothing."""
    body = review(obj, user, **request)
    path = f"/mutate/groups/{body['request']['resource']['resource']}/{stage}"
    given = Facts.of({KubeVirtKey(): installed()} | (facts or {})), settings or section()
    decision = evaluate(path, body, *given)
    if decision.changes:
        again = evaluate(path, review(patched(obj, decision), user, **request), *given)
        assert not again.changes, "a reinvocation must change nothing"
    return decision


def after(obj: Json, settings: GroupSettings | None = None, facts: Any = None) -> Json:
    return patched(obj, decide(obj, settings, facts))


def affinity(obj: Json, settings: GroupSettings | None = None, facts: Any = None) -> Json:
    found: Json = after(obj, settings, facts)["spec"].get("affinity", {})
    return found


def running(settings: GroupSettings, *, older: bool = False, group: str = "db") -> Json:
    """The VMI on node-a1, which may be migrated; ``older``: than the group's rules."""
    found = eviction.vmi()
    found["metadata"]["labels"] = {GROUP_LABEL: group}
    found["metadata"]["annotations"] = {} if older else recorded(settings)
    return found


def nodes(*cordoned: str, more: Iterable[Json] = ()) -> NodeIndex:
    """Two nodes in zone a, and one in zone b."""
    places = (("node-a1", "a"), ("node-a2", "a"), ("node-b1", "b"))
    listed = [migration.node(name, zone, cordoned=name in cordoned, **{ZONE: zone}) for name, zone in places]
    return NodeIndex(read_node(each) for each in (*listed, *more))


def world(
    settings: GroupSettings, *members: LauncherPod, index: NodeIndex | None = None, found: Json | None = None
) -> dict[Key[Any], object]:
    """The facts of a review that moves the VM."""
    in_group = eviction.pod()
    in_group["metadata"]["labels"] |= IN_GROUP
    return {
        **eviction.facts(),
        migration.VMI: msgspec.convert(running(settings) if found is None else found, Vmi),
        ObjectKey(LAUNCHER_PODS, "demo", eviction.POD): msgspec.convert(in_group, LauncherPod),
        MEMBERS: members,
        NodesKey(): index or nodes(),
        KubeVirtKey(): installed(ClusterConfig()),
    }


def evict(facts: dict[Key[Any], object], settings: GroupSettings, user: str = "admin") -> Decision:
    decision = evaluate("/mutate/groups/evictions/enforce", eviction.review(None, user), Facts.of(facts), settings)
    assert not decision.changes
    return decision


def migrate(facts: dict[Key[Any], object], settings: GroupSettings, user: str = "alice", **spec: Any) -> Decision:
    body = review(migration.migration(**spec), user)
    path = "/validate/groups/virtualmachineinstancemigrations/enforce"
    return evaluate(path, body, Facts.of(facts), settings)


def encoded(value: object) -> str:
    return json.dumps(value)
