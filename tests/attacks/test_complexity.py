"""Twice as long an object costs at most twice as much, whichever of its lists and maps it is that is long.

Nothing is timed: see `counting`. That every list and map of every object takes part follows from the views and shapes
themselves, see `schema`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.attacks import counting, schema
from tests.attacks.counting import Cost, nonlinear, watched
from tests.attacks.schema import Path
from tests.attacks.world import OBJECT, WORLDS, AttackWorld, nodes, view
from tests.policies.decisions import answered
from tests.policies.headroom.world import Answers
from webhook.admission import credentials, decision, redaction, wire
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.facts import Facts, ListKey, NamespaceKey, NodesKey, ObjectKey, VmiKey, uncached_key
from webhook.k8s.types.meta import Namespace, Unstructured, View
from webhook.k8s.types.selectors import Expression
from webhook.kubevirt.go_json import structs
from webhook.placement.eligibility import Eligibility, Failure
from webhook.placement.nodes import bitset_items, bitset_positions
from webhook.placement.requirements import Label, Origin
from webhook.policies.registry import ENDPOINTS

# Enough items for a square to show.
FEW = 12
# For each of them, where the cluster grows too.
NODES = 4

MOST_LINES = 20_000_000

# What finds the groups of nodes that lack the same.
_OF_GROUPS = (Eligibility, bitset_items, bitset_positions)

each_world = pytest.mark.parametrize("world", [pytest.param(world, id=world.name) for world in WORLDS])
each_kind = pytest.mark.parametrize("alike", [False, True], ids=["different", "alike"])


@pytest.fixture(autouse=True)
def _without_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out for small reviews, or remembered of what is short, would look like growth where it ends."""
    monkeypatch.setattr(credentials, "_may_be_credential", credentials._may_be_credential.__wrapped__)
    monkeypatch.setattr(wire, "_may_be_deep", lambda _: True)
    monkeypatch.setattr(decision, "is_harmless", lambda _: False)
    monkeypatch.setattr(structs, "MAX_BYTES", 0)


def lines(world: AttackWorld, places: Iterable[tuple[str, Path]], count: int, *, alike: bool) -> Cost:
    return counting.lines(world.review(world.objects(places, count, alike=alike)), MOST_LINES)


def comparisons(world: AttackWorld, places: Iterable[tuple[str, Path]], count: int, *, alike: bool) -> Cost:
    return counting.comparisons(world.policy(world.objects(places, count, alike=alike), watched))


def _lines_of(definition: Any) -> set[tuple[str, int]]:
    source, first = inspect.getsourcelines(definition)
    return {(inspect.getfile(definition), first + offset) for offset in range(len(source))}


def is_whole(world: AttackWorld) -> bool:
    """Whether its objects are read as plain JSON."""
    return issubclass(view(world.endpoint), Unstructured)


@pytest.mark.control("quadratic-lists")
@pytest.mark.parametrize(
    ("world", "alike"),
    [
        pytest.param(world, alike, id=f"{world.name}, {'alike' if alike else 'different'}")
        for world in WORLDS
        for alike in (False, True)
        # Equal items of whole VMs are looked at together, below: there are too many lists to do both with each.
        if not (alike and is_whole(world))
    ],
)
def test_each_list_and_map_by_itself(world: AttackWorld, alike: bool) -> None:
    world.review(world.objects())()  # A cache for all reviews is not a cost of one review.
    none = lines(world, (), 0, alike=alike)
    found = {}
    for place in world.places():
        once, twice = (lines(world, [place], count, alike=alike) for count in (FEW, 2 * FEW))
        found.update({(place, line): costs for line, costs in nonlinear(none, once, twice).items()})
    assert found == {}


@pytest.mark.control("quadratic-lists")
@each_world
@each_kind
@pytest.mark.parametrize("cost", [lines, comparisons])
def test_all_of_them_together(world: AttackWorld, alike: bool, cost: Any) -> None:
    places = world.everything()
    world.review(world.objects())()
    # The counts start at one item: the first one may lead to another path, such as a denial.
    assert nonlinear(*(cost(world, places, 1 + count, alike=alike) for count in (0, FEW, 2 * FEW))) == {}


@pytest.mark.control("quadratic-lists")
@each_world
def test_an_object_and_the_cluster_together(world: AttackWorld) -> None:
    """The nodes, each with labels and taints of its own, are no factor of what a tenant writes.

    With one exception, the groups of nodes that lack the same: the larger sets are paid for, see
    `test_groups_are_paid_for`, and the others have 32 nodes at most. In the audit record each group has 50 reasons at
    most, which are searched for secrets.
    """
    if NodesKey() not in world.facts:
        pytest.skip("it asks for no nodes")
    places = world.everything()

    def cost(count: int) -> Cost:
        grown = dataclasses.replace(world, facts={**world.facts, NodesKey(): nodes(count * NODES)})
        return lines(grown, places, count, alike=False)

    cost(0)
    found = nonlinear(*(cost(count) for count in (0, FEW, 2 * FEW)))

    paid = {line for each in _OF_GROUPS for line in _lines_of(each)}
    assert {line for line in found if line not in paid and line[0] != redaction.__file__} == set()


