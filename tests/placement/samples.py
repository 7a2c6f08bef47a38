"""Nodes, VMIs and their requirements: by hand, and at random for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from webhook.kubevirt.config import ClusterConfig
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import Node, convert_to_view

Json = dict[str, Any]

HOST = "kubernetes.io/hostname"

# Machines that run tests may be busy.
untimed = settings(deadline=None)
thorough = settings(deadline=None, max_examples=300)


def node(
    name: str = "n1",
    labels: dict[str, str] | None = None,
    *,
    taints: Any = None,
    cordoned: bool = False,
    kvm: Any = None,
) -> Node:
    """A node with these labels, and its own name as hostname if they don't say another."""
    json: Json = {"metadata": {"name": name, "labels": {HOST: name, **(labels or {})}}, "spec": {"taints": taints}}
    if cordoned:
        json["spec"]["unschedulable"] = True
    if kvm is not None:
        json["status"] = {"allocatable": {"devices.kubevirt.io/kvm": kvm}}
    return Node.read(json)


def vmi(spec: Json | None = None, domain: Json | None = None, **status: Any) -> Vmi:
    return convert_to_view(Vmi, {"spec": {"domain": domain or {}, **(spec or {})}, "status": status}, "vmi")


def pod(**selector: str) -> LauncherPod:
    return convert_to_view(LauncherPod, {"spec": {"nodeSelector": selector}}, "pod")


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

keys = st.sampled_from(KEYS)
values = st.sampled_from(VALUES)
labels = st.dictionaries(keys, values, min_size=1, max_size=len(KEYS))
taints = st.fixed_dictionaries(
    {"key": st.sampled_from(TAINT_KEYS), "effect": st.sampled_from(EFFECTS)},
    optional={"value": st.sampled_from(["", "x"])},
)


allocatable = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "1500m", "4", 16]),
        "memory": st.sampled_from(["512Mi", "1Gi", "4Gi"]),
        "hugepages-2Mi": st.sampled_from(["0", "1Gi"]),
        "example.com/foo": st.sampled_from(["0", "1", "2", None]),
        "devices.kubevirt.io/kvm": st.sampled_from([None, "0", 0, "1k"]),
    },
)
requests = st.dictionaries(
    st.sampled_from(["cpu", "memory", "hugepages-2Mi", "example.com/foo", "devices.kubevirt.io/kvm"]),
    st.sampled_from([1, 2, 1000, 1500, 1501, 4000, 2**29, 2**30, 2**32]),
    max_size=3,
)


def nodes(names: st.SearchStrategy[str]) -> st.SearchStrategy[Node]:
    return st.builds(
        lambda name, labels, taints, cordoned, allocatable, emptied: Node.read(
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {"taints": taints, "unschedulable": cordoned},
                "status": {
                    "allocatable": allocatable,
                    "conditions": [{"type": "DrainInProgress", "status": str(emptied)}],
                },
            }
        ),
        names,
        labels,
        st.lists(taints, max_size=3),
        st.booleans(),
        st.none() | allocatable,
        st.booleans(),
    )


clusters = st.lists(nodes(st.sampled_from(NAMES)), unique_by=lambda node: node.name, min_size=3, max_size=len(NAMES))
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "in"])
well_formed = st.one_of(
    st.builds(
        lambda key, operator, chosen: expression(key, operator, *chosen),
        keys,
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from([value for value in VALUES if value != "-3"]), min_size=1, max_size=2),
    ),
    st.builds(expression, keys, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(
        expression, st.sampled_from(["rank", "zone"]), st.sampled_from(["Gt", "Lt"]), st.sampled_from(["0", "5"])
    ),
)
malformed = st.builds(
    lambda key, operator, chosen: expression(key, operator, *chosen),
    st.sampled_from([*KEYS, "not a key"]),
    operators,
    st.lists(values, max_size=2),
)
any_expression = st.one_of(well_formed, well_formed, malformed)
any_field = st.builds(
    expression,
    st.sampled_from(["metadata.name", "metadata.namespace"]),
    st.sampled_from(["In", "NotIn", "Exists"]),
    st.sampled_from([*NAMES, ""]),
)
any_term = st.fixed_dictionaries(
    {},
    optional={"matchExpressions": st.lists(any_expression, max_size=3), "matchFields": st.lists(any_field, max_size=2)},
)
terms = st.one_of(st.lists(well_formed, min_size=1, max_size=2).map(lambda them: expressions(*them)), any_term)
tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["", *TAINT_KEYS]),
        "operator": st.sampled_from(["", "Equal", "Exists", "Gt", "Lt", "equal"]),
        "value": st.sampled_from(["", "x"]),
        "effect": st.sampled_from(["", *EFFECTS]),
    },
)
selectors = st.dictionaries(keys, values, max_size=3)
cpus = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["host-model", "Westmere", "host-passthrough"]),
        "features": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["vmx", "invtsc"])},
                optional={"policy": st.sampled_from(["", "require", "forbid", "optional"])},
            ),
            max_size=2,
        ),
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
