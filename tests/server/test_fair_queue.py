"""The order of reviews where there are more of them than seats."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.builders import launcher_pod, review
from webhook.server.fair_queue import FairQueue, namespace_of

TOTAL = 64


def soon() -> float:
    return asyncio.get_running_loop().time() + 3600


async def settled() -> None:
    """Lets every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


class SeatTaker:
    """Takes seats of one `FairQueue` in tasks, and knows which of them were given in which order."""

    def __init__(self, total: int = TOTAL) -> None:
        self.seats = FairQueue(total)
        self.given: list[str] = []
        # The loop cancels those that wait at the end of a test.
        self.tasks: list[asyncio.Task[bool]] = []

    async def _take(self, key: str, until: float) -> bool:
        taken = await self.seats.take(key, until)
        if taken:
            self.given.append(key)
        return taken

    async def ask(self, key: str, count: int = 1, until: float | None = None) -> list[asyncio.Task[bool]]:
        """Ask for seats; returns once those that can be given are given."""
        asking = [asyncio.create_task(self._take(key, until or soon())) for _ in range(count)]
        self.tasks += asking
        await settled()
        return asking

    async def give(self, key: str) -> None:
        self.seats.give(key)
        await settled()


@pytest.mark.control("one-tenants-slow-reviews")
async def test_one_namespace_gets_half_and_the_next_is_served_at_once() -> None:
    asker = SeatTaker()
    await asker.ask("slow", 1000)
    assert Counter(asker.given) == {"slow": 32}
    for number in range(5):
        await asker.ask(f"other-{number}")
        assert asker.given[-1] == f"other-{number}"


@pytest.mark.control("one-tenants-slow-reviews")
async def test_where_all_seats_are_taken_the_next_goes_to_who_has_none() -> None:
    asker = SeatTaker()
    for number in range(40):
        await asker.ask(f"hostile-{number % 20}", 100)
    held = Counter(asker.given)
    assert held.total() == TOTAL
    (newcomer,) = await asker.ask("shop")
    # Those that came too late for the last seat hold none either: they are before the newcomer.
    without = 20 - len(held)
    for _ in range(without + 1):
        assert not newcomer.done()
        await asker.give("hostile-0")

    assert newcomer.done()


@pytest.mark.control("one-tenants-slow-reviews")
async def test_returned_seats_go_round() -> None:
    asker = SeatTaker(2)
    first = [task for key, count in (("a", 3), ("b", 2), ("c", 2)) for task in await asker.ask(key, count)]
    # One seat each, as long as there are others.
    assert asker.given == ["a", "b"]
    for key in ("a", "b", "a", "b", "c"):
        await asker.give(key)
    assert asker.given == ["a", "b", "a", "b", "c", "a", "c"]
    assert all(task.done() for task in first)


async def test_who_gives_up_leaves_nothing_behind() -> None:
    asker = SeatTaker(1)
    await asker.ask("a")
    late = await asker.ask("b", 3, asyncio.get_running_loop().time() - 1)
    (gone,) = await asker.ask("c")
    gone.cancel()
    assert await asyncio.gather(*late) == [False] * 3
    (next_one,) = await asker.ask("d")

    asker.seats.give("a")
    assert await next_one
    assert asker.given == ["a", "d"]


@pytest.mark.parametrize("given_before", [True, False])
async def test_a_seat_returned_in_the_moment_of_giving_up_goes_on(given_before: bool) -> None:
    asker = SeatTaker(1)
    await asker.ask("a")
    (gone,), (patient,) = await asker.ask("b"), await asker.ask("c")
    if given_before:
        asker.seats.give("a")
    gone.cancel()
    if not given_before:
        asker.seats.give("a")
    assert await patient
    with pytest.raises(asyncio.CancelledError):
        await gone


# The seat that c gives back goes to a, and there is still one left, which c may have.
@example(3, [("t", "a", 0), ("t", "c", 0), ("t", "a", 0), ("t", "c", 1), ("g", "c", 0)])
@settings(max_examples=60)
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from("tgc"), st.sampled_from("abcd"), st.integers(0, 9)), max_size=60),
)
def test_no_seat_is_lost_and_nobody_waits_who_may_go(total: int, steps: list[tuple[str, str, int]]) -> None:
    async def run() -> None:
        seats, held = FairQueue(total), Counter[str]()
        waiting: list[tuple[str, asyncio.Task[bool]]] = []

        async def take(key: str) -> bool:
            taken = await seats.take(key, soon())
            held[key] += taken
            return taken

        for what, key, which in steps:
            if what == "t":
                waiting.append((key, asyncio.create_task(take(key))))
            elif what == "g" and held[key]:
                held[key] -= 1
                seats.give(key)
            elif what == "c" and waiting:
                waiting.pop(which % len(waiting))[1].cancel()
            if which % 2:
                await settled()
        await settled()

        waiting = [(key, task) for key, task in waiting if not task.done()]
        free = total - sum(held.values())
        assert free >= 0
        assert all(held[key] >= free for key, _ in waiting)
        # Each holder gives its seat back; then nothing waits.
        for _ in range(len(steps) + total):
            for key in [key for key in held if held[key]]:
                held[key] -= 1
                seats.give(key)
                await settled()
        assert all(task.done() for _, task in waiting)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        *(({"namespace": "shop"}, "shop"), ({"namespace": "a" * 63}, "a" * 63), ({"namespace": "a" * 64}, "")),
        ({"name": '"namespace":"forged"', "namespace": "shop"}, "shop"),
        ({"namespace": "ü"}, "\ufffd\ufffd"),
    ],
)
def test_the_namespace_is_found_without_decoding(request_: dict[str, str], found: str) -> None:
    body = review(launcher_pod())
    given_first = {"uid": "u", "kind": {}, **request_}
    rest = {key: value for key, value in body["request"].items() if key not in given_first}
    assert namespace_of(msgspec.json.encode({**body, "request": given_first | rest})) == found


@pytest.mark.parametrize("body", [b"{}", b'{"namespace":"', b'{"namespace":"a', b" " * 5000 + b'{"namespace":"a"}'])
def test_where_it_is_not_seen_at_once_it_is_none(body: bytes) -> None:
    assert namespace_of(body) == ""
