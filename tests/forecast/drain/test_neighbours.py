from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.forecast.drain.clusters import HOST, apart, node, snapshot, vm
from webhook.admission.work import Work
from webhook.forecast.drain import neighbours, planner
from webhook.forecast.drain.neighbours import POD_ANTI_AFFINITY, Neighbours
from webhook.forecast.drain.planner import MAX_STEPS, plan
from webhook.forecast.drain.terms import Wearer, rules_of
from webhook.placement.affinity import Affinity
from webhook.placement.index import NodeIndex
from webhook.placement.node import Node


def wearer(name: str, affinity: Any = None, **labels: str) -> Wearer:
    own = rules_of(msgspec.convert(affinity or {}, Affinity), (), "shop", labels, {})
    return Wearer("shop", {"name": name, **labels}, own)


@pytest.fixture
def found() -> Neighbours:
    return Neighbours(
        NodeIndex(Node.read(node(name, zone=zone)) for name, zone in (("a", "1"), ("b", "1"), ("c", "2")))
    )


def excluded(found: Neighbours, pod: Wearer) -> dict[str, int]:
    return dict(found.excluded_nodes(pod, -1, -1))


def test_what_is_added_can_be_removed(found: Neighbours) -> None:
    pod, other = wearer("web", apart("zone", app="x")), wearer("db", app="x")
    found.track(pod.rules)
    before = excluded(found, pod)
    found.add(other, 0)
    with_it = excluded(found, pod)
    found.add(other, 0, -1)

    assert with_it == {POD_ANTI_AFFINITY: 0b011}
    assert excluded(found, pod) == before == {}


def test_a_domain_stays_while_any_pod_is_in_it(found: Neighbours) -> None:
    pod, other = wearer("web", apart("zone", app="x")), wearer("db", app="x")
    found.track(pod.rules)
    found.add(other, 0)
    found.add(other, 1)
    found.add(other, 0, -1)

    assert excluded(found, pod) == {POD_ANTI_AFFINITY: 0b011}


def test_nodes_without_the_label_are_no_domain(found: Neighbours) -> None:
    pod, other = wearer("web", apart("rack", app="x")), wearer("db", app="x")
    found.track(pod.rules)
    found.add(other, 0)

    assert excluded(found, pod) == {}


def test_rules_of_others_mean_a_pod_by_its_labels(found: Neighbours) -> None:
    owner = wearer("db", apart(HOST, app="x"))
    found.track(owner.rules)
    found.add(owner, 2)

    assert excluded(found, wearer("web", app="x")) == {POD_ANTI_AFFINITY: 0b100}
    assert excluded(found, wearer("web", app="y")) == {}


def test_too_many_rules_about_the_same_pods_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MOST_RULES", 5)
    vms = [vm(f"vm-{number}", "a", labels={"app": "x"}, affinity=apart(app="x", n=str(number))) for number in range(9)]
    found = plan(snapshot([node("a", memory="64Gi"), node("b", memory="64Gi")], vms), ["a"])

    assert len(found.gaps) == 1
    assert (found.moves, found.blocks) == (9, 0)


def test_rules_that_tenants_write_by_the_thousand_take_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each about the same pods, no two alike: every pod is compared with so many of them at most."""
    monkeypatch.setattr(neighbours, "MOST_RULES", 50)

    def steps(number: int) -> int:
        vms = [
            vm(f"vm-{each}", "a", "1Mi", labels={"app": "x"}, affinity=apart(app="x", n=str(each)))
            for each in range(number)
        ]
        roomy = [node(name, memory="64Gi", cpu="4k") for name in ("a", "b")]
        for each in roomy:
            each["status"]["allocatable"]["pods"] = "10k"
        work = Work(MAX_STEPS)
        work.run(planner._plan, snapshot(roomy, vms), ["b"], False, None)
        return work.spent

    assert 0 < steps(400) < 5 * steps(100)
