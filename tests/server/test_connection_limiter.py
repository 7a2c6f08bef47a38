from __future__ import annotations

from typing import Any

import pytest

from webhook.server.edge import Client, ConnectionLimiter, Limits

MAX_CONNECTIONS, MAX_CONNECTIONS_PER_CLIENT = Limits().connections, Limits().per_client


class Connected:
    """A connection without a socket."""

    def __init__(self, server: ConnectionLimiter, client: str, *, is_idle: bool = True) -> None:
        self.client = client
        self.is_cut = False
        self.is_idle = is_idle
        server.add(self)  # type: ignore[arg-type]

    def abort(self) -> None:
        self.is_cut = True


def limiter() -> ConnectionLimiter:
    return ConnectionLimiter(MAX_CONNECTIONS_PER_CLIENT, MAX_CONNECTIONS)


async def test_the_oldest_connection_of_a_client_makes_room_for_its_newest() -> None:
    server = limiter()
    made = [Connected(server, "10.0.0.1") for _ in range(MAX_CONNECTIONS_PER_CLIENT + 3)]

    assert [guest.is_cut for guest in made] == [True] * 3 + [False] * MAX_CONNECTIONS_PER_CLIENT
    assert server.ended == 3


async def test_where_all_are_too_many_the_client_with_most_makes_room() -> None:
    server = limiter()
    greedy = [Connected(server, "10.0.0.1") for _ in range(12)]
    others = [Connected(server, f"10.0.1.{number}") for number in range(MAX_CONNECTIONS)]

    assert server.ended == 12
    assert all(guest.is_cut for guest in greedy)
    assert not any(guest.is_cut for guest in others)
    for guest in (*greedy, *others, *greedy):
        server.remove(guest)  # type: ignore[arg-type]
    assert server.count == 0


async def test_clients_without_connections_are_forgotten() -> None:
    server = limiter()
    for number in range(3000):
        server.remove(Connected(server, f"10.{number >> 8}.{number & 255}.1"))  # type: ignore[arg-type]

    assert len(server._clients) <= 1024


async def test_a_connection_that_is_not_known_leaves() -> None:
    server = limiter()
    foreign: Any = Connected(server, "10.0.0.1")
    server._clients.clear()
    server.remove(foreign)

    assert server.count == 1


def test_a_burst_is_let_through_and_then_a_pace() -> None:
    pace = Client(20, 10)
    delays = [pace.delay(0.0) for _ in range(39)]

    assert delays[:20] == pytest.approx([0.0] * 20)
    assert delays[38] == pytest.approx(1.9)
    assert pace.delay(0.05) is not None
    assert [pace.delay(0.0) for _ in range(1000)] == [None] * 1000, "and those book nothing"
    assert pace.delay(0.55) == pytest.approx(1.55)
    assert pace.delay(100.0) == 0.0, "time heals"
    assert pace.due == pytest.approx(100.1), "and is not saved up"


async def test_one_client_that_asks_too_often_takes_no_turn_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None:
        assert 0 < seconds <= 2

    monkeypatch.setattr("webhook.server.edge.asyncio.sleep", at_once)
    server = limiter()
    greedy: Any = Connected(server, "10.0.0.1")
    other: Any = Connected(server, "10.0.0.2")
    turns = [await server.wait(greedy.client) for _ in range(5000)]

    assert turns[:39] == [True] * 39
    assert sum(turns) < 50
    assert await server.wait(other.client)
