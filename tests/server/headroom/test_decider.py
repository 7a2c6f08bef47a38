"""Starts that take long to decide: in slices, one after the other, namespaces in turn, as long as there is time."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from tests.placement.headroom.fleets import Clock as WallClock
from tests.placement.headroom.fleets import starting
from tests.waiting import until
from webhook.facts import VerdictKey
from webhook.k8s.client.clock import Clock
from webhook.placement.headroom.headroom import AskedStart, Headroom
from webhook.placement.headroom.losses import OutOfSteps, Slices
from webhook.placement.headroom.verdicts import Verdict
from webhook.server.headroom.decider import Decider

# How long a slice of `Slow` takes.
STEP = 0.0001


class Ticks(Clock):
    """Time that passes by computing and by sleep, and how often it passed by computing between two sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.computed = 0
        self.at_a_time: list[int] = []
        self.slept = 0.0

    def now(self) -> float:
        return self.time

    def compute(self) -> None:
        self.time += STEP
        self.computed += 1

    async def sleep(self, seconds: float) -> None:
        self.at_a_time.append(self.computed)
        self.computed = 0
        self.slept += seconds
        self.time += seconds
        await asyncio.sleep(0)


class Slow(Headroom):
    """Decides each start after so many slices, or when it is told to end."""

    def __init__(self, clock: Ticks, slices: float = float("inf")) -> None:
        super().__init__(WallClock())
        self.clock, self.slices = clock, slices
        # When, by namespace and name.
        self.begun: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    def decide(self, asked: AskedStart, most: int = 0) -> Slices[Verdict]:
        name, count = "/".join(asked.pod.of_vm), 0
        self.begun[name] = self.clock.time
        try:
            while count < self.slices:
                count += 1
                self.clock.compute()
                yield
        except OutOfSteps:
            # What is left to do takes more than a slice.
            for _ in range(10):
                self.clock.compute()
                yield
            return Verdict("kept", "simulation")
        finally:
            self.ended[name] = self.clock.time
        return Verdict("kept", "room")


def key(name: str, namespace: str = "shop") -> VerdictKey:
    pod = starting(name)
    return VerdictKey(Mock(), AskedStart(replace(pod, name=(namespace, pod.name[1])), is_dry_run=False))


def in_seconds(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@pytest.mark.control("starts-kept-out")
async def test_it_computes_for_half_a_millisecond_at_a_time_and_a_third_of_the_time() -> None:
    clock = Ticks()
    verdict = await Decider(Slow(clock, 1000), clock).read(key("a"), in_seconds(600))
    assert verdict == Verdict("kept", "room")
    # What has begun ends.
    assert max(clock.at_a_time) * STEP <= 0.0005 + 2 * STEP
    assert clock.slept >= 2 * (clock.time - clock.slept) * 0.8


@pytest.mark.control("starts-kept-out")
async def test_it_ends_before_the_deadline_with_what_is_known_then() -> None:
    clock = Ticks()
    verdict = await Decider(Slow(clock), clock).read(key("a"), in_seconds(2.7))
    assert verdict == Verdict("kept", "simulation")
    assert 2.4 < clock.time < 2.7


@pytest.mark.control("starts-kept-out")
async def test_while_others_wait_each_gets_its_share_and_namespaces_take_turns() -> None:
    clock = Ticks()
    slow = Slow(clock)
    decider = Decider(slow, clock)
    asked = [key("1", "a"), key("2", "a"), key("3", "a"), key("1", "b")]
    reads = [asyncio.create_task(decider.read(asked[0], in_seconds(600)))]
    await until(lambda: slow.begun, "the first one")
    reads += [asyncio.create_task(decider.read(each, in_seconds(600))) for each in asked[1:]]
    assert await asyncio.gather(*reads) == [Verdict("kept", "simulation")] * 4
    assert list(slow.begun) == ["a/1", "a/2", "b/1", "a/3"]
    took = [slow.ended[name] - began for name, began in slow.begun.items()]
    assert all(0.3 <= each < 0.35 for each in took[1:3])
    assert took[3] > 500


@pytest.mark.control("starts-kept-out")
async def test_a_start_whose_turn_does_not_come_is_not_proven_and_holds_its_room() -> None:
    clock = Ticks()
    slow = Slow(clock)
    decider = Decider(slow, clock)
    busy = asyncio.create_task(decider.read(key("1"), in_seconds(1e9)))
    await until(lambda: slow.begun, "the first one")
    assert await decider.read(key("2"), in_seconds(0.05)) == Verdict("not-proven")
    assert slow.verdicts["not-proven"] == 1
    assert list(slow._claims) == [("shop", "2")]
    busy.cancel()


async def test_a_review_that_is_cancelled_ends_what_it_has_begun_and_gives_its_turn_back() -> None:
    clock = Ticks()
    slow = Slow(clock, 100)
    decider = Decider(slow, clock)
    gone = asyncio.create_task(decider.read(key("1"), in_seconds(600)))
    await until(lambda: slow.begun, "the first one")
    gone.cancel()
    assert await decider.read(key("2"), in_seconds(600)) == Verdict("kept", "room")
    assert list(slow.ended) == ["shop/1", "shop/2"]
