"""A small world for a way of a policy: the objects that it reads, each of which a test can make long."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from tests import builders
from tests.annotations import MISTAKES
from tests.attacks import schema
from tests.attacks.schema import Fields, Node, Path
from tests.builders import CONTROLLER, UNAVAILABLE, VMI_UID, Json, changed, read_node
from tests.policies.decisions import answered
from tests.policies.defaults import world as of_defaults
from tests.policies.eviction import world as eviction
from tests.policies.groups import world as of_groups
from tests.policies.headroom import world as headroom
from tests.policies.instancetypes import world as instancetypes
from tests.policies.migration import world as migration
from tests.policies.migration.world import target_pod
from tests.policies.preemption import world as preemption
from tests.review.memory import MemoryCluster
from webhook import names
from webhook.admission.audit import NoAudit, Record, Sink
from webhook.admission.lines import line
from webhook.admission.patch import make_patch
from webhook.admission.wire import UserInfo
from webhook.facts import (
    AccessKey,
    Facts,
    HeadroomKey,
    Key,
    KubeVirtKey,
    ListKey,
    NamespaceKey,
    NodesKey,
    ObjectKey,
    SchedulerKey,
    VmiKey,
    uncached_key,
)
from webhook.k8s.types.core import TargetPod
from webhook.k8s.types.meta import Namespace, Object
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, PRESETS, REVISIONS, UNSTRUCTURED
from webhook.kubevirt.types.core import DOMAIN, INSTANCETYPE, PREFERENCE, VM, VMI
from webhook.kubevirt.types.views import VirtualMachineInstance
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LAUNCHER_PODS, MIGRATIONS, PLACED_VMIS, UNFINISHED
from webhook.placement.nodes import ZONE
from webhook.placement.quota import LIMIT_RANGES, QUOTAS
from webhook.policies.defaults.settings import ANNOTATIONS as DEFAULTS
from webhook.policies.registry import BY_PATH
from webhook.policies.sizes.settings import SIZE_LIMITS_ANNOTATION
from webhook.policy import Endpoint
from webhook.review.reviewer import Observer, Reviewer
from webhook.settings.model import Settings

# Subjects that are in every world.
OBJECT: Final = "object"
OLD: Final = "old object"
USER: Final = "user"
NAMESPACE: Final = "namespace"
NO_AUDIT: Final = NoAudit()


class AttackedObject(NamedTuple):
    """An object that a policy reads: as it usually is, and what it may hold."""

    base: Any
    node: Node
    # The fact that it is, if it is not part of the request, and what it or each of a list is decoded into.
    key: Key[Any] | None = None
    view: Any = None


@dataclass(frozen=True)
class AttackWorld:
    """A review that takes a certain way through a policy; tenants write its subjects, and not the other facts."""

    name: str
    endpoint: Endpoint
    subjects: Mapping[str, AttackedObject]
    facts: Mapping[Key[Any], object] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def places(self) -> Iterator[tuple[str, Path]]:
        """Every list and map in every subject."""
        for name, subject in self.subjects.items():
            for path, _ in schema.places(subject.node):
                yield name, path

    def everything(self) -> list[tuple[str, Path]]:
        """Those that can be long at the same time without making another kind of request of it."""
        left_out = {"sendTo", "receive"}
        if view(self.endpoint) is TargetPod:
            # Each term holds each key that is added: what comes of that is bounded, but it is a product.
            left_out.add("addedNodeSelector")
        return [place for place in self.places() if not left_out & set(place[1])]

    def objects(self, places: Iterable[tuple[str, Path]] = (), count: int = 0, *, alike: bool = False) -> Json:
        """The subjects' JSON by name, with so many more items at some places."""
        made = {name: subject.base for name, subject in self.subjects.items()}
        for name, path in places:
            made[name] = schema.grown(made[name], self.subjects[name].node, path, count, alike=alike)
        return made

    def body(self, objects: Json) -> bytes:
        endpoint = self.endpoint
        request: Json = {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": endpoint.codec.group, "version": endpoint.version, "kind": endpoint.codec.kind},
            "resource": {"group": endpoint.group, "version": endpoint.version, "resource": endpoint.resource},
            "namespace": "demo",
            "operation": "UPDATE" if OLD in objects else "CREATE",
            "userInfo": objects[USER],
            "object": objects[OBJECT],
            "oldObject": objects.get(OLD),
            **self.request,
        }
        if "DELETE" in endpoint.operations:
            request |= {"operation": "DELETE", "object": None, "oldObject": objects[OBJECT]}
        if endpoint.sub_resource:
            request["subResource"] = endpoint.sub_resource
        return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})

    def known(self, objects: Json) -> dict[Key[Any], object]:
        subjects = self.subjects.items()
        # A review leaves there what it promised: each gets one of its own, or would find what the one before left.
        remembering = {key: copy.deepcopy(fact) for key, fact in self.facts.items() if isinstance(key, HeadroomKey)}
        facts = dict(self.facts) | remembering
        known = facts | {each.key: decoded(each.view, objects[name]) for name, each in subjects if each.key}
        cached = (key for key in known if isinstance(key, NamespaceKey | ObjectKey | ListKey))
        user = msgspec.convert(objects[USER], UserInfo)
        may_list = {AccessKey.of(user, "list", "", "nodes"): True}
        return known | {uncached_key(key): known[key] for key in cached} | may_list

    def review(self, objects: Json, *, audit: Sink = NO_AUDIT) -> Callable[[], bytes]:
        """The whole review of these objects, from bytes to bytes, to be called any number of times."""
        body, known, settings = self.body(objects), self.known(objects), self._settings()
        reviewer = Reviewer(MemoryCluster(known), lambda: settings, audit, Observer())
        return lambda: ended(reviewer.review(self.endpoint, body, 1e9))

    def policy(self, objects: Json, watch: Callable[[Any], Any]) -> Callable[[], object]:
        """The policy alone, and the patch's , where every object is what ``watch`` makes of it."""
        request = watch(self.endpoint.codec.decode(self.body(objects)).request)
        known = self.known(objects)
        namespace = watch(known[NamespaceKey("demo")])
        facts = {key: watch(fact) if isinstance(fact, Object | tuple) else fact for key, fact in known.items()}
        settings = self._settings().policy(self.endpoint.policy).with_annotations(namespace.meta.annotations or {})

        def call() -> object:
            obj = self.endpoint.object_of(request)
            handling = self.endpoint.handler(obj, request, headroom.judging(Facts.of(facts)), settings)
            decision, _ = answered(handling, headroom.again(facts))
            return make_patch(obj, decision.under(names.ENFORCE, self.endpoint.policy).changes)

        return call

    def _settings(self) -> Settings:
        settings = builders.settings()
        section: Any = settings.policy(self.endpoint.policy)
        policy = changed(section, **self.settings)
        return changed(settings, **{self.endpoint.policy: policy})


