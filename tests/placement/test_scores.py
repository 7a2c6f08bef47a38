"""The scores of kube-scheduler, in its own whole numbers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from webhook.k8s.types.scheduling import Affinity
from webhook.placement import scores
from webhook.placement.nodes import CPU, KVM_DEVICE, MEMORY, POD_SLOTS
from webhook.placement.profiles import SHIPPED, STOCK, Profile
from webhook.placement.scores import ImageIndex, Load, NodeResources, ResourceScorer

SMALL = Load.of({POD_SLOTS: 1, CPU: 105, MEMORY: 450 * 2**20, KVM_DEVICE: 1})
OLD, NEW = (1, 35), (1, 36)
FILLING = msgspec.structs.replace(STOCK, fills=True)


def resources(cpus: int = 64, devices: int = 0) -> NodeResources:
    return NodeResources({CPU: 1000 * cpus, MEMORY: 4 * cpus * 2**30, POD_SLOTS: 250, KVM_DEVICE: devices})


@pytest.mark.parametrize(("version", "empty", "used"), [(OLD, 99, 99), (NEW, 74, 75)])
def test_balanced_allocation_scores_as_the_scheduler_logged(version: tuple[int, int], empty: int, used: int) -> None:
    second, scorer = resources(), ResourceScorer(STOCK, SMALL, version)
    second.take(SMALL)
    assert (scorer.balance(resources()), scorer.balance(second)) == (empty, used)
    assert ResourceScorer(STOCK, Load({POD_SLOTS: 1}, 100, 2**20), version).balance_weight == 0, (
        "of a pod without requests"
    )


def fit(profile: Profile, node: NodeResources, load: Load) -> int:
    return ResourceScorer(profile, load, NEW).fit(node)


def test_fit_is_the_free_share_or_the_requested_one() -> None:
    half, too_much = Load({}, 32_000, 128 * 2**30), Load({}, 65_000, 0)
    assert [fit(STOCK, resources(), each) for each in (SMALL, half, too_much)] == [99, 50, 50]
    assert [fit(FILLING, resources(), each) for each in (SMALL, half, too_much)] == [0, 50, 50]
    # Devices count where the profile weighs them, the node has any, and the pod requests one.
    few = resources(devices=110)
    few.take(Load({KVM_DEVICE: 54}, 0, 0))
    assert fit(SHIPPED, few, SMALL) == 74
    assert fit(STOCK, few, SMALL) == fit(SHIPPED, resources(), SMALL) == 99
    assert fit(SHIPPED, few, half) == 50


def test_what_is_assumed_counts_for_fit_alone() -> None:
    assuming = Load({POD_SLOTS: 1}, 32_000, 128 * 2**30)
    used = resources()
    used.take(assuming)
    assert fit(STOCK, used, SMALL) == 49
    assert used.share(CPU) == 0
    used.take(assuming, -1)
    assert fit(STOCK, used, SMALL) == 99


def test_a_node_without_anything_allocatable_has_no_score() -> None:
    assert fit(STOCK, NodeResources({}), SMALL) == 0
    assert ResourceScorer(STOCK, SMALL, NEW).balance(NodeResources({})) == 75
    assert NodeResources({}).share(CPU) == 0


@pytest.mark.parametrize(
    ("sizes", "share", "points"),
    [
        # Two containers of an image of 600 MB, on half of the nodes and on all.
        *(([600_000_000] * 2, 0.5, 27), ([600_000_000] * 2, 1.0, 56), ([1000], 1.0, 0), ([10**12], 1.0, 100)),
        ([], 0.5, 0),
    ],
)
def test_images(sizes: list[int], share: float, points: int) -> None:
    assert scores.image_score(sizes, share) == points


def test_nodes_by_the_images_that_they_list() -> None:
    index = ImageIndex([(0, {"a:latest": 600_000_000}), (1, {}), (2, {"a:latest": 1, "b:v1": 600_000_000}), (3, {})])
    assert index.scores(("a", "a"), 0b1111) == {27: 0b0101, 0: 0b1010}
    assert index.scores(("a", "b:v1"), 0b1111) == {13: 0b0001, 20: 0b0100, 0: 0b1010}
    assert index.scores(("c:v1",), 0b1111) == index.scores((), 0b1111) == {}


@pytest.mark.parametrize(
    ("raw", "reverse", "expected"),
    [
        ({0: 0b001, 3: 0b010, 4: 0b100}, False, {0: 0b001, 75: 0b010, 100: 0b100}),
        ({0: 0b001, 3: 0b010, 4: 0b100}, True, {100: 0b001, 25: 0b010, 0: 0b100}),
        ({0: 0b011, 4: 0b1000}, False, {}),
        ({2: 0b111}, True, {}),
    ],
)
def test_scores_are_shares_of_the_highest_of_the_candidates(raw: Any, reverse: bool, expected: Any) -> None:
    assert scores.normalize(raw, 0b111, reverse=reverse) == expected


def test_preferred_terms_of_node_affinity() -> None:
    expressions = [{"key": "disk", "operator": "In", "values": ["ssd"]}]
    terms = [
        {"weight": 3, "preference": {"matchExpressions": expressions}},
        {"weight": 0, "preference": {"matchExpressions": expressions}},
        {"weight": 5, "preference": {}},
        {"weight": "much"},
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    ((term, weight),) = scores.preferred_terms(msgspec.convert(affinity, Affinity))
    assert (term.matches({"disk": "ssd"}, "a"), term.matches({}, "a"), weight) == (True, False, 3)
    assert scores.preferred_terms(None) == ()


def test_both_scores_of_resources_are_weighted() -> None:
    only_fit = Profile((("NodeResourcesFit", 10),))
    assert ResourceScorer(STOCK, SMALL, NEW).total(resources()) == 99 + 74
    assert ResourceScorer(only_fit, SMALL, NEW).total(resources()) == 990
