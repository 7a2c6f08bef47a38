"""Clusters to drain: by hand, and at random for hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from webhook.forecast.priorities import PriorityClass
from webhook.forecast.snapshot import ClusterObjects, PodDisruptionBudget
from webhook.k8s.types.core import Node
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.run_strategy import RunnableVm
from webhook.kubevirt.types.views import WorkloadUpdateStrategy
from webhook.placement.machines import Claim, Migration, PersistentVolume, Vmi
from webhook.placement.quota import ResourceQuota
from webhook.placement.running_pods import RunningPod
from webhook.settings.model import Settings

Json = dict[str, Any]

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GIB = 2**30


def node(name: str, *, memory: str = "8Gi", cpu: str = "8", cordoned: bool = False, **labels: Any) -> Json:
    base = {"kubernetes.io/arch": "amd64", HOST: name, "kubevirt.io/schedulable": "true"}
    spec = {"unschedulable": True} if cordoned else {}
    allocatable = {"cpu": cpu, "memory": memory, "pods": "20", "devices.kubevirt.io/kvm": "1k"}
    return {"metadata": {"name": name, "labels": base | labels}, "spec": spec, "status": {"allocatable": allocatable}}


# The features of a VM that needs a TSC frequency.
TIMED: Json = {"hyperv": {"reenlightenment": {"enabled": True}}}


def timed(frequency: int, others: Sequence[int] = ()) -> Json:
    """The labels of a node with a TSC frequency, in Hz, that can be scaled to others."""
    scaled = {f"scheduling.node.kubevirt.io/tsc-frequency-{each}": "true" for each in (frequency, *others)}
    return {"cpu-timer.node.kubevirt.io/tsc-frequency": str(frequency)} | scaled


def vm(
    name: str,
    on: str,
    memory: str = "1Gi",
    *,
    cpu: str = "100m",
    labels: Mapping[str, str] | None = None,
    condition: Json | None = None,
    **spec: Any,
) -> tuple[Json, Json]:
    """A VMI that runs, and its pod; keywords go into its spec."""
    uid = f"uid-{name}"
    migratable = {"type": "LiveMigratable", "status": "True"}
    domain = {"cpu": {"model": "host-passthrough"}, "devices": {}, "memory": {"guest": memory}}
    vmi = {
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "labels": dict(labels or {})},
        "spec": {"architecture": "amd64", "domain": domain, **spec},
        "status": {"phase": "Running", "nodeName": on, "conditions": [condition or migratable]},
    }
    requests = {"cpu": cpu, "memory": memory, "devices.kubevirt.io/kvm": "1"}
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "uid": uid}
    pod = {
        "metadata": {
            "name": f"virt-launcher-{name}",
            "namespace": "shop",
            "labels": {**(labels or {}), "kubevirt.io/created-by": uid},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {
            "nodeName": on,
            **{field: spec.get(field) for field in ("affinity", "tolerations", "topologySpreadConstraints")},
            "containers": [{"name": "compute", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running"},
    }
    return vmi, pod


def owned(vm: tuple[Json, Json], strategy: str = "Always", **more: Any) -> Json:
    """The VirtualMachine of a VMI, which becomes its owner; keywords go into its status."""
    meta = vm[0]["metadata"]
    uid = f"vm-{meta['name']}"
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": meta["name"], "uid": uid}
    meta["ownerReferences"] = [owner | {"controller": True}]
    return {
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": uid},
        "spec": {"runStrategy": strategy, "template": {"spec": vm[0]["spec"]}},
        "status": more,
    }


def attachment(of: Json, **requests: str) -> Json:
    """The pod that attaches the hotplugged volumes of a VM, whose launcher pod this is."""
    metadata = of["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": "u", "controller": True}
    resources = {"requests": {"cpu": "10m", "memory": "2M"} | requests}
    return {
        "metadata": {
            "name": f"hp-volume-{metadata['name']}",
            "namespace": "shop",
            "labels": {"kubevirt.io": "hotplug-disk"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": of["spec"]["nodeName"], "containers": [{"name": "hotplug-disk", "resources": resources}]},
        "status": {"phase": "Running"},
    }


def filler(name: str, on: str, memory: str = "1Gi", *, owner: str = "ReplicaSet", **labels: str) -> Json:
    owners = [{"kind": owner, "name": "owner", "uid": "o", "controller": True}]
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": labels, "ownerReferences": owners},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"memory": memory}}}]},
        "status": {"phase": "Running"},
    }


def apart(key: str = HOST, **labels: str) -> Json:
    """The affinity of a VM that keeps off pods with these labels."""
    return {"podAntiAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": labels}}]}}


def together(key: str = HOST, **labels: str) -> Json:
    return {"podAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": labels}}]}}


def budget(allowed: int, **labels: str) -> Json:
    return {
        "metadata": {"name": "budget", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }


def quota(**amounts: tuple[str, str]) -> Json:
    """A quota by what it limits: what there is of it, and what is used; ``_`` stands for a dot or a slash."""
    named = {name.replace("__", "/").replace("_", "."): each for name, each in amounts.items()}
    status = {kind: {name: each[at] for name, each in named.items()} for at, kind in enumerate(("hard", "used"))}
    return {"metadata": {"name": "vms", "namespace": "shop"}, "status": status}


def snapshot(
    nodes: Sequence[Json],
    vms: Sequence[tuple[Json, Json]],
    *,
    pods: Sequence[Json] = (),
    strategy: str = "LiveMigrate",
    migrations: Sequence[Json] = (),
    budgets: Sequence[Json] = (),
    claims: Sequence[Json] = (),
    volumes: Sequence[Json] = (),
    limits: Json | None = None,
    quotas: Sequence[Json] = (),
    updates: Json | None = None,
    classes: Sequence[Json] = (),
    namespace: Json | None = None,
    settings: Settings | None = None,
    owners: Sequence[Json] | None = None,
) -> ClusterObjects:
    return ClusterObjects(
        nodes=_views(Node, nodes),
        pods=_views(RunningPod, [*(pod for _, pod in vms), *pods]),
        vmis=_views(Vmi, [vmi for vmi, _ in vms]),
        migrations=_views(Migration, migrations),
        namespaces=_views(Namespace, [{"metadata": {"name": "shop", "labels": {"team": "shop"}} | (namespace or {})}]),
        budgets=_views(PodDisruptionBudget, budgets),
        claims=_views(Claim, claims),
        volumes=_views(PersistentVolume, volumes),
        quotas=_views(ResourceQuota, quotas),
        priority_classes=_views(PriorityClass, classes),
        vms=_views(RunnableVm, owners or ()),
        kubevirt=ClusterConfig.of({"migrations": limits or {}, "evictionStrategy": strategy}),
        workload_updates=msgspec.convert(updates or {}, WorkloadUpdateStrategy),
        settings=settings,
    )


def large(number: int, **options: Any) -> ClusterObjects:
    """So many nodes with two VMs each, which all keep off some."""
    nodes = [node(f"n{index:04}", memory="64Gi") for index in range(number)]
    vms = [
        vm(f"vm-{index}", f"n{index % number:04}", labels={"app": f"a{index % 7}"}, affinity=apart(app="a0"))
        for index in range(2 * number)
    ]
    return snapshot(nodes, vms, **options)


def _views(view: Any, found: Sequence[Json]) -> tuple[Any, ...]:
    return tuple(msgspec.convert(each, view) for each in found)


def priority_class(name: str, value: int, **more: Any) -> Json:
    return {"metadata": {"name": name}, "value": value, **more}


# Every API server has them: with these a list is complete.
BUILT_IN = [
    priority_class("system-cluster-critical", 2_000_000_000),
    priority_class("system-node-critical", 2_000_001_000),
]

APPS = st.sampled_from(["web", "db"])
NAMES = [f"node-{number}" for number in range(5)]


@st.composite
def random_clusters(draw: st.DrawFn, priorities: Sequence[int] = (0,), *, with_hurdles: bool = False) -> ClusterObjects:
    """Five nodes and up to eight VMs.

    Args:
        draw: hypothesis'.
        priorities: those of pods.
        with_hurdles: whether there is room for the VMs, which are few and without rules, and may name a scheduler that
            is down, or need a TSC frequency. The oracle knows neither.
    """
    nodes = [
        node(
            name,
            memory=draw(st.sampled_from(["2Gi", "4Gi", "6Gi"])),
            cpu=draw(st.sampled_from(["1", "2"])),
            cordoned=draw(st.booleans()) and draw(st.booleans()),
            zone=draw(st.sampled_from("ab")),
        )
        for name in NAMES
    ]
    vms = [
        vm(
            f"vm-{number}",
            draw(st.sampled_from(NAMES)),
            draw(st.sampled_from(["512Mi", "1Gi", "2Gi", "3Gi"])),
            cpu=draw(st.sampled_from(["100m", "500m"])),
            labels={"app": draw(APPS)},
            **({} if with_hurdles else draw(_specs())),
        )
        for number in range(draw(st.integers(1, 2 if with_hurdles else 8)))
    ]
    attached = [attachment(pod) for vmi, pod in vms if vmi["spec"].get("volumes")]
    claims = [{"metadata": {"name": each, "namespace": "shop"}, "spec": {"volumeName": each}} for each in "ab"]
    volumes = [{"metadata": {"name": each}, "spec": {"nodeAffinity": {"required": _in_zone(each)}}} for each in "ab"]
    if with_hurdles:
        for each, frequency in zip(nodes, draw(_FREQUENCIES), strict=True):
            each["metadata"]["labels"] |= timed(frequency, draw(_SCALED))
            each["status"]["allocatable"]["memory"] = "8Gi"
            each["spec"]["unschedulable"] = frequency < _FASTEST and draw(st.booleans())
        for vmi, _ in vms:
            vmi["spec"] |= {"schedulerName": "custom"} if draw(st.booleans()) else {}
            vmi["spec"]["domain"] |= {"features": TIMED} if draw(st.booleans()) else {}
    several = len(priorities) > 1
    fillers = [
        filler(f"pod-{number}", draw(st.sampled_from(NAMES)), **({"app": draw(APPS)} if several else {}))
        for number in range(draw(st.integers(8, 14) if several else st.integers(0, 0 if with_hurdles else 3)))
    ]
    for vmi, pod in vms:
        value = draw(st.sampled_from(priorities))
        vmi["spec"]["priorityClassName"] = pod["spec"]["priorityClassName"] = f"class-{value}"
        pod["spec"]["priority"] = value
    for each in fillers:
        each["spec"]["priority"] = draw(st.sampled_from(priorities))
    classes = [*BUILT_IN, *(priority_class(f"class-{value}", value) for value in priorities)]
    pods = [*attached, *fillers]
    budgets = [budget(draw(st.integers(0, 1)), app=draw(APPS))] if several and draw(st.booleans()) else []
    found = snapshot(nodes, vms, pods=pods, claims=claims, volumes=volumes, classes=classes, budgets=budgets)
    is_down = with_hurdles and draw(st.booleans())
    return replace(found, schedulers_down={"custom": "Lease expired 12s ago"}) if is_down else found


CLUSTERS_WITH_PRIORITIES = random_clusters((0, 10, 100))
_FASTEST = 3000
_FREQUENCIES = st.permutations([1000, 2000, 3000, 3000, 3000]) | st.permutations([1000, 1000, 2000, 3000, 3000])
_SCALED = st.sampled_from([[1000], [1000], [1000], [1000, 2000]])


def _in_zone(name: str) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}]}


@st.composite
def _specs(draw: st.DrawFn) -> Json:
    spec: Json = {}
    if draw(st.booleans()):
        spec["nodeSelector"] = {"zone": draw(st.sampled_from("ab"))}
    if draw(st.integers(0, 3)) == 3:
        claim = {"claimName": draw(st.sampled_from("ab")), "hotpluggable": True}
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    key = draw(st.sampled_from([HOST, "zone"]))
    match draw(st.sampled_from(["free", "free", "apart", "together", "spread"])):
        case "apart":
            spec["affinity"] = apart(key, app=draw(APPS))
        case "together":
            spec["affinity"] = together(key, app=draw(APPS))
        case "spread":
            selector = {"matchLabels": {"app": draw(APPS)}}
            spread = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
            spec["topologySpreadConstraints"] = [spread]
    return spec
