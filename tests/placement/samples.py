"""Nodes, VMIs and their requirements: by hand, and at random for hypothesis; and which of the nodes meet them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from tests.builders import read_node
from tests.drawn import one_of_each, some_of
from webhook.kubevirt.config import ClusterConfig
from webhook.placement.eligibility import Eligibility, unmet_requirements
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import Node
from webhook.placement.requirements import Requirements, UnmetRequirement

Json = dict[str, Any]

HOST = "kubernetes.io/hostname"
FOO = "example.com/foo"
thorough = settings(max_examples=300)


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


def reasons_node_by_node(requirements: Requirements, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """Why each node is not eligible, worked out the plain way; empty for an eligible node."""
    return {node.name: unmet_requirements(requirements, node) for node in nodes}


def reasons_by_node(eligibility: Eligibility, nodes: Iterable[Node]) -> dict[str, tuple[UnmetRequirement, ...]]:
    """The same as an `Eligibility` of these nodes has it: for each, a reason for each failure that names it."""
    known = {node.name: node for node in nodes}
    rows: dict[str, list[UnmetRequirement]] = {name: [] for name in known}
    for failure in eligibility.failures:
        for name in eligibility.names(failure):
            reasons = failure.requirement.reasons(known[name])
            rows[name] += [each for each in reasons if failure.taint is None or each.has.endswith(f" {failure.taint}")]
    return {name: tuple(row) for name, row in rows.items()}


# -- at random: few keys and values, so that things meet ---------------------------------------------------------------

NAMES = [f"n{number}" for number in range(6)]
KEYS = ["zone", "disk", "rank", HOST]
VALUES = ["a", "b", "1", "7", "-3", "", *NAMES[:2]]
EFFECTS = ["NoSchedule", "NoExecute", "PreferNoSchedule"]
TAINT_KEYS = ["dedicated", "maint", "node.kubernetes.io/unschedulable"]
RESOURCES = ["cpu", "memory", "hugepages-2Mi", FOO, "devices.kubevirt.io/kvm"]


selectors = one_of_each(dict.fromkeys(KEYS, (..., ..., ..., *VALUES)))
_REQUESTED = (..., ..., ..., ..., ..., ..., 1, 2, 1000, 1500, 1501, 4000, 2**29, 2**30, 2**32)
requests = one_of_each(dict.fromkeys(RESOURCES, _REQUESTED))
_VALUES: list[Json] = [{}, {"value": ""}, {"value": "x"}]
_TAINTS = [{"key": key, "effect": effect} | value for key, effect, value in product(TAINT_KEYS, EFFECTS, _VALUES)]
_AMOUNTS: list[list[Any]] = [
    *(["1", "1500m", "4", 16], ["512Mi", "1Gi", "4Gi"], ["0", "1Gi"], ["0", "1", "2", None]),
    [None, "0", 0, "1k"],
]
_DRAINING = [[{"type": "DrainInProgress", "status": status}] for status in ("False", "True")]
_SHAPES: dict[str, Sequence[Any]] = {"unschedulable": (False, True), "conditions": _DRAINING}


def nodes(names: st.SearchStrategy[str]) -> st.SearchStrategy[Node]:
    def made(name: str, labels: Json, taints: list[Json], amounts: Json | None, shape: Json) -> Node:
        spec = {"taints": taints, "unschedulable": shape["unschedulable"]}
        status = {"allocatable": amounts, "conditions": shape["conditions"]}
        return read_node({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})

    labels = one_of_each(dict.fromkeys(KEYS, (*VALUES, ...)))
    amounts = one_of_each({name: (..., *each) for name, each in zip(RESOURCES, _AMOUNTS, strict=True)})
    return st.builds(made, names, labels, some_of(_TAINTS, 3), st.none() | amounts, one_of_each(_SHAPES))


def _named(nodes: list[Node], first: int) -> list[Node]:
    return [msgspec.structs.replace(node, name=NAMES[at % len(NAMES)]) for at, node in enumerate(nodes, first)]


clusters = st.builds(_named, st.lists(nodes(st.just("n")), min_size=3, max_size=len(NAMES)), st.integers(0, 5))


def drawn_expressions(
    keys: list[str], operators: list[str], values: list[str], least: int, most: int
) -> st.SearchStrategy[Json]:
    lists = [list(found) for count in range(least, most + 1) for found in product(values, repeat=count)]
    return one_of_each({"key": keys, "operator": operators, "values": lists})


well_formed = st.one_of(
    drawn_expressions(KEYS, ["In", "NotIn"], [value for value in VALUES if value != "-3"], 1, 2),
    drawn_expressions(KEYS, ["Exists", "DoesNotExist"], VALUES, 0, 0),
    drawn_expressions(["rank", "zone"], ["Gt", "Lt"], ["0", "5"], 1, 1),
)
_OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "in"]
malformed = drawn_expressions([*KEYS, "not a key"], _OPERATORS, VALUES, 0, 2)
any_field = drawn_expressions(["metadata.name", "metadata.namespace"], ["In", "NotIn", "Exists"], [*NAMES, ""], 1, 1)
any_term = st.builds(
    lambda expressions, fields: {"matchExpressions": expressions} | fields,
    st.lists(st.one_of(well_formed, well_formed, malformed), max_size=3),
    st.lists(any_field, max_size=2).map(lambda them: {"matchFields": them} if them else {}),
)
terms = st.one_of(st.lists(well_formed, min_size=1, max_size=2).map(lambda them: expressions(*them)), any_term)
tolerations = one_of_each(
    {
        "key": (..., "", *TAINT_KEYS),
        "operator": (..., "", "Equal", "Exists", "Gt", "Lt", "equal"),
        "value": (..., "", "x"),
        "effect": (..., "", *EFFECTS),
    }
)
_POLICIES = ({}, *({"policy": policy} for policy in ("", "require", "forbid", "optional")))
_FEATURES = [{"name": name} | policy for name, policy in product(("vmx", "invtsc"), _POLICIES)]
cpus = st.builds(
    lambda model, features: model | {"features": features},
    one_of_each({"model": (..., "host-model", "Westmere", "host-passthrough")}),
    some_of(_FEATURES, 2),
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
