"""Nodes, VMIs and their requirements: by hand, and at random for hypothesis."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from tests.builders import read_node
from webhook.kubevirt.config import ClusterConfig
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import Node

Json = dict[str, Any]

HOST = "kubernetes.io/hostname"
FOO = "example.com/foo"
thorough = settings(deadline=None, max_examples=300)


def node(
    name: str = "n1",
    labels: dict[str, str] | None = None,
    *,
    taints: Any = None,
    cordoned: bool = False,
    kvm: Any = None,
    allocatable: Json | None = None,
) -> Node:
    """A node with these labels, and its own name as hostname if they don't say another."""
    json: Json = {"metadata": {"name": name, "labels": {HOST: name, **(labels or {})}}, "spec": {"taints": taints}}
    if cordoned:
        json["spec"]["unschedulable"] = True
    if kvm is not None:
        allocatable = {"devices.kubevirt.io/kvm": kvm}
    return read_node(json | ({"status": {"allocatable": allocatable}} if allocatable is not None else {}))


def vmi(spec: Json | None = None, domain: Json | None = None, **status: Any) -> Vmi:
    return msgspec.convert({"spec": {"domain": domain or {}, **(spec or {})}, "status": status}, Vmi)


def pod(**selector: str) -> LauncherPod:
    return msgspec.convert({"spec": {"nodeSelector": selector}}, LauncherPod)


def compute_pod(
    requests: Json, annotations: dict[str, str] | None = None, *, beside: list[Json] | None = None, **spec: Any
) -> LauncherPod:
    """A launcher pod by what the container of the guest requests."""
    containers = [{"name": "compute", "resources": {"requests": requests}}, *(beside or ())]
    json = {"metadata": {"annotations": annotations}, "spec": {"containers": containers, **spec}}
    return msgspec.convert(json, LauncherPod)


def kubevirt(**developer: Any) -> ClusterConfig:
    return ClusterConfig.of({"developerConfiguration": developer})


def affinity(*terms: Json | None) -> Json:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def expressions(*them: Json | None) -> Json:
    return {"matchExpressions": list(them)}


# -- at random: few keys and values, so that things meet ---------------------------------------------------------------

NAMES = [f"n{number}" for number in range(6)]
KEYS = ["zone", "disk", "rank", HOST]
VALUES = ["a", "b", "1", "7", "-3", "", *NAMES[:2]]
EFFECTS = ["NoSchedule", "NoExecute", "PreferNoSchedule"]
TAINT_KEYS = ["dedicated", "maint", "node.kubernetes.io/unschedulable"]
RESOURCES = ["cpu", "memory", "hugepages-2Mi", FOO, "devices.kubevirt.io/kvm"]


def fields(optional: dict[str, Any], **needed: Any) -> st.SearchStrategy[Json]:
    drawn = ({name: st.sampled_from(values) for name, values in each.items()} for each in (needed, optional))
    return st.fixed_dictionaries(next(drawn), optional=next(drawn))


keys = st.sampled_from(KEYS)
values = st.sampled_from(VALUES)
labels = st.dictionaries(keys, values, min_size=1, max_size=len(KEYS))
selectors = st.dictionaries(keys, values, max_size=3)
taints = fields({"value": ["", "x"]}, key=TAINT_KEYS, effect=EFFECTS)
_AMOUNTS: list[list[Any]] = [
    *(["1", "1500m", "4", 16], ["512Mi", "1Gi", "4Gi"], ["0", "1Gi"], ["0", "1", "2", None]),
    [None, "0", 0, "1k"],
]
allocatable = fields(dict(zip(RESOURCES, _AMOUNTS, strict=True)))
requests = st.dictionaries(
    st.sampled_from(RESOURCES), st.sampled_from([1, 2, 1000, 1500, 1501, 4000, 2**29, 2**30, 2**32]), max_size=3
)


def nodes(names: st.SearchStrategy[str]) -> st.SearchStrategy[Node]:
    draining = st.booleans().map(lambda is_true: [{"type": "DrainInProgress", "status": str(is_true)}])
    parts = {
        "metadata": st.fixed_dictionaries({"name": names, "labels": labels}),
        "spec": st.fixed_dictionaries({"taints": st.lists(taints, max_size=3), "unschedulable": st.booleans()}),
        "status": st.fixed_dictionaries({"allocatable": st.none() | allocatable, "conditions": draining}),
    }
    return st.fixed_dictionaries(parts).map(read_node)


clusters = st.lists(nodes(st.sampled_from(NAMES)), unique_by=lambda node: node.name, min_size=3, max_size=len(NAMES))


def drawn_expressions(
    keys: list[str], operators: list[str], values: list[str], least: int, most: int
) -> st.SearchStrategy[Json]:
    chosen = st.lists(st.sampled_from(values), min_size=least, max_size=most)
    parts = {"key": st.sampled_from(keys), "operator": st.sampled_from(operators), "values": chosen}
    return st.fixed_dictionaries(parts)


well_formed = st.one_of(
    drawn_expressions(KEYS, ["In", "NotIn"], [value for value in VALUES if value != "-3"], 1, 2),
    drawn_expressions(KEYS, ["Exists", "DoesNotExist"], VALUES, 0, 0),
    drawn_expressions(["rank", "zone"], ["Gt", "Lt"], ["0", "5"], 1, 1),
)
operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "in"]
malformed = drawn_expressions([*KEYS, "not a key"], operators, VALUES, 0, 2)
any_field = drawn_expressions(["metadata.name", "metadata.namespace"], ["In", "NotIn", "Exists"], [*NAMES, ""], 1, 1)
any_term = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(st.one_of(well_formed, well_formed, malformed), max_size=3),
        "matchFields": st.lists(any_field, max_size=2),
    },
)
terms = st.one_of(st.lists(well_formed, min_size=1, max_size=2).map(lambda them: expressions(*them)), any_term)
tolerations = fields(
    {
        "key": ["", *TAINT_KEYS],
        "operator": ["", "Equal", "Exists", "Gt", "Lt", "equal"],
        "value": ["", "x"],
        "effect": ["", *EFFECTS],
    }
)
features = fields({"policy": ["", "require", "forbid", "optional"]}, name=["vmx", "invtsc"])
cpus = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["host-model", "Westmere", "host-passthrough"]),
        "features": st.lists(features, max_size=2),
    },
)
vmis = st.builds(
    lambda selector, terms, tolerations, cpu, source: vmi(
        {"nodeSelector": selector, "affinity": None if terms is None else affinity(*terms), "tolerations": tolerations},
        {"cpu": cpu},
        nodeName=source,
    ),
    selectors,
    st.none() | st.lists(terms, max_size=3),
    st.lists(tolerations, max_size=3),
    cpus,
    st.sampled_from([None, *NAMES]),
)
