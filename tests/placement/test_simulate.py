"""The simulation of kube-scheduler: moves and their undoing, ties, scores of each plugin, and what a step costs.

tests/e2e/test_simulation.py holds it to a real scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import read_node
from tests.forecast.clusters import GIB, HOST, Json, apart, node
from webhook.admission.step_budget import StepBudget
from webhook.k8s.types.core import Node
from webhook.placement import simulate
from webhook.placement.eligibility import Eligibility
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import MEMORY, ZONE, bitset_positions
from webhook.placement.profiles import FIT, IMAGES, NODE_AFFINITY, POD_AFFINITY, SPREAD, TAINTS, Profile
from webhook.placement.running_pods import RunningPod, incoming
from webhook.placement.scores import NEWEST, KubernetesVersion, Load
from webhook.placement.simulate import SimulatedPod, Simulation
from webhook.placement.target_pods import own_requirements

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPREADING = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


class Cluster:
    """Nodes, and pods by name, with what each requires of nodes."""

    def __init__(
        self,
        nodes: Sequence[Json],
        pods: Sequence[Json],
        services: Sequence[dict[str, str]] = (),
        version: KubernetesVersion = NEWEST,
    ) -> None:
        views = {each["metadata"]["name"]: msgspec.convert(each, Node) for each in nodes}
        self.index = NodeIndex(map(read_node, nodes))
        self.names = {self.index.position(name): name for name in views}
        self.simulation = Simulation(self.index, views, version)
        self.pods: dict[str, SimulatedPod] = {}
        self.eligible: dict[str, Eligibility] = {}
        for each in pods:
            view = msgspec.convert(each, RunningPod)
            assert view.spec is not None
            name = view.meta.name or ""
            self.pods[name] = incoming(view, {"shop": {}}, {}, services)
            self.eligible[name] = self.index.review(tuple(own_requirements(view.spec)))
            self.simulation.rules.track(self.pods[name].info)

    def ties(self, name: str) -> set[str]:
        placement = self.simulation.schedule(self.pods[name], self.eligible[name])
        return {self.names[at] for at in bitset_positions(placement.ties)} if placement else set()

    def scores(self, name: str) -> dict[str, dict[str, int]]:
        pod, eligible = self.pods[name], self.eligible[name]
        nodes = self.simulation.filter(pod, eligible).feasible
        return {
            plugin: {self.names[at]: score for score, bits in by_score.items() for at in bitset_positions(bits)}
            for plugin, by_score in self.simulation.scores(pod, eligible, nodes).items()
        }

    def bind(self, name: str, node: str) -> None:
        self.simulation.bind(self.pods[name], self.index.position(node) or 0)

    def unbind(self, name: str, node: str) -> None:
        self.simulation.unbind(self.pods[name], self.index.position(node) or 0)


def pod(name: str, memory: str = "1Gi", *, labels: Any = None, **spec: Any) -> Json:
    requests = {"cpu": "100m", "memory": memory}
    containers = [{"name": "c", "image": "a:v1", "resources": {"requests": requests}}]
    metadata = {"name": name, "namespace": "shop", "labels": labels or {"app": "web"}}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def zoned(**zones: str) -> list[Json]:
    return [node(name, zone=zone) for name, zone in zones.items()]


def test_the_node_with_most_room_is_best_and_equal_ones_tie() -> None:
    cluster = Cluster([node("a", memory="16Gi"), node("b"), node("c")], [pod("x"), pod("y", "6Gi")])
    assert cluster.ties("x") == {"a"}
    cluster.bind("y", "a")
    assert cluster.ties("x") == {"b", "c"}
    placement = cluster.simulation.schedule(cluster.pods["x"], cluster.eligible["x"])
    assert placement
    assert cluster.names[placement.position] == "b", "of those that tie, not the one with most free of all"


def test_a_pod_that_fits_nowhere_has_no_place() -> None:
    cluster = Cluster([node("a"), node("b")], [pod("x", "9Gi"), pod("y", affinity=apart(app="web"))])
    assert cluster.ties("x") == set()
    for name in "ab":
        cluster.bind("y", name)
    assert cluster.ties("y") == set()
    cluster.unbind("y", "b")
    assert cluster.ties("y") == {"b"}


def test_a_single_candidate_is_not_scored() -> None:
    cluster = Cluster([node("a"), node("b", memory="1Gi")], [pod("x", "2Gi")])
    placement = cluster.simulation.schedule(cluster.pods["x"], cluster.eligible["x"])
    assert placement
    assert (placement.best, cluster.ties("x")) == (0, {"a"})


@pytest.mark.parametrize(
    ("spec", "plugin", "points"),
    [
        ({"tolerations": []}, TAINTS, {"a": 0, "b": 300, "c": 300}),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        PREFERRED: [
                            {
                                "weight": 9,
                                "preference": {
                                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]
                                },
                            },
                            {
                                "weight": 3,
                                "preference": {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["c"]}]},
                            },
                        ]
                    }
                }
            },
            NODE_AFFINITY,
            {"a": 200, "b": 200, "c": 66},
        ),
        ({"topologySpreadConstraints": [SPREADING]}, SPREAD, {"a": 0, "b": 0, "c": 200}),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        PREFERRED: [
                            {
                                "weight": 5,
                                "podAffinityTerm": {
                                    "topologyKey": HOST,
                                    "labelSelector": {"matchLabels": {"app": "web"}},
                                },
                            }
                        ]
                    }
                }
            },
            POD_AFFINITY,
            {"a": 0, "b": 200, "c": 200},
        ),
        ({}, IMAGES, {"a": 0, "b": 23, "c": 0}),
    ],
)
def test_what_plugins_give(spec: Json, plugin: str, points: dict[str, int]) -> None:
    nodes = zoned(a="1", b="1", c="2")
    nodes[0]["spec"]["taints"] = [{"key": "busy", "effect": "PreferNoSchedule"}]
    nodes[1]["status"]["images"] = [{"names": ["a:v1"], "sizeBytes": 800_000_000}]
    cluster = Cluster(nodes, [pod("x", **spec), pod("there")])
    cluster.bind("there", "a")
    assert cluster.scores("x")[plugin] == points


def test_pods_pull_others_by_what_they_prefer_and_require_themselves() -> None:
    near = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "x"}}}
    preferring = {"podAffinity": {PREFERRED: [{"weight": 4, "podAffinityTerm": near}]}}
    requiring = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    pods = [pod("x", labels={"app": "x"}), pod("prefers", affinity=preferring), pod("requires", affinity=requiring)]
    cluster = Cluster([node(name) for name in "abc"], pods)
    assert POD_AFFINITY not in cluster.scores("x")
    cluster.bind("prefers", "a")
    cluster.bind("requires", "b")
    assert cluster.scores("x")[POD_AFFINITY] == {"a": 200, "b": 50, "c": 0}


@pytest.mark.parametrize(("version", "points"), [((1, 35), {}), ((1, 36), {"a": 16, "b": 0})])
def test_images_of_volumes_count_since_kubernetes_1_36(version: KubernetesVersion, points: dict[str, int]) -> None:
    """As of containerDisks that KubeVirt mounts as image volumes; each is one more image that the score is of."""
    nodes = [node("a"), node("b")]
    nodes[0]["status"]["images"] = [{"names": ["disk:v1"], "sizeBytes": 700 * 2**20}]
    volumes = [{"name": "disk", "image": {"reference": "disk:v1"}}, {"name": "other"}]
    assert Cluster(nodes, [pod("x", volumes=volumes)], version=version).scores("x").get(IMAGES, {}) == points


def test_services_spread_pods_without_constraints() -> None:
    services = [{"app": "web"}, {"app": "other"}]
    nodes = [node(name) for name in "abc"]
    for each, zone in zip(nodes, "112", strict=True):
        each["metadata"]["labels"][ZONE] = zone
    nodes.append(node("without-zone"))
    pods = [pod("x"), pod("y"), pod("own", topologySpreadConstraints=[SPREADING])]
    cluster = Cluster(nodes, pods, services)
    cluster.bind("y", "a")
    spread = cluster.scores("x")[SPREAD]
    assert spread["without-zone"] > spread["c"] > spread["b"] > spread["a"], "none counts as less than any"
    assert cluster.pods["own"].info.preferences.spread_by_default is False


def test_a_constraint_that_selects_everything_counts_no_pod() -> None:
    hard = {**SPREADING, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    cluster = Cluster([node("a"), node("b", cordoned=True)], [pod("x", topologySpreadConstraints=[hard]), pod("y")])
    cluster.bind("y", "a")
    assert cluster.ties("x") == {"a"}


@pytest.mark.parametrize("when", ["DoNotSchedule", "ScheduleAnyway"])
def test_pods_that_are_being_deleted_count_for_affinity_and_not_for_spread(when: str) -> None:
    spread = {**SPREADING, "topologyKey": HOST, "whenUnsatisfiable": when}
    leaving = pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-28T10:00:00Z"
    apart_from = pod("y", affinity=apart(app="web"), labels={"app": "other"})
    nodes = [node("a", memory="16Gi"), node("b", memory="16Gi")]
    cluster = Cluster(nodes, [pod("x", topologySpreadConstraints=[spread]), leaving, pod("stays"), apart_from])
    cluster.bind("leaving", "a")
    assert (SPREAD in cluster.scores("x"), cluster.ties("y")) == (False, {"b"})
    cluster.bind("stays", "b")
    assert cluster.ties("x") == {"a"}


MEMORIES = st.sampled_from(["512Mi", "1Gi", "2Gi"])


@st.composite
def specs(draw: st.DrawFn) -> Json:
    term: Json = {
        "topologyKey": draw(st.sampled_from([HOST, "zone"])),
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    kind = draw(st.sampled_from(["podAffinity", "podAntiAffinity"]))
    match draw(st.sampled_from(["free", "prefers", "keeps off", "spreads"])):
        case "prefers":
            return {"affinity": {kind: {PREFERRED: [{"weight": draw(st.integers(1, 9)), "podAffinityTerm": term}]}}}
        case "keeps off":
            return {"affinity": apart(term["topologyKey"], app="web")}
        case "spreads":
            return {"topologySpreadConstraints": [SPREADING | {"topologyKey": term["topologyKey"]}]}
    return {}


@given(data=st.data())
def test_after_any_moves_it_is_as_if_it_had_begun_so(data: st.DataObject) -> None:
    """What is kept of nodes and rules while pods come and go is what a new simulation finds."""
    names = [f"vm-{number}" for number in range(data.draw(st.integers(2, 6)))]
    apps = st.sampled_from(["web", "db"])
    pods = [pod(name, data.draw(MEMORIES), labels={"app": data.draw(apps)}, **data.draw(specs())) for name in names]
    nodes = zoned(a="1", b="1", c="2", d="2")
    cluster, on = Cluster(nodes, pods), dict[str, str]()
    for _ in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(names))
        if name in on:
            cluster.unbind(name, on.pop(name))
        else:
            on[name] = data.draw(st.sampled_from("abcd"))
            cluster.bind(name, on[name])
        fresh = Cluster(nodes, pods)
        for other, where in on.items():
            fresh.bind(other, where)
        for other in names:
            assert cluster.ties(other) == fresh.ties(other)
            assert cluster.scores(other) == fresh.scores(other)
            sums = [sum(each.get(at, 0) for each in fresh.scores(other).values()) for at in fresh.ties(other)]
            assert len({*sums}) <= 1


def test_a_step_costs_what_has_changed() -> None:
    """Whatever the number of nodes: after a pod's first look at all of them."""

    def steps(number: int) -> int:
        nodes = [node(f"n{at:04}", memory="64Gi") for at in range(number)]
        cluster = Cluster(nodes, [pod("x"), pod("y", "2Gi")])

        def moves() -> int:
            dice = random.Random(1)
            for _ in range(50):
                cluster.bind("y", f"n{dice.randrange(number):04}")
                assert cluster.ties("x")
            return 0

        assert cluster.ties("x")
        budget = StepBudget(10**6)
        budget.run(moves)
        return budget.spent

    assert steps(400) <= steps(40)


