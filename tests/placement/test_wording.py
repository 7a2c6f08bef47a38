"""Texts of placement, held in ``tests/golden/placement.txt``: every requirement, and why a node does not meet it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from tests import golden_files
from tests.placement.samples import FOO, HOST, compute_pod, node, vmi
from webhook.errors import InputError
from webhook.k8s.types.scheduling import Toleration
from webhook.k8s.types.selectors import Expression, Term, find_malformed, key_problem, parse_selector, value_problem
from webhook.placement import requirements as module
from webhook.placement.demand import target_pod_demand
from webhook.placement.eligibility import eligibility_notes
from webhook.placement.machines import Migration
from webhook.placement.nodes import Departure, Node
from webhook.placement.requirements import Label, OneOf, Origin, Requirement
from webhook.placement.target_pods import requirement_gaps, unexplained_labels_gap

ZONE: Final = Expression.equals("zone", "b")
ZONE_TERM: Final = Term((ZONE, Expression("disk", "Exists")))
NAME_TERM: Final = Term((), (Expression("metadata.name", "In", ("n2",)),))
INVALID_TERM: Final = Term.of((Expression("zone", "Is"),), (), "nodeSelectorTerms[0]")
ORIGINS: Final = (
    *(Origin.ADDED, Origin.VM, Origin.CLUSTER, Origin.KUBEVIRT, Origin.SCHEDULABLE),
    *(Origin.HOST_MODEL, Origin.VENDOR, Origin.RUNTIME_CLASS, Origin.NAMESPACE),
)

TAINTS: Final = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
SOURCE: Final = module.Elsewhere(Origin.SOURCE_NODE, "n1", "host-1")
# A requirement, and a node that does not meet it.
UNMET: Final[tuple[tuple[Requirement, Node], ...]] = (
    *((Label(origin, ZONE), node("n1", {"zone": "a"})) for origin in ORIGINS),
    (Label(Origin.VM, ZONE), node("n1")),
    (Label(Origin.SOURCE_NODE, Expression(HOST, "NotIn", ("far-away",))), node("far-away")),
    (Label(Origin.RESERVATION, Expression(HOST, "NotIn", ("host-1",))), node("n1", {HOST: "host-1"})),
    (OneOf(Origin.AFFINITY, (ZONE_TERM,)), node("n1", {"zone": "b"})),
    (OneOf(Origin.AFFINITY, (NAME_TERM,)), node("n1")),
    (OneOf(Origin.AFFINITY, ()), node("n1")),
    (OneOf(Origin.AFFINITY, (INVALID_TERM,)), node("n1")),
    (OneOf(Origin.AFFINITY, (INVALID_TERM, ZONE_TERM, Term((Expression("rank", "Gt", ("5",)),)))), node("n1")),
    (module.Untainted(Origin.TAINTS, ()), node("n1", taints=TAINTS)),
    (module.Untainted(Origin.TAINTS, (Toleration("other", "Exists"),)), node("n1", taints=TAINTS)),
    (module.Uncordoned(Origin.CORDONED, ()), node("n1", cordoned=True)),
    (module.Staying(Origin.DEPARTURE), msgspec.structs.replace(node("n1"), departure=Departure("Drained", True))),
    (SOURCE, node("n1")),
    (SOURCE, node("n2", {HOST: "host-1"})),
    (module.Kvm(Origin.KVM), node("n1", kvm="0")),
    (module.Allocatable(Origin.RESOURCES, FOO, 2), node(allocatable={FOO: "1"})),
    (module.Allocatable(Origin.RESOURCES, FOO, 2), node(allocatable={"cpu": "1"})),
    (module.Allocatable(Origin.RESOURCES, "memory", 2 * 1024**3), node(allocatable={"memory": "1Gi"})),
    (module.Reachable(Origin.VOLUMES, (ZONE_TERM,), "root"), node("n1", {"zone": "a"})),
)
EXPRESSIONS: Final = (
    *(Expression("zone", operator, ("a",)) for operator in ("In", "NotIn")),
    *(Expression("zone", operator, ("a", "b")) for operator in ("In", "NotIn", "Is")),
    *(Expression("zone", operator) for operator in ("Exists", "DoesNotExist")),
    *(Expression("rank", operator, ("5",)) for operator in ("Gt", "Lt")),
)
INVALID_EXPRESSIONS: Final = (
    Expression("not a key", "Exists"),
    Expression("zone", "Is"),
    Expression("zone", "In"),
    Expression("zone", "Exists", ("a",)),
    Expression("rank", "Gt"),
    Expression("rank", "Lt", ("x",)),
    Expression("zone", "In", ("a b",)),
)
INVALID_FIELDS: Final = (Expression("metadata.name", "Exists"), Expression("metadata.name", "In"))
INVALID_KEYS: Final = ("", "a/b/c", "/a", "a" * 254 + "/n", "A/n", "x" * 64, "a b")


def _advice() -> tuple[str, ...]:
    required: Any = {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
    spec = {
        "affinity": {"podAffinity": required, "podAntiAffinity": required},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
    }
    return eligibility_notes(vmi(spec), ())


def _gaps() -> tuple[str, ...]:
    """The facts that the evaluation could not take into account."""
    running = vmi(None, {"cpu": {"model": "Westmere"}}, nodeName="n1")
    host_model = vmi(None, {"cpu": {"model": "host-model"}}, migrationState={"sourceState": {"node": "far-1"}})
    receives = msgspec.convert({"spec": {"receive": {"migrationID": "x"}}}, Migration)
    claims = compute_pod({FOO: "1"}, resourceClaims=[{"name": "gpu"}])
    offers_less = node(allocatable={"cpu": "4"})
    many = {f"example.com/r{number}": "1" for number in range(100)}
    return (
        *requirement_gaps(running, Migration(), None, None),
        *requirement_gaps(running, receives, None, None),
        *requirement_gaps(host_model, receives, None, None),
        *target_pod_demand(vmi(), claims).gaps,
        *target_pod_demand(vmi(None, {"resources": {"requests": {FOO: "1"}}}), claims, offers_less).gaps,
        *target_pod_demand(vmi(None, {"resources": {"requests": many}}), None).gaps,
        unexplained_labels_gap(dict.fromkeys("gfedcba", "1")),
    )


def _selector_mistakes() -> tuple[InputError, ...]:
    """The errors in selectors, as users write them."""
    found = []
    for texts in (["zone"], ["zone=a", "zone=b"]):
        with pytest.raises(InputError) as mistake:
            parse_selector(texts, "--to")
        found.append(mistake.value)
    return (*found, *find_malformed({"zone": "not a label!", "a/b/c": "d"}, "spec.addedNodeSelector"))


def _sections() -> dict[str, list[str]]:
    pairs = [(asked, reason) for asked, on in UNMET for reason in asked.reasons(on)]
    assert len(pairs) == len(UNMET)
    both = module.Contradiction((Label(Origin.ADDED, ZONE), SOURCE))
    return {
        "why a node is not eligible": [str(reason) for _, reason in pairs],
        "the same of many nodes": list(dict.fromkeys(f"2 node(s) {asked.lacking}" for asked, _ in pairs)),
        "contradictions": [str(both)],
        "conditions": [f"{each}; {each.lacking}" for each in EXPRESSIONS],
        "terms": [str(each) for each in (ZONE_TERM, Term(), INVALID_TERM)],
        "invalid conditions": [problem for each in INVALID_EXPRESSIONS for problem in each.problems()],
        "invalid conditions on fields": [problem for each in INVALID_FIELDS for problem in each.field_problems()],
        "invalid keys": [f"key {key_problem(key)}" for key in INVALID_KEYS],
        "invalid values": [f"value {problem}" for value in ("x" * 64, "a b") if (problem := value_problem(value))],
        "invalid selectors": [str(mistake) for mistake in _selector_mistakes()],
        "advice": list(_advice()),
        "gaps": list(_gaps()),
    }


@pytest.mark.golden
def test_placement_says_it_as_kubernetes_words_it() -> None:
    lines = [line for title, texts in _sections().items() for line in (f"# {title}", *texts, "")]
    golden_files.check("placement.txt", "\n".join(lines))
