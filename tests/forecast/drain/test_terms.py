from __future__ import annotations

from typing import Any

import msgspec
import pytest

from webhook.forecast.drain.terms import PodConstraints, Wearer, rules_of
from webhook.forecast.drain.views import SpreadTerm
from webhook.placement.affinity import Affinity

NAMESPACES = {"shop": {"team": "x"}, "lab": {"team": "y"}, "bare": {}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rules(
    *terms: Any, kind: str = "podAntiAffinity", spread: Any = (), labels: dict[str, str] | None = None
) -> PodConstraints:
    affinity = msgspec.convert({kind: {REQUIRED: list(terms)}}, Affinity)
    constraints = [msgspec.convert(each, SpreadTerm) for each in spread]
    return rules_of(affinity, constraints, "shop", labels or {}, NAMESPACES)


def meets(found: PodConstraints, namespace: str, **labels: str) -> bool:
    (near,) = found.anti_affinity or found.affinity
    return Wearer(namespace, labels).meets(near)


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
    ("selector", "app", "is_meant"),
    [
        (None, "a", False),
        ({}, "a", True),
        ({"matchLabels": {"app": "a"}}, "a", True),
        ({"matchLabels": {"app": "a"}}, "b", False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}, "a", True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "a", True),
        ({"matchExpressions": [{"key": "app", "operator": "Around"}]}, "a", False),
        ({"matchExpressions": [None]}, "a", True),
    ],
)
def test_selectors_of_a_term(selector: Any, app: str, is_meant: bool) -> None:
    assert meets(rules({"topologyKey": "zone", "labelSelector": selector}), "shop", app=app) is is_meant


def test_keys_of_the_pods_own_labels() -> None:
    same = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["rev", "missing"]}
    other = {"topologyKey": "zone", "labelSelector": {}, "mismatchLabelKeys": ["rev"]}

    assert meets(rules(same, labels={"rev": "1"}), "shop", rev="1")
    assert not meets(rules(same, labels={"rev": "1"}), "shop", rev="2")
    assert meets(rules(other, labels={"rev": "1"}), "shop", rev="2")
    assert not meets(rules(other, labels={"rev": "1"}), "shop", rev="1")


def test_affinity_means_pods_that_meet_all_terms() -> None:
    one, two = ({"topologyKey": "zone", "labelSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b"))
    found = rules(one, two, kind="podAffinity")

    assert meets(found, "shop", a="1", b="1")
    assert not meets(found, "shop", a="1")


def test_only_hard_constraints_count() -> None:
    def spread(**more: Any) -> Any:
        return {"topologyKey": "zone", "maxSkew": 2, "labelSelector": {}, **more}

    found = rules(
        spread=[
            spread(whenUnsatisfiable="ScheduleAnyway"),
            spread(whenUnsatisfiable="DoNotSchedule", nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"),
            spread(whenUnsatisfiable="DoNotSchedule", minDomains=3),
        ]
    )

    assert [(each.max_skew, each.min_domains, each.by_affinity, each.by_taints) for each in found.spread] == [
        (2, 1, False, True),
        (2, 3, True, False),
    ]
    assert not Wearer("lab", {}).meets(found.spread[0].near), "other namespaces never count"


def test_what_is_malformed_means_no_pod() -> None:
    assert not meets(rules("nonsense"), "shop")
    assert not PodConstraints()
    assert rules_of(None, None, "shop", {}, {}) == PodConstraints()
