from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import read_node
from tests.forecast.clusters import HOST, apart, node, snapshot, vm
from webhook.admission.step_budget import StepBudget
from webhook.forecast import drain as planner
from webhook.forecast.drain import MAX_STEPS, plan
from webhook.k8s.types.scheduling import Affinity, TopologySpreadConstraint
from webhook.placement import pod_rules
from webhook.placement.index import NodeIndex
from webhook.placement.pod_rules import POD_AFFINITY, POD_ANTI_AFFINITY, PodConstraints, PodInfo, RuleIndex, rules_of

NAMESPACES = {"shop": {"team": "x"}, "lab": {"team": "y"}, "bare": {}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rules(
    *terms: Any, kind: str = "podAntiAffinity", spread: Any = (), labels: dict[str, str] | None = None
) -> PodConstraints:
    affinity = msgspec.convert({kind: {REQUIRED: list(terms)}}, Affinity)
    constraints = [msgspec.convert(each, TopologySpreadConstraint) for each in spread]
    return rules_of(affinity, constraints, "shop", labels or {}, NAMESPACES)


def meets(found: PodConstraints, namespace: str, **labels: str) -> bool:
    (near,) = found.anti_affinity or found.affinity
    return PodInfo(namespace, labels).meets(near)


@pytest.mark.parametrize(
    ("term", "namespaces"),
    [
        ({}, {"shop"}),
        ({"namespaces": ["lab"]}, {"lab"}),
        ({"namespaceSelector": {}}, {"shop", "lab", "bare", "unknown"}),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, {"lab"}),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}, "namespaces": ["bare"]}, {"lab", "bare"}),
        ({"namespaceSelector": {"matchLabels": {"team": "z"}}}, set()),
    ],
)
def test_namespaces_of_a_term(term: Any, namespaces: set[str]) -> None:
    found = rules({"topologyKey": "zone", "labelSelector": {}, **term})
    assert {name for name in ("shop", "lab", "bare", "unknown") if meets(found, name)} == namespaces


@pytest.mark.parametrize(
    ("selector", "is_meant"),
    [
        *((None, False), ({}, True), ({"matchLabels": {"app": "a"}}, True), ({"matchLabels": {"app": "b"}}, False)),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        *(({"matchExpressions": [{"key": "app", "operator": "Around"}]}, False), ({"matchExpressions": [None]}, False)),
    ],
)
def test_selectors_of_a_term(selector: Any, is_meant: bool) -> None:
    assert meets(rules({"topologyKey": "zone", "labelSelector": selector}), "shop", app="a") is is_meant


def test_keys_of_the_pods_own_labels() -> None:
    for key, names, same in (("matchLabelKeys", ["rev", "missing"], True), ("mismatchLabelKeys", ["rev"], False)):
        found = rules({"topologyKey": "zone", "labelSelector": {}, key: names}, labels={"rev": "1"})
        assert (meets(found, "shop", rev="1"), meets(found, "shop", rev="2")) == (same, not same)


def test_affinity_means_pods_that_meet_all_terms() -> None:
    one, two = ({"topologyKey": "zone", "labelSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b"))
    found = rules(one, two, kind="podAffinity")
    assert (meets(found, "shop", a="1", b="1"), meets(found, "shop", a="1")) == (True, False)