@pytest.mark.control("quadratic-lists")
def test_groups_are_paid_for() -> None:
    failing = [int("1" * 40, 2) << shift for shift in range(200)]
    failures = tuple(
        Failure(Label(Origin.ADDED, Expression.equals(str(n), "x")), None, nodes) for n, nodes in enumerate(failing)
    )
    everyone = (1 << 240) - 1
    budget = StepBudget()
    budget.run(Eligibility([None] * 240, everyone, 0, failures).groups)
    assert budget.spent > len(failures) * len(failures) // 32
    with pytest.raises(TooComplex, match="nodes"):
        StepBudget(100).run(Eligibility([None] * 240, everyone, 0, failures).groups)


@pytest.mark.control("quadratic-lists")
def test_every_endpoint_has_a_world() -> None:
    missing = {each.path for each in ENDPOINTS if each.stage == "enforce"} - {world.endpoint.path for world in WORLDS}
    assert sorted(missing) == [], "add a request for each to WORLDS in tests/attacks/world.py"


@each_world
def test_every_object_that_is_asked_for_can_be_made_long(world: AttackWorld) -> None:
    objects = world.objects()
    request = world.endpoint.codec.decode(world.body(objects)).request
    settings = world._settings().policy(world.endpoint.policy).with_annotations({})
    policy = world.endpoint.handler(world.endpoint.object_of(request), request, Facts(), settings)
    _, batches = answered(policy, Answers(world.known(objects)))
    asked = {key for batch in batches for key in batch}

    theirs = {key for key in asked if isinstance(key, ObjectKey | ListKey | VmiKey | NamespaceKey)}
    keys = {subject.key for subject in world.subjects.values() if subject.key}
    assert theirs <= keys | set(map(uncached_key, keys))


def test_a_list_whose_content_nobody_knows_is_an_error() -> None:
    class New(View, frozen=True):
        whatever: list[Any] | None = None

    with pytest.raises(schema.UnknownTypeError, match=rf"{__name__}\..*New\.whatever .*tests/attacks/schema\.py"):
        schema.of_view(New)


def test_only_what_is_read_as_plain_json_has_a_content_of_its_own() -> None:
    with pytest.raises(TypeError, match="Namespace is not Unstructured"):
        schema.of_view(Namespace, whole=schema.Fields({}))


@pytest.mark.control("quadratic-lists")
def test_a_square_is_noticed() -> None:
    items = [f"item-{number}" for number in range(2 * FEW)]

    def nested(count: int) -> Cost:
        return counting.lines(lambda: [None for one in items[:count] for other in items[:count]])

    def looked_up(count: int) -> Cost:
        texts = watched(items[:count])
        return counting.comparisons(lambda: [text for text in watched(items[:count]) if text in texts])

    def once_each(count: int) -> Cost:
        return counting.lines(lambda: [None for one in items[:count]])

    def met_before(count: int) -> Cost:
        return counting.lines(lambda: [None for at in range(count) for other in items[:at]])

    for cost in (nested, looked_up, met_before):
        assert nonlinear(cost(0), cost(FEW), cost(2 * FEW))
    assert nonlinear(once_each(0), once_each(FEW), once_each(2 * FEW)) == {}


def test_what_is_watched_is_equal() -> None:
    world = WORLDS[0]
    request = world.endpoint.codec.decode(world.body(world.objects(world.everything(), 2))).request
    assert watched(request) == request
    assert msgspec.structs.asdict(watched(request)) == msgspec.structs.asdict(request)


@pytest.mark.control("largest-objects")
@pytest.mark.parametrize(
    "world",
    [
        pytest.param(world, id=world.name)
        for world in WORLDS
        if world.endpoint.kind == "VirtualMachine" and is_whole(world)
    ],
)
def test_the_largest_vm_that_kubevirt_admits_is_no_attack(world: AttackWorld) -> None:
    """256 of each is what `maxItems` of KubeVirt's CRDs allows."""
    numbers = range(256)
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "100Gi"}},
        "storageClassName": "fast",
    }
    source = {"kind": "DataSource", "name": "fedora", "namespace": "golden-images"}
    template = {
        "architecture": "amd64",
        "domain": {
            "devices": {
                "disks": [{"name": f"d{n}", "disk": {"bus": "virtio"}, "cache": "none"} for n in numbers],
                "interfaces": [{"name": f"i{n}", "bridge": {}, "model": "virtio"} for n in numbers],
            }
        },
        "volumes": [{"name": f"d{n}", "dataVolume": {"name": f"web01-{n}"}} for n in numbers],
        "networks": [{"name": f"i{n}", "multus": {"networkName": f"demo/vlan-{n}"}} for n in numbers],
    }
    volumes = [{"metadata": {"name": f"web01-{n}"}, "spec": {"storage": claim, "sourceRef": source}} for n in numbers]

    usual = world.objects()
    vm = usual[OBJECT]
    spec = {**vm["spec"], "template": {"spec": template}, "dataVolumeTemplates": volumes}
    large = {**usual, OBJECT: {**vm, "spec": spec}}
    assert reason(world, large) == reason(world, usual)


def reason(world: AttackWorld, objects: Any) -> Any:
    return json.loads(world.review(objects)())["response"]["auditAnnotations"]["reason"]
