"""Reviews that end for want of steps, at any step: what all reviews share is afterwards as the cluster is.

``HEADROOM_HISTORIES=1000`` runs so many.
"""

from __future__ import annotations

import os
import random
from collections import deque
from contextlib import suppress
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.forecast.clusters import HOST, Json, apart, filler, node, together, vm
from tests.placement.headroom.fleets import Clock, headroom, node_view, placed, starting
from tests.placement.headroom.test_histories import judged_at_once
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.k8s.types.scheduling import PREFERRED
from webhook.placement.headroom.headroom import AskedStart, Headroom
from webhook.placement.headroom.layout import POD, Key, vm_key
from webhook.placement.headroom.model import Model
from webhook.placement.headroom.pods import KnownVm, PlacedPod

HISTORIES: Final = int(os.environ.get("HEADROOM_HISTORIES", "20"))
PLACES: Final = "abcde"
# Steps of reviews, of which some end at once, and others late.
MOST: Final = (3, 10, 30, 100)


def beside_all_but(app: str) -> Json:
    """A preferred term of pod affinity that no other pod has."""
    selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]}
    return {"weight": 1, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": selector}}


def rebuilt(found: Headroom) -> Model:
    """The model of the same cluster, with what has no node where it is assumed, counted anew."""
    live = found._model
    assert live
    model = Model(live.nodes, found._restarts)
    deque(model.load(), 0)
    for pod in (*(place.pod for place in live.places.values()), *live.unbound.values()):
        model.track(pod.simulated)
    for key, place in live.places.items():
        model.bind(key, place)
    return model


def counted(model: Model, among: Model) -> dict[str, Any]:
    """What is free, what rules mean, and what losses ask for, by the rules that another model has, too."""
    deque(model.count_changed(), 0)
    rules = model.simulation.rules._tracked
    return {
        "free": {name: dict(model.simulation.resources(at).free) for at, name in model.names.items()},
        "by amount": {
            name: {at: free.below(at) for at in free._nodes} for name, free in model.simulation._free.items()
        },
        "rules": {
            near: (dict(rules[near].meant.at), dict(rules[near].owners.at), dict(rules[near].pulls.at))
            for near in among.simulation.rules._tracked
        },
        "demands": {at: demand for at, demand in model._demands.items() if demand.pods},
        "kinds": model._kinds,
        "nodes": {kind: nodes for kind, nodes in model._nodes_of.items() if nodes},
    }


def check(found: Headroom) -> None:
    """All is counted that is in the cluster, once, and nothing else is."""
    live = found._model
    assert live
    pods: dict[Key, PlacedPod] = {(POD, *name): pod for name, pod in found._pods.items()}
    claims = {vm_key(name): claim.pod for name, claim in found._claims.items() if claim.pod}
    for key, pod in pods.items():
        if pod.node:
            assert live.places[key].position == live.index.position(pod.node)
    waiting = {key: pod for key, pod in pods.items() if not pod.node} | claims
    assert live.unbound == waiting
    assert live.places.keys() <= pods.keys() | claims.keys()
    fresh = rebuilt(found)
    assert counted(live, fresh) == counted(fresh, fresh)


class History:
    """Five nodes, and what happens to them by chance; each review has too few steps, or just enough."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.chance: Final = random.Random(seed)
        self.clock: Final = Clock()
        self.found: Final = Headroom(self.clock)
        self.patch: Final = patch
        for name in PLACES:
            self.found.put_node(node_view(node(name)))
        self.found.begin()
        self.found._current()
        self.known: Final[list[PlacedPod]] = []

    def pod(self) -> PlacedPod:
        number, chance = len(self.known), self.chance
        labels = {f"k{each}": "v" for each in range(chance.choice([1, 3, 10]))} | {"app": chance.choice("xy")}
        rule = chance.random()
        affinity = apart(app="x") if rule < 0.2 else together(app="y") if rule < 0.4 else None
        if affinity is None and rule < 0.7:
            affinity = {"podAffinity": {PREFERRED: [beside_all_but(f"{number}-{each}") for each in range(2)]}}
        pod = starting(f"vm-{number}", chance.choice(["512Mi", "1Gi", "3Gi"]), labels=labels, affinity=affinity)
        self.found.put_vm(pod.of_vm, KnownVm("Always" if chance.random() < 0.7 else "Manual"))
        self.known.append(pod)
        return pod

    def step(self) -> None:
        chance, found = self.chance, self.found
        what = chance.random()
        pod = chance.choice(self.known) if self.known and chance.random() < 0.6 else self.pod()
        if what < 0.3:
            found.put_pod(replace(pod, node=chance.choice(["", *PLACES])))
        elif what < 0.4:
            found.remove_pod(pod.name)
        elif what < 0.45:
            found.put_vm(pod.of_vm, KnownVm(chance.choice(["Always", "Manual"]), is_stopped=chance.random() < 0.2))
        elif what < 0.5:
            found.put_pod(placed(filler(f"pod-{chance.randint(0, 5)}", chance.choice(PLACES), "512Mi")))
        elif what < 0.55:
            self.clock.now += chance.choice([1, 40, 2000])
        elif what < 0.6:
            deque(found.prepare(), 0)
        else:
            self.review(pod)

    def review(self, pod: PlacedPod) -> None:
        found, chance = self.found, self.chance
        steps = chance.randint(0, chance.choice(MOST))
        self.patch.setattr("webhook.placement.headroom.headroom._STEPS_AT_ONCE", steps)
        asked = AskedStart(pod, is_dry_run=chance.random() < 0.5)
        calls = [
            lambda: found.has_run(pod),
            lambda: found.peek(pod),
            lambda: found.judge(pod),
            lambda: found.give_up(asked),
            lambda: found.reserve(pod),
            lambda: found.release(pod),
        ]
        with suppress(TooComplex):
            StepBudget(steps).run(chance.choice(calls))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            check(self.found)
        asked = starting("asked", "2Gi")
        self.patch.undo()
        verdict = self.found.judge(asked)
        assert (verdict.kind, verdict.vms) == ((same := judged_at_once(self.found, asked)).kind, same.vms)


@pytest.mark.control("starts-kept-out")
def test_a_review_that_ends_early_leaves_nothing_half_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(HISTORIES):
        with monkeypatch.context() as patch:
            History(seed, patch).run(60)


def hostile(labels: int, name: str = "evil", **spec: Any) -> PlacedPod:
    pod = vm(name, "", "1Gi", **spec)[1]
    pod["metadata"] |= {"namespace": "evil", "labels": {f"l{number}": "" for number in range(labels)}}
    return replace(placed(pod), node="")


def beside(name: str) -> Json:
    return vm("buddy", name, "1Mi", labels={"buddy": "yes"})[1]


@pytest.mark.control("starts-kept-out")
def test_what_waits_for_a_node_takes_its_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.placement.headroom.pods._MOST_LABELS", 10**6, raising=False)
    monkeypatch.setattr("webhook.placement.headroom.pods._MOST_BYTES", 10**9, raising=False)
    found = headroom([node(name) for name in "abc"], also=["new"])
    found.put_pod(hostile(30_000, affinity=together(buddy="yes")))
    found._current()
    buddy = beside("a")
    buddy["metadata"]["namespace"] = "evil"
    found.put_pod(placed(buddy))
    for _ in range(5):
        with suppress(TooComplex):
            StepBudget().run(found.peek, starting("new"))
    check(found)


@pytest.mark.control("starts-kept-out")
def test_no_change_of_the_model_takes_steps_of_a_review() -> None:
    found = headroom([node(name) for name in "abc"], also=["new"])
    model, none, pod = found._current(), StepBudget(0), starting("new", affinity=apart(app="x"))
    key = vm_key(pod.of_vm)
    none.run(model.put, key, pod)
    place = none.run(model.unbind, key)
    assert place
    none.run(model.bind, key, place)
    none.run(model.notice, [key])
    none.run(model.unbind, key)
    none.run(model.place_waiting, 1)
    none.run(model.track, starting("other", affinity=apart(app="y")).simulated)
    none.run(deque, model.count_changed())
    assert model.places.keys() == {key}
    fresh = rebuilt(found)
    assert counted(model, fresh) == counted(fresh, fresh)
    none.run(model.remove, key)
    assert not model.places
    assert not none.spent