def test_only_hard_constraints_count() -> None:
    same = {"topologyKey": "zone", "maxSkew": 2, "labelSelector": {}}
    hard = {**same, "whenUnsatisfiable": "DoNotSchedule"}
    policies = {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    found = rules(spread=[{**same, "whenUnsatisfiable": "ScheduleAnyway"}, hard | policies, hard | {"minDomains": 3}])
    read = [(each.max_skew, each.min_domains, each.by_affinity, each.by_taints) for each in found.spread]
    assert read == [(2, 1, False, True), (2, 3, True, False)]
    assert not PodInfo("lab", {}).meets(found.spread[0].near), "other namespaces never count"


def test_what_is_malformed_means_no_pod() -> None:
    assert not meets(rules("nonsense"), "shop")
    assert not PodConstraints()
    assert rules_of(None, None, "shop", {}, {}) == PodConstraints()


def info(name: str, affinity: Any = None, **labels: str) -> PodInfo:
    own = rules_of(msgspec.convert(affinity or {}, Affinity), (), "shop", labels, {})
    return PodInfo("shop", {"name": name, **labels}, own)


@pytest.fixture
def found() -> RuleIndex:
    return RuleIndex(NodeIndex(read_node(node(name, zone=zone)) for name, zone in (("a", "1"), ("b", "1"), ("c", "2"))))


def excluded(found: RuleIndex, pod: PodInfo) -> dict[str, int]:
    return dict(found.excluded_nodes(pod, -1, -1))


def test_a_domain_is_excluded_while_any_pod_is_in_it(found: RuleIndex) -> None:
    pod, other = info("web", apart("zone", app="x")), info("db", app="x")
    found.track(pod)
    seen = []
    for position, number in ((0, 1), (1, 1), (0, -1), (1, -1)):
        found.add(other, position, number)
        seen.append(excluded(found, pod))
    assert seen == [*[{POD_ANTI_AFFINITY: 0b011}] * 3, {}]
    # Nodes without the label are no domain.
    racked = info("web", apart("rack", app="x"))
    found.track(racked)
    found.add(other, 0)
    assert excluded(found, racked) == {}


def test_rules_of_others_mean_a_pod_by_its_labels(found: RuleIndex) -> None:
    owner = info("db", apart(HOST, app="x"))
    found.track(owner)
    found.add(owner, 2)
    assert [excluded(found, info("web", app=app)) for app in "xy"] == [{POD_ANTI_AFFINITY: 0b100}, {}]


@pytest.mark.control("rules-between-pods")
def test_too_many_rules_about_the_same_pods_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_rules, "MOST_RULES", 5)
    vms = [vm(f"vm-{number}", "a", labels={"app": "x"}, affinity=apart(app="x", n=str(number))) for number in range(9)]
    found = plan(snapshot([node("a", memory="64Gi"), node("b", memory="64Gi")], vms), ["a"])
    assert (len(found.gaps), found.moves, found.blocks) == (1, 9, 0)


@pytest.mark.control("rules-between-pods")
def test_rules_that_tenants_write_by_the_thousand_take_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each about the same pods, no two alike: every pod is compared with so many of them at most."""
    monkeypatch.setattr(pod_rules, "MOST_RULES", 50)

    def steps(number: int) -> int:
        vms = [
            vm(f"vm-{each}", "a", "1Mi", labels={"app": "x"}, affinity=apart(app="x", n=str(each)))
            for each in range(number)
        ]
        roomy = [node(name, memory="64Gi", cpu="4k") for name in ("a", "b")]
        for each in roomy:
            each["status"]["allocatable"]["pods"] = "10k"
        work = StepBudget(MAX_STEPS)
        work.run(planner._plan, snapshot(roomy, vms), ["b"], rolling=False, parallel=1, bandwidth=None)
        return work.spent

    assert 0 < steps(400) < 5 * steps(100)


def test_pods_on_nodes_without_the_key_are_in_no_domain_that_others_could_join(found: RuleIndex) -> None:
    """kube-scheduler counts pods by their domains alone, so the first one that has a domain may go anywhere."""
    near = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    first = PodInfo("shop", {"app": "x"}, rules(near, kind="podAffinity"))
    bare = RuleIndex(NodeIndex([read_node(node("a", zone="1")), read_node(node("b"))]))
    for index, at in ((bare, 1), (found, 2)):
        index.track(first)
        index.add(info("there", app="x"), at)
    assert excluded(bare, first) == {POD_AFFINITY: 0b10}
    assert excluded(found, first) == {POD_AFFINITY: 0b011}