class AuditLines:
    """Makes audit lines as the server does, and drops them."""

    def write(self, record: Record) -> None:
        line(record)


def ended(reviewing: Coroutine[Any, Any, bytes]) -> bytes:
    """The answer of a review that finds every fact at hand, and so never waits."""
    try:
        reviewing.send(None)
    except StopIteration as end:
        answer: bytes = end.value
        return answer
    raise AssertionError("the review waits for a fact that its world has not got")


def decoded(view: Any, json: Any) -> Any:
    return tuple(decoded(view, one) for one in json) if isinstance(json, list) else msgspec.convert(json, view)


def view(endpoint: Endpoint) -> Any:
    """The type into which an endpoint decodes objects."""
    return endpoint.codec._typed.type.__args__[0]  # type: ignore[attr-defined]


NODE_COUNT: Final = 64


# -- the worlds --------------------------------------------------------------------------------------------------------

Parts = Mapping[str, AttackedObject]


def _world(
    name: str, path: str, obj: Json, parts: Parts, whole: Node | None = None, user: str = migration.USER, **more: Any
) -> AttackWorld:
    """The world of an endpoint; ``whole`` is what the object holds, where the policy reads it as plain JSON."""
    endpoint = BY_PATH[f"/{path}/enforce"]
    labels = {names.policy_label(endpoint.policy): more.pop("mode", "enforce")}
    there = {"metadata": {"name": "demo", "labels": labels, "annotations": more.pop("annotations", {})}}
    old = more.pop("old", None)
    request_node = schema.of_view(view(endpoint), whole=whole)
    subjects = {
        OBJECT: AttackedObject(obj, request_node),
        USER: AttackedObject({"username": user, "groups": ["devs"]}, schema.of_view(UserInfo)),
        NAMESPACE: AttackedObject(there, schema.of_view(Namespace), NamespaceKey("demo"), Namespace),
        **parts,
    }
    if old is not None:
        subjects[OLD] = AttackedObject(old, request_node)
    facts = {KubeVirtKey(): KubeVirtInstall(frozenset({"kubevirt"})), **more.pop("facts", {})}
    return AttackWorld(name, endpoint, subjects, facts, **more)


