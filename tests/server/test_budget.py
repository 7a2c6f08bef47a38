"""The budget of bodies: who waits, who goes on, and that no byte of it is ever lost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.server.budget import EVERYDAY, LANE, BodyBudget, Lane, NoRoom, Share


def soon(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_first_come_first_served() -> None:
    lane = Lane(10)
    order: list[str] = []

    async def taker(name: str, count: int) -> None:
        await lane.take(count, soon())
        order.append(name)

    await lane.take(8, soon())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(taker("large", 9))
        await asyncio.sleep(0)
        tasks.create_task(taker("small", 1))
        await asyncio.sleep(0)
        assert order == [], "the small one doesn't pass by"
        lane.give(8)
    assert order == ["large", "small"]
    assert lane.free == 0


async def test_who_gives_up_makes_way() -> None:
    lane = Lane(10)
    await lane.take(8, soon())
    large = asyncio.create_task(lane.take(9, soon(0.01)))
    await asyncio.sleep(0)
    small = asyncio.create_task(lane.take(2, soon()))
    with pytest.raises(NoRoom):
        await large
    await small
    assert lane.free == 0


async def test_what_comes_to_one_that_is_cancelled_goes_back() -> None:
    lane = Lane(10)
    await lane.take(10, soon())
    waiting = asyncio.create_task(lane.take(4, soon()))
    await asyncio.sleep(0)
    lane.give(10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert lane.free == 10


async def test_a_share_takes_piece_by_piece_of_one_lane() -> None:
    budget = BodyBudget()
    share = Share(budget, soon())
    for _ in range(3):
        await share.take(EVERYDAY)
    assert budget.taken_bytes == 3 * EVERYDAY
    assert budget.lane(EVERYDAY).free == LANE - 3 * EVERYDAY
    assert budget.lane(EVERYDAY + 1).free == LANE

    share.give()
    share.give()
    assert budget.taken_bytes == 0
    Share(budget, soon()).give()


@given(st.lists(st.tuples(st.integers(0, 10), st.floats(-0.001, 0.003), st.integers(0, 3)), max_size=12))
def test_nothing_is_lost_whatever_happens(askers: list[tuple[int, float, int]]) -> None:
    async def one(lane: Lane, count: int, patience: float, steps: int) -> None:
        try:
            await lane.take(count, soon(patience))
        except NoRoom:
            return
        assert lane.free >= 0
        try:
            for _ in range(steps):
                await asyncio.sleep(0)
        finally:
            lane.give(count)

    async def run() -> int:
        lane = Lane(10)
        tasks = [asyncio.create_task(one(lane, *asker)) for asker in askers]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return lane.free

    assert asyncio.run(run()) == 10
