"""One large review among small ones, on one event loop as in the server."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from tests.attacks.schema import Path
from tests.attacks.world import WORLDS, AttackWorld, AuditLines

_SMALL: Final = 30
_PAUSE_SECONDS: Final = 0.005
_SAMPLE: Final = 20


@dataclass(frozen=True, slots=True)
class ComplexityPlan:
    """What to measure.

    Attributes:
        size: of the large object, in bytes.
        only: a word that a review's name has.
        each: every list and map by itself too, not only all of an object together.
    """

    size: int
    only: str
    each: bool


@dataclass(frozen=True, slots=True)
class ComplexityFigures:
    """What one large object costs.

    Attributes:
        review: the way through a policy.
        shape: which list or map is long.
        items: in it.
        milliseconds: of the processor, for the whole review.
        answer: the reason code.
        beside_p50: of everyday reviews that arrive meanwhile, in milliseconds.
        beside_max: likewise.
    """

    review: str
    shape: str
    items: int
    milliseconds: float
    answer: str
    beside_p50: float
    beside_max: float


async def measure(plan: ComplexityPlan) -> list[ComplexityFigures]:
    """All figures, review by review."""
    small = next(world for world in WORLDS if world.name == "launcher pod")
    everyday = small.review(small.objects(), audit=AuditLines())
    found = []
    for world in WORLDS:
        if plan.only in world.name:
            for shape, places in _shapes(world, plan):
                found.append(await _measured(world, shape, places, plan.size, everyday))
    return found


def _shapes(world: AttackWorld, plan: ComplexityPlan) -> Iterator[tuple[str, list[tuple[str, Path]]]]:
    for name in world.subjects:
        if places := [place for place in world.everything() if place[0] == name]:
            yield f"{name}: all", places
    for name, path in world.places() if plan.each else ():
        yield f"{name}: {'.'.join(path) or 'itself'}", [(name, path)]


async def _measured(
    world: AttackWorld, shape: str, places: list[tuple[str, Path]], size: int, everyday: Callable[[], bytes]
) -> ComplexityFigures:
    subject = places[0][0]
    base, sample = (len(msgspec.json.encode(world.objects(places, count)[subject])) for count in (0, _SAMPLE))
    count = max(1, int(_SAMPLE * size / max(1, sample - base)))
    large = world.review(world.objects(places, count), audit=AuditLines())
    loop = asyncio.get_running_loop()
    waits: list[float] = []

    async def one(arrives: float) -> None:
        everyday()
        waits.append(loop.time() - arrives)

    # They arrive all the time; the large one takes the loop when it is its turn.
    tasks = []
    seconds, answer = 0.0, b""
    for number in range(_SMALL):
        arrives = loop.time() + _PAUSE_SECONDS
        tasks.append(asyncio.create_task(one(arrives - _PAUSE_SECONDS)))
        if number == _SMALL // 2:
            start = time.process_time()
            answer = large()
            seconds = time.process_time() - start
        await asyncio.sleep(_PAUSE_SECONDS)
    await asyncio.gather(*tasks)
    reason = json.loads(answer)["response"]["auditAnnotations"]["reason"]
    milliseconds = [wait * 1000 for wait in waits]
    return ComplexityFigures(
        world.name, shape, count, seconds * 1000, reason, statistics.median(milliseconds), max(milliseconds)
    )