def _object(key: ObjectKey[Any], base: Json, whole: Node | None = None) -> AttackedObject:
    return AttackedObject(base, schema.of_view(key.resource.view, whole=whole), key, key.resource.view)


def _list(key: ListKey[Any], *base: Json, whole: Node | None = None) -> AttackedObject:
    return AttackedObject([*base], schema.Items(schema.of_view(key.resource.view, whole=whole)), key, key.resource.view)


_LABELS: Final[Any] = {"label-0000": "v0"}


def nodes(count: int = NODE_COUNT) -> NodeIndex:
    """Nodes with labels and a taint of their own, and four of everyday."""
    made = [migration.node(f"node-{n}", "ab"[n % 2], serial=str(n), **_LABELS) for n in range(count)]
    for number, one in enumerate(made):
        one["spec"]["taints"] = [{"key": f"maint-{number}", "value": "x", "effect": "NoSchedule"}]
    return NodeIndex(read_node(one) for one in [*migration.NODES, *made])


_POD: Final = {
    "metadata": {"name": "p", "uid": "1", "ownerReferences": migration.OWNED},
    "spec": {"nodeName": "node-a1", "nodeSelector": {}},
    "status": {"phase": "Running"},
}
_VMI: Final = {
    **migration.vmi(
        domain={"cpu": {"model": "host-model"}, "machine": {"type": "q35"}}, evictionStrategy="LiveMigrate"
    ),
    "status": {"nodeName": "node-a1", "conditions": [{"type": "LiveMigratable", "status": "True"}]},
}
_QUOTA: Final = {
    "metadata": {"name": "q"},
    "spec": {"scopes": ["NotTerminating"]},
    "status": {"hard": {"pods": "10000"}, "used": {"pods": "1"}},
}
_PODS_OF: Final = ListKey(LAUNCHER_PODS, "demo", f"kubevirt.io/created-by={migration.UID}")


def _placement() -> dict[str, AttackedObject]:
    return {"vmi": _object(ObjectKey(PLACED_VMIS, "demo", "web01"), _VMI), "pods": _list(_PODS_OF, _POD)}


def _placed(count: int = NODE_COUNT) -> dict[Key[Any], object]:
    return {NodesKey(): nodes(count)}