def test_a_step_costs_at_most_what_kube_scheduler_scores_however_many_sizes_pods_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulate, "MOST_SIZES", 2)
    nodes = [node(f"n{at:04}", memory="64Gi") for at in range(1000)]
    cluster = Cluster(nodes, [pod(f"x{size}", f"{size}Mi") for size in range(1, 9)])
    budget, steps = StepBudget(10**6), 40
    for step in range(steps):
        name = f"x{1 + step % 8}"
        assert budget.run(cluster.ties, name)
        cluster.bind(name, f"n{step:04}")
    first_looks = 2 * len(nodes)
    assert budget.spent * _NODES_A_STEP < first_looks + steps * simulate.nodes_to_score(len(nodes)) + 8 * 8 * steps
    assert cluster.simulation.has_sampled


_NODES_A_STEP = simulate._NODES_A_STEP


@given(data=st.data())
def test_without_kept_scores_a_small_cluster_is_scored_as_with_them(data: st.DataObject) -> None:
    """kube-scheduler scores all of up to 100 nodes."""
    names = [f"vm-{number}" for number in range(data.draw(st.integers(2, 4)))]
    pods = [pod(name, data.draw(MEMORIES), **data.draw(specs())) for name in names]
    keeping, sampling = (Cluster(zoned(a="1", b="1", c="2", d="2"), pods) for _ in range(2))
    for name in names:
        found = keeping.ties(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulate, "MOST_SIZES", 0)
            assert sampling.ties(name) == found
        where = data.draw(st.sampled_from("abcd"))
        keeping.bind(name, where)
        sampling.bind(name, where)
    assert sampling.simulation.has_sampled
    assert not keeping.simulation.has_sampled


