"""Starts that are decided while the cluster changes and other starts are admitted: each verdict is that of a moment.

A history mixes reviews, slices of the simulation that decides one of them, and what a watch brings. At each moment the
state is copied, and every open review judged there at once: `peek` and `decide` may say nothing else than what was true
between a review's beginning and its end. And two starts cannot both take the last room.

``HEADROOM_HISTORIES=1000`` runs so many.
"""

from __future__ import annotations

import os
import random
from collections import Counter, deque
from typing import Final

import pytest
from msgspec.structs import replace

from tests.forecast.clusters import apart, filler, node
from tests.placement.headroom.fleets import Clock, finished, node_view, placed, starting
from webhook.placement.headroom.headroom import AskedStart, Headroom
from webhook.placement.headroom.layout import Key, vm_key
from webhook.placement.headroom.losses import Losses, OutOfSteps, Slices, Steps
from webhook.placement.headroom.model import Model
from webhook.placement.headroom.pods import KnownVm, PlacedPod
from webhook.placement.headroom.verdicts import Verdict, judge_by_room, judge_by_simulation

HISTORIES: Final = int(os.environ.get("HEADROOM_HISTORIES", "40"))
PLENTY: Final = 10**9
# Two of the nodes could take the largest.
SIZES: Final = ("512Mi", "1Gi", "2Gi", "2500Mi", "12Gi")
LARGE: Final = "ab"
PLACES: Final = "abcdefgh"


def judged_at_once(found: Headroom, pod: PlacedPod, *without: Key) -> Verdict:
    """The verdict on a copy of what is on the nodes now, without what some hold."""
    live = found._model
    assert live
    model = Model(live.nodes, found._restarts)
    deque(model.load(), 0)
    hidden = {vm_key(pod.of_vm), *without}
    for key, place in live.places.items():
        model.track(place.pod.simulated)
        if key not in hidden:
            model.bind(key, place)
    model.unbound.update((key, each) for key, each in live.unbound.items() if key not in hidden)
    start = found._start(pod)
    doubts = judge_by_room(model, start)
    if isinstance(doubts, Verdict):
        return doubts
    losses = Losses(model)
    for _ in losses.catch_up():
        pass
    return finished(judge_by_simulation(losses, start, doubts, Steps(PLENTY)))


class Review:
    """A review that has begun.

    Attributes:
        possible: what the verdict would have been at each moment since.
        is_cut: whether it ends before it is decided, by its steps or since it is told to.
    """

    def __init__(self, pod: PlacedPod) -> None:
        self.pod: Final = pod
        self.possible: Final[list[Verdict]] = []
        self.is_cut = self.is_told = False
        self.looked_at: int | None = None
        # Of starts that were admitted, and of all else that has happened, since the simulation has begun.
        self.admitted_beside = 0
        self.happened = 0