def _migrations() -> Iterator[AttackWorld]:
    validate, target = "validate/migration/virtualmachineinstancemigrations", "mutate/migration/pods"
    others = {"migrations": _list(ListKey(UNFINISHED, "demo"), migration.migration({"zone": "b"}))}
    added = migration.migration({"zone": "b"})
    parts: Any = {**_placement(), **others}
    yield _world("migration", validate, added, parts, facts=_placed())
    counting = {"max_unfinished": 10_000}
    yield _world("migration, counted", validate, added, parts, facts=_placed(), settings=counting)
    few: Any = {"facts": _placed(4), "settings": {"reserved_keys": "allow"}}
    yield _world("migration, nowhere", validate, migration.migration({"zone": "c"}), _placement(), **few)
    ignoring: Any = {"facts": _placed(), "settings": {"collision": "ignore", "no_eligible_node": "warn"}}
    yield _world("migration, dropped", validate, added, _placement(), **ignoring)
    warn = "mutate/migration/virtualmachineinstancemigrations"
    yield _world("migration, warned", warn, migration.migration(), _placement(), facts=_placed())
    named = ObjectKey(MIGRATIONS, "demo", "m1")
    for name, selector in (("target pod", {"zone": "b"}), ("target pod, guarded", {migration.INTEL: "true"})):
        parts = _placement() | {"migration": _object(named, migration.migration(selector))}
        pod = target_pod([{"matchExpressions": [schema.expression(0)]}], selector)
        yield _world(name, target, pod, parts, user=CONTROLLER, facts=_placed())


def _evictions() -> Iterator[AttackWorld]:
    parts = {
        **_placement(),
        "pod": _object(ObjectKey(LAUNCHER_PODS, "demo", eviction.POD), eviction.pod()),
        "migrations": _list(eviction.MINE, eviction.migration(ended=86_400)),
        "quotas": _list(ListKey(QUOTAS, "demo"), _QUOTA),
        "limit ranges": _list(ListKey(LIMIT_RANGES, "demo"), {"metadata": {"name": "lr"}, "spec": {"limits": []}}),
    }
    body = eviction.review()["request"]
    # What no node is eligible for, is explained node by node: a few of them take the same way.
    for name, selector, count in (("eviction", {}, NODE_COUNT), ("eviction, nowhere", {"zone": "c"}, 4)):
        vmi = _object(
            ObjectKey(PLACED_VMIS, "demo", "web01"), {**_VMI, "spec": {**_VMI["spec"], "nodeSelector": selector}}
        )
        more: Any = {"user": eviction.USER, "facts": _placed(count), "request": {"name": eviction.POD}}
        yield _world(name, "mutate/eviction/pods", body["object"], {**parts, "vmi": vmi}, **more)


def _preemptions() -> Iterator[AttackWorld]:
    parts = {
        **_placement(),
        "migrations": _list(eviction.MINE, eviction.migration(ended=86_400)),
        "preemptors": _list(preemption.WAITING, preemption.preemptor()),
        "unfinished": _list(preemption.ALL_UNFINISHED, eviction.migration("Running", None)),
        "quotas": _list(ListKey(QUOTAS, "demo"), _QUOTA),
        "limit ranges": _list(ListKey(LIMIT_RANGES, "demo"), {"metadata": {"name": "lr"}, "spec": {"limits": []}}),
    }
    # Whenever it is looked at, it has just been chosen.
    victim = preemption.victim(ago=-1e9)
    more: Any = {
        "user": preemption.SCHEDULER,
        "facts": _placed(),
        "request": {"name": eviction.POD},
        "settings": {"request_migrations": True},
    }
    yield _world("preemption", "validate/preemption/pods", victim, parts, **more)
    moving = parts | {
        "migrations": _list(eviction.MINE, preemption.migration(ago=-1e9)),
        "target pods": _list(preemption.TARGETS, preemption.target(0, nodeName="node-b1")),
    }
    yield _world("preemption, moving", "validate/preemption/pods", victim, moving, **more)


def _headrooms() -> Iterator[AttackWorld]:
    parts = {"quotas": _list(ListKey(QUOTAS, "demo"), _QUOTA)}
    more: Any = {"user": CONTROLLER, "settings": {"enabled": True}}
    for name, is_full in (("start", False), ("start without headroom", True)):
        known: Any = {HeadroomKey(): headroom.cluster(is_full)}
        yield _world(name, "validate/headroom/pods", headroom.starting_pod("2Gi"), parts, facts=known, **more)