def test_what_is_kept_of_changes_is_bounded_and_scores_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that lives on, and tries thousands of moves a second, would keep a number of each."""
    monkeypatch.setattr(simulate, "_MOST_CHANGES", 7)
    keeping, fresh = (Cluster([node(name) for name in "abc"], [pod("x"), pod("y", "2Gi")]) for _ in range(2))
    for step in range(50):
        for cluster in (keeping, fresh):
            cluster.bind("y", "abc"[step % 3])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulate, "_MOST_CHANGES", 0)
            expected = fresh.ties("x")
        assert keeping.ties("x") == expected
        for cluster in (keeping, fresh):
            cluster.simulation.unbind(cluster.pods["y"], step % 3)
        assert len(keeping.simulation._changes) <= 7


@pytest.mark.parametrize(("fills", "best"), [(False, "n1"), (True, "n0")])
@pytest.mark.parametrize("most", [0, 1])
def test_a_sample_has_the_nodes_that_scores_favor(
    fills: bool, best: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "MOST_SIZES", most)
    nodes = [node(f"n{at}", memory={0: "2Gi", 1: "64Gi"}.get(at, "8Gi"), cpu="64") for at in range(300)]
    cluster = Cluster(nodes, [pod("x")])
    profile = Profile(((FIT, 1),), ((MEMORY, 1),), fills=fills)
    cluster.pods["x"] = msgspec.structs.replace(cluster.pods["x"], profile=profile)
    assert cluster.ties("x") == {best}


@pytest.mark.parametrize("most", [0, 1])
def test_a_sample_has_the_node_that_a_pod_prefers(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "MOST_SIZES", most)
    own = {"key": HOST, "operator": "In", "values": ["n299"]}
    preferred = {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [own]}}]}}
    nodes = [node(f"n{at}", memory="4Gi" if at == 299 else "8Gi") for at in range(300)]
    assert Cluster(nodes, [pod("x", affinity=preferred)]).ties("x") == {"n299"}


@pytest.mark.parametrize(
    ("nodes", "scored"), [(3, 3), (100, 100), (150, 100), (1000, 420), (5000, 500), (6000, 300), (20_000, 1000)]
)
def test_as_many_nodes_are_scored_as_by_kube_scheduler(nodes: int, scored: int) -> None:
    assert simulate.nodes_to_score(nodes) == scored


def test_a_request_of_nothing_fits_everywhere() -> None:
    """On a node that is overcommitted in the resource, and on one that does not have it."""
    cluster = Cluster([node("over"), node("free")], [pod("x", "16Gi"), pod("y")])
    load = Load.of({"pods": 1, MEMORY: 0, "example.com/gpu": 0})
    empty = msgspec.structs.replace(cluster.pods["y"], load=load)
    cluster.bind("x", "over")
    simulation, eligible = cluster.simulation, cluster.eligible["y"]
    assert simulation.filter(empty, eligible).feasible == 0b11
    assert all(simulation.fits(empty, eligible, at) for at in (0, 1))
    assert cluster.names[simulation.least_free(0b11, empty)] == "over"


def test_most_of_a_resource_may_be_limited() -> None:
    views = {"a": msgspec.convert(node("a"), Node)}
    simulation = Simulation(NodeIndex([read_node(node("a"))]), views, most={MEMORY: GIB, "unknown": 1})
    assert (simulation.with_free(MEMORY, GIB), simulation.with_free(MEMORY, GIB + 1)) == (1, 0)


@pytest.mark.parametrize(("tightly", "name"), [(True, "over"), (False, "free")])
def test_a_pod_without_memory_fits_where_more_is_requested_than_there_is(tightly: bool, name: str) -> None:
    cluster = Cluster([node("over"), node("free")], [pod("x", "16Gi"), pod("y", "0")])
    cluster.bind("x", "over")
    nodes, empty = 0b11, cluster.pods["y"]
    simulation = cluster.simulation
    chosen = (
        simulation.least_free(nodes, msgspec.structs.replace(empty, load=NOTHING))
        if tightly
        else simulation.most_free(nodes)
    )
    assert cluster.names[chosen] == name


NOTHING = msgspec.structs.replace(incoming(msgspec.convert(pod("z"), RunningPod), {}, {}).load, requests={"pods": 1})


def test_without_scores_all_nodes_tie() -> None:
    cluster = Cluster([node("a", memory="16Gi"), node("b")], [pod("x")])
    cluster.pods["x"] = msgspec.structs.replace(cluster.pods["x"], profile=Profile(()))
    assert cluster.ties("x") == {"a", "b"}
    assert FIT not in cluster.scores("x")