class History:
    """Eight nodes that are nearly full, or half, and what happens to them by chance."""

    def __init__(self, seed: int) -> None:
        self.chance: Final = random.Random(seed)
        self.found: Final = Headroom(Clock())
        for name in PLACES:
            self.put_node(name)
        self.found.begin()
        self.found._current()
        self.running: Final[dict[str, PlacedPod]] = {}
        self.waiting: Final[deque[Review]] = deque()
        self.deciding: tuple[Review, Slices[Verdict]] | None = None
        self.counts: Final[Counter[str]] = Counter()
        self._number = 0
        most = self.chance.choice([1, 2, 3])
        for place in PLACES:
            for _ in range(self.chance.randint(most - 1, most)):
                self.run_vm(place)

    def pod(self) -> PlacedPod:
        """The pod of a VM that is about to start."""
        self._number += 1
        more = {"labels": {"app": "db"}, "affinity": apart(app="db")} if self.chance.random() < 0.1 else {}
        pod = starting(f"vm-{self._number}", self.chance.choice(SIZES), **more)
        self.found.put_vm(pod.of_vm, KnownVm("Always" if self.chance.random() < 0.85 else "Manual"))
        return pod

    def put_node(self, name: str) -> None:
        memory = "16Gi" if name in LARGE else self.chance.choice(["8Gi", "8Gi", "10Gi"])
        self.found.put_node(node_view(node(name, memory=memory)))

    def run_vm(self, place: str) -> None:
        pod = replace(self.pod(), node=place)
        self.found.put_pod(pod)
        self.running[pod.vm] = pod

    def step(self) -> None:
        """One thing that happens."""
        what = self.chance.random()
        if what < 0.2:
            self.ask(self.pod() if self.chance.random() < 0.8 or not self.denied else self.chance.choice(self.denied))
        elif what < 0.75:
            self.advance(self.chance.choice([1, 5, 50, 500]))
        elif what < 0.8:
            self.cut()
        elif what < 0.85:
            deque(self.found.prepare(), 0)
        else:
            self.happen()
        if self.deciding is None and self.waiting:
            review = self.waiting.popleft()
            # A few have not enough steps, and may be cut then.
            review.is_cut = self.chance.random() < 0.1
            most = self.chance.choice([0, 100, 1000]) if review.is_cut else PLENTY
            self.deciding = review, self.found.decide(AskedStart(review.pod, is_dry_run=False), most)
            self.advance(1)

    denied: list[PlacedPod]

    def open(self) -> list[Review]:
        return [*self.waiting, *([self.deciding[0]] if self.deciding else [])]

    def look(self) -> None:
        """Have the review that is being decided judged at this moment, once what is on nodes is known."""
        if self.deciding and not self.found._has_to_rebuild:
            review = self.deciding[0]
            review.looked_at = self.found._state
            review.possible.append(judged_at_once(self.found, review.pod))

    def ask(self, pod: PlacedPod) -> None:
        if any(each.pod.vm == pod.vm for each in self.open()):
            return
        review = Review(pod)
        verdict = self.found.peek(pod)
        if verdict is None:
            self.waiting.append(review)
            return
        self.counts["at once"] += 1
        # Beside what is being decided, or before.
        held = [vm_key(self.deciding[0].pod.of_vm)] if self.deciding else []
        review.possible.extend(judged_at_once(self.found, pod, *hidden) for hidden in ([], held))
        self.answer(review, verdict)

    def advance(self, slices: int) -> None:
        if self.deciding is None:
            return
        review, work = self.deciding
        for _ in range(slices):
            try:
                next(work)
            except StopIteration as returned:
                self.deciding = None
                self.counts["in slices"] += 1
                self.answer(review, returned.value)
                return
            if review.looked_at != self.found._state:
                self.look()

    def cut(self) -> None:
        """The review's time is over."""
        if self.deciding is None or self.deciding[0].is_told:
            return
        review, work = self.deciding
        review.is_cut = review.is_told = True
        try:
            work.throw(OutOfSteps())
        except StopIteration as returned:
            self.deciding = None
            self.answer(review, returned.value)

    def answer(self, review: Review, verdict: Verdict) -> None:
        self.counts[verdict.kind] += 1
        if not self.found._has_to_rebuild:
            review.possible.append(judged_at_once(self.found, review.pod))
        if review.is_cut:
            # As far as it got, all was well, or nothing is known, or all nodes together have too little.
            is_known = verdict.denies and not verdict.shortage
            assert not is_known or verdict in review.possible
        else:
            # Room that was counted before is known still, where the copy has to simulate.
            same = [each for each in review.possible if replace(each, how=verdict.how) == verdict]
            assert any(verdict.how in (each.how, "room") for each in same), (verdict, review.possible)
        if verdict.denies:
            self.denied.append(review.pod)
            self.look()
            return
        if verdict.kind == "kept" and not review.is_cut and review.admitted_beside and not review.happened:
            self.counts["kept beside others"] += 1
            assert judged_at_once(self.found, review.pod).kind == "kept"
        self.found.reserve(review.pod)
        if self.deciding and verdict.kind == "kept":
            self.deciding[0].admitted_beside += 1
        model = self.found._model
        at = model.places.get(vm_key(review.pod.of_vm)) if model else None
        if self.chance.random() < 0.8 and model and at:
            # kube-scheduler has taken it, and its pod is seen.
            self.found.put_pod(replace(review.pod, node=model.names[at.position]))
        self.running[review.pod.vm] = self.found._pods.get(review.pod.name, review.pod)
        self.look()

    def happen(self) -> None:
        """What a watch brings."""
        for review in self.open():
            review.happened += 1
        what = self.chance.random()
        names = sorted(self.running)
        if what < 0.4 and names:
            # Its pod is there, or bound, or has moved.
            pod = replace(self.running[self.chance.choice(names)], node=self.chance.choice(["", *PLACES]))
            self.running[pod.vm] = pod
            self.found.put_pod(pod)
        elif what < 0.7 and names:
            pod = self.running.pop(self.chance.choice(names))
            self.found.put_vm(pod.of_vm, KnownVm("Halted", is_stopped=True))
            self.found.remove_pod(pod.name)
        elif what < 0.85:
            self.found.put_pod(placed(filler(f"pod-{self.chance.randint(0, 5)}", self.chance.choice(PLACES), "512Mi")))
        elif what < 0.95:
            self.found.remove_pod(("shop", f"pod-{self.chance.randint(0, 5)}"))
        else:
            self.put_node(self.chance.choice(PLACES))
        self.look()

    def run(self, steps: int) -> Counter[str]:
        self.denied = []
        for _ in range(steps):
            self.step()
        while self.open():
            self.advance(PLENTY)
            if self.deciding is None and self.waiting:
                self.step()
        return self.counts


@pytest.mark.control("room-taken-twice")
def test_each_verdict_is_that_of_a_moment_of_its_review() -> None:
    counts: Counter[str] = Counter()
    for seed in range(HISTORIES):
        counts += History(seed).run(80)
    # Else nothing was tried.
    assert min(counts[each] for each in ("at once", "in slices", "kept", "broken")) > 0, counts