def _schedulings() -> Iterator[AttackWorld]:
    alive: Any = {"facts": {SchedulerKey("kubevirt", "demo"): builders.AVAILABLE}}
    vmi = {"metadata": {"name": "web01", "namespace": "demo", "uid": VMI_UID}, "spec": {"domain": {}}}
    read = AttackedObject(
        vmi, schema.of_view(VirtualMachineInstance), VmiKey("demo", "web01", VMI_UID), VirtualMachineInstance
    )
    pods, vms = "mutate/scheduling/pods", "mutate/scheduling/virtualmachines"
    yield _world("launcher pod", pods, builders.launcher_pod(), {"vmi": read}, user=CONTROLLER, **alive)
    marked = builders.launcher_pod(schedulerName="kubevirt")
    marked["metadata"]["annotations"][names.INJECTED_SCHEDULER_ANNOTATION] = "kubevirt"
    dead: Any = {"facts": {SchedulerKey("kubevirt", "demo"): UNAVAILABLE}}
    yield _world("launcher pod, falling back", pods, marked, {"vmi": read}, user=CONTROLLER, **dead)
    size = _object(ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small"), instancetypes.instancetype())
    yield _world("VM", vms, builders.vm(instancetype={"name": "u1.small"}), {"instancetype": size}, **alive)
    pinned = ObjectKey(REVISIONS, "demo", "r1")
    captured = _object(pinned, instancetypes.revision("r1", instancetypes.instancetype()))
    naming = builders.vm(instancetype={"name": "u1.small", "revisionName": "r1"})
    yield _world("VM, pinned", vms, naming, {"revision": captured}, **alive)
    old = builders.vm("kubevirt", mark="kubevirt")
    yield _world("VM, overwritten", vms, builders.vm(), {}, old=old, **alive)
    new = {**vmi, "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    settings: Any = {"settings": {"virtual_machine_instances": True}}
    yield _world("VMI", "mutate/scheduling/virtualmachineinstances", new, {}, **alive, **settings)


def _instancetypes() -> Iterator[AttackWorld]:
    vms, vmis = "mutate/instancetypes/virtualmachines", "mutate/instancetypes/virtualmachineinstances"
    validate = "validate/instancetypes/virtualmachines"
    vm, vmi = schema.of_shape(VM), schema.of_shape(VMI)
    size, likes = instancetypes.instancetype(), instancetypes.preference(**_PREFERENCE)
    kinds = (("instancetype", size, INSTANCETYPE), ("preference", likes, PREFERENCE))
    parts = {
        name: _object(ObjectKey(UNSTRUCTURED[each["kind"]], "", each["metadata"]["name"]), each, schema.of_shape(shape))
        for name, each, shape in kinds
    }
    labelled: dict[str, Node] = {
        "matchLabels": schema.SchemaEntries(schema.TEXT),
        "matchExpressions": schema.Items(_EXPRESSION),
    }
    preset = Fields({"spec": Fields({"selector": Fields(labelled), "domain": schema.of_shape(DOMAIN)})})
    other = {"metadata": {"name": "p"}, "spec": {"selector": {"matchLabels": {"no": "vm"}}, "domain": {}}}
    presets = {"presets": _list(ListKey(PRESETS, "demo"), other, whole=preset)}
    defaults = {
        names.DEFAULT_INSTANCETYPE_ANNOTATION: "u1.small",
        names.DEFAULT_PREFERENCE_ANNOTATION: "fedora",
        names.ALLOWED_INSTANCETYPES_ANNOTATION: "u1.*",
    }
    matchers = {"instancetype": instancetypes.SMALL, "preference": instancetypes.FEDORA}
    yield _world("VM, defaults", vms, instancetypes.vm(), {**parts, **presets}, vm, annotations=defaults)
    named = instancetypes.vm(**matchers)
    expand: Any = {"settings": {"expand": True}}
    yield _world("VM, expanded", vms, named, parts, vm, **expand)
    marks = {
        names.INJECTED_INSTANCETYPE_ANNOTATION: instancetypes.SMALL_MARK,
        names.INJECTED_PREFERENCE_ANNOTATION: instancetypes.FEDORA_MARK,
    }
    old = instancetypes.vm(annotations=marks, **matchers)
    yield _world("VM, defaults lost", vms, instancetypes.vm(), {**parts, **presets}, vm, old=old)
    yield _world("VM, valid", validate, named, parts, vm, annotations=defaults)
    yield _world("VM, changed", validate, named, parts, vm, old=instancetypes.vm())
    pinned = instancetypes.vm(instancetype={**instancetypes.SMALL, "revisionName": "r1"})
    key = ObjectKey(UNSTRUCTURED["ControllerRevision"], "demo", "r1")
    inner = schema.of_shape(INSTANCETYPE)
    captured = _object(key, instancetypes.revision("r1", size), Fields({"data": inner}))
    yield _world("VM, pinned to a revision", validate, pinned, {"revision": captured}, vm, annotations=defaults)
    for name, mode in (("VMI, filled", "enforce"), ("VMI, warned", "warn")):
        yield _world(name, vmis, instancetypes.vmi(), {**parts, **presets}, vmi, annotations=defaults, mode=mode)


def _namings() -> Iterator[AttackWorld]:
    """The longest way: with persistent state, so that the release counts."""
    named = builders.vm()
    named["metadata"]["name"] = "n" * 40
    named["spec"]["template"]["spec"]["domain"]["devices"]["tpm"] = {"persistent": True}
    yield _world("VM, long name", "validate/naming/virtualmachines", named, {})


def _sizes() -> Iterator[AttackWorld]:
    """Out of several ranges, and changed by KubeVirt."""
    ranges = json.dumps([{"cpu": {"max": cpus}, "memory": {"max": "1Gi", "step": "3Mi"}} for cpus in range(1, 5)])
    annotations = {SIZE_LIMITS_ANNOTATION: ranges}
    large: Json = {"cpu": {"cores": 8, "sockets": 2}, "memory": {"guest": "64Gi"}, "devices": {}}
    sized = builders.vm()
    sized["spec"]["template"]["spec"]["domain"] = large
    vms, vmis = "validate/sizes/virtualmachines", "validate/sizes/virtualmachineinstances"
    yield _world("VM, sized", vms, sized, {}, annotations=annotations)
    vmi = instancetypes.vmi() | {"spec": {"domain": large}}
    yield _world("VMI, sized", vmis, vmi, {}, annotations=annotations)


def _defaults() -> Iterator[AttackWorld]:
    """Every row has a default, and the owner has something of each: what is merged is walked."""
    settings: Any = {"settings": {name: getattr(of_defaults.section(), name) for name in DEFAULTS}}
    found = _object(of_defaults.CLASS, {"metadata": {"name": "vms"}})
    facts: Any = {"facts": {NodesKey(): of_defaults.FACTS[NodesKey()]}}
    yield _world(
        "VMI, defaults",
        "mutate/defaults/virtualmachineinstances",
        of_defaults.vmi(),
        {"class": found},
        **settings,
        **facts,
    )
    terms = {"nodeSelectorTerms": [{"matchExpressions": [of_defaults.POOL, {"key": "zone", "operator": "Exists"}]}]}
    placed: Any = {
        "tolerations": [of_defaults.GPU],
        "nodeSelector": {"zone": "b"},
        "affinity": {"nodeAffinity": {of_defaults.REQUIRED: terms, of_defaults.PREFERRED: [of_defaults.FAST]}},
    }
    pod = of_defaults.pod(of_defaults.recorded(), **placed)
    yield _world("launcher pod, defaults", "mutate/defaults/pods", pod, {}, user=CONTROLLER, **settings)


def _namespaces() -> Iterator[AttackWorld]:
    """The annotation is denied, and on the longest way: at an update, beside others that are as before."""
    for policy, mistake in MISTAKES.items():
        metadata: Json = {"name": "demo", "labels": {names.policy_label(policy): "enforce"}}
        written = {"metadata": {**metadata, "annotations": {mistake.annotation: '{"a": [1]}'}}}
        old = {"metadata": {**metadata, "annotations": {}}}
        path, annotations = f"validate/{policy}/namespaces", written["metadata"]["annotations"]
        yield _world(f"namespace, for {policy}", path, written, {}, old=old, annotations=annotations)


def _groups() -> Iterator[AttackWorld]:
    """All rules, beside an owner's affinity of each kind; and a VM that moves, with many others of its group."""
    rules: Json = {**of_groups.APART, "together": {"topologyKey": ZONE, "required": True}, **of_groups.HOSTS}
    section = of_groups.section(rules)
    settings: Any = {"settings": {"rules": section.rules}}
    vm = of_groups.vm(of_groups.IN_GROUP)
    yield _world("VM, in a group", "mutate/groups/virtualmachines", vm, {}, **settings)
    yield _world("VMI, in a group", "mutate/groups/virtualmachineinstances", of_groups.vmi(), {}, **settings)
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
    between: Json = {of_groups.REQUIRED: [of_groups.TERM], of_groups.PREFERRED: []}
    affinity = {"nodeAffinity": {of_groups.REQUIRED: terms}, "podAffinity": between, "podAntiAffinity": between}
    others = _list(of_groups.MEMBERS, msgspec.to_builtins(of_groups.member("node-a2")))
    recorded = of_groups.recorded(section)
    for name, labels in (("launcher pod, in a group", {}), ("target pod, in a group", of_groups.MIGRATED)):
        pod = of_groups.pod(recorded, labels, affinity=affinity)
        parts = {"members": others} if labels else {}
        yield _world(name, "mutate/groups/pods", pod, parts, user=CONTROLLER, facts=_placed(), **settings)
    apart = of_groups.section()
    settings = {"settings": {"rules": apart.rules}}
    moving = {
        **_placement(),
        "members": others,
        "vmi": _object(ObjectKey(PLACED_VMIS, "demo", "web01"), of_groups.running(apart)),
        "pod": _object(
            ObjectKey(LAUNCHER_PODS, "demo", eviction.POD),
            eviction.pod(labels={"kubevirt.io": "virt-launcher", **of_groups.IN_GROUP}),
        ),
    }
    body = eviction.review()["request"]["object"]
    evicted: Any = {"facts": _placed(), "request": {"name": eviction.POD}, **settings}
    yield _world("eviction, in a group", "mutate/groups/evictions", body, moving, **evicted)
    migrations = "validate/groups/virtualmachineinstancemigrations"
    parts = {name: part for name, part in moving.items() if name != "pod"}
    yield _world("migration, in a group", migrations, migration.migration(), parts, facts=_placed(), **settings)


_EXPRESSION: Final = Fields({"key": schema.TEXT, "operator": schema.TEXT, "values": schema.Items(schema.TEXT)})

# All that makes KubeVirt look through a VM's lists.
_PREFERENCE: Final[Json] = {
    "devices": {"preferredDiskBus": "virtio", "preferredInterfaceMasquerade": {}, "preferredInterfaceModel": "virtio"},
    "cpu": {"preferredCPUFeatures": []},
    "volumes": {"preferredStorageClassName": "fast"},
}

WORLDS: Final = (
    *(*_migrations(), *_evictions(), *_preemptions(), *_headrooms(), *_schedulings(), *_instancetypes()),
    *(*_namings(), *_sizes(), *_defaults(), *_groups(), *_namespaces()),
)
