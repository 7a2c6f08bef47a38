"""Requests that come in pieces, or several at once: which of them need no task, and which of their bytes are kept."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from certs.source import self_signed
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, until
from webhook.server import edge
from webhook.server.app import LIMITS
from webhook.server.edge import EVERYDAY_BYTES, PREFIX_BYTES, Application, Connection, Server, split_address
from webhook.server.request import Answer, HttpRequest, Overload
from webhook.server.tls import context

REQUEST = head(len(BODY)) + BODY


class PieceTransport(asyncio.Transport):
    """A transport that keeps all written bytes, and counts the writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reads = True
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    @property
    def answers(self) -> int:
        return self.written.count(b"HTTP/1.1 200 OK\r\n")


class PieceCase(Application):
    """A connection, and what answers."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.slow: list[HttpRequest] = []
        self.at_once = True
        self.refusals = 0
        self.server = Server(self, LIMITS)
        self.connection: Connection = Connection(self.server)
        self.transport = PieceTransport()
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes, connection: Connection | None = None) -> None:
        """Bytes come, on a connection or on the one, as a transport brings them."""
        one = connection or self.connection
        while data:
            place = one.get_buffer(-1)
            count = min(len(place), len(data))
            place[:count], data = data[:count], data[count:]
            one.buffer_updated(count)

    def refuse(self, request: HttpRequest) -> Answer | None:
        self.refusals += 1
        return Answer(403, b"{}") if request.head.path == "/refused" else None

    def patience(self, request: HttpRequest) -> float:
        return 10.0

    async def answer(self, request: HttpRequest) -> Answer:
        self.slow.append(request)
        await self.release.wait()
        return Answer(200, b"{}")

    def answer_at_once(self, request: HttpRequest) -> Answer | None:
        assert request.body in (BODY, b"")
        return Answer(200, b"{}") if self.at_once else None


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
async def test_a_body_in_pieces_takes_no_task(size: int) -> None:
    case = PieceCase()
    for start in range(0, len(REQUEST), size):
        assert case.transport.answers == 0
        case.receive(REQUEST[start : start + size])
    assert case.transport.answers == 1
    assert case.connection.task is None
    assert case.slow == []


@pytest.mark.parametrize("length", [len(BODY), EVERYDAY_BYTES + 1])
async def test_a_body_that_does_not_come_is_given_up(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(edge, "GRACE_SECONDS", 0.0)
    case = PieceCase()
    case.receive(head(length) + BODY[:-1])
    await until(lambda: case.transport.written)
    assert b"HTTP/1.1 408 Request Timeout\r\n" in case.transport.written
    assert b"Connection: close\r\n" in case.transport.written
    assert case.server.taken_bytes == 0
    assert not case.transport.closed, "the rest is still read, or the client would not see the answer"
    case.receive(b" " * length)
    assert case.transport.closed
    assert case.slow == []


async def test_a_head_waits_for_the_first_byte_of_its_body() -> None:
    """An API server without a processor leaves half a second between the two; an answer without a uid is none to it."""
    case = PieceCase()
    case.receive(head(len(BODY)))
    for _ in range(20):
        case.connection.check(time.monotonic())
    assert case.transport.written == b""
    case.receive(BODY)
    assert case.transport.answers == 1


async def test_half_a_head_behind_a_request_has_no_more_time_than_any_other() -> None:
    case = PieceCase()
    case.receive(REQUEST + b"POST / HTTP/1.1\r\n")
    case.receive(b"Host: x\r\n")
    case.connection.check(time.monotonic() + edge.HEAD_SECONDS - 1)
    assert not case.transport.closed
    case.connection.check(time.monotonic() + edge.HEAD_SECONDS)
    assert case.transport.answers == 1
    assert case.transport.closed


async def test_a_body_in_pieces_has_the_length_of_its_own_head() -> None:
    """The head is that of the request before, but for the length."""
    case = PieceCase()
    case.receive(head(0))
    case.receive(REQUEST[:-1])
    case.receive(REQUEST[-1:] + REQUEST)
    await until(lambda: case.transport.answers == 2)
    case.release.set()
    await until(lambda: case.transport.answers == 3)
    assert [request.body for request in case.slow] == [BODY]


async def test_the_same_head_is_not_judged_again() -> None:
    """Go sends nearly every review in two pieces."""
    case = PieceCase()
    for _ in range(3):
        case.receive(REQUEST[:-1])
        case.receive(REQUEST[-1:])
    assert (case.transport.answers, case.refusals) == (3, 1)
    case.receive(head(len(BODY), "/refused"))
    assert b"HTTP/1.1 403 Forbidden\r\n" in case.transport.written
    assert case.refusals == 2


async def test_of_requests_sent_ahead_one_at_a_time_is_taken() -> None:
    case = PieceCase()
    case.at_once = False
    case.receive(REQUEST * 3)
    await asyncio.sleep(0)
    assert len(case.slow) == 1

    for _ in range(2):
        case.receive(REQUEST)
        assert not case.transport.reads
    case.release.set()
    async with asyncio.timeout(10):
        while case.transport.answers < 5:
            # As long as one is left, no more are read.
            assert not case.transport.reads
            await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert case.transport.reads
    assert len(case.slow) == 5


async def test_after_the_last_answer_nothing_is_taken() -> None:
    case = PieceCase()
    case.receive(REQUEST.replace(b"Host: x", b"Host: x\r\nConnection: close") + REQUEST)
    case.receive(REQUEST)
    assert case.transport.answers == 1
    assert case.transport.closed
    assert b"Connection: close\r\n" in case.transport.written


async def test_who_was_in_a_handshake_is_recycled_too() -> None:
    case = PieceCase()
    shaking_hands = Connection(case.server)
    case.server.recycle()
    shaking_hands.connection_made(transport := PieceTransport())
    shaking_hands.data_received(REQUEST)
    assert transport.closed
    assert b"Connection: close\r\n" in transport.written


@pytest.mark.parametrize("at", [0, 1])
async def test_chunks_that_are_none_end_their_request(at: int) -> None:
    case = PieceCase()
    chunked = head(0, PODS).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    pieces = (b"5\r\nabcde\r\n", b"zz\r\n")
    case.receive(chunked + b"".join(pieces[: 1 - at]))
    await asyncio.sleep(0)
    case.receive(b"".join(pieces[1 - at :]))
    await asyncio.sleep(0)
    assert b"HTTP/1.1 400 Bad Request\r\n" in case.transport.written
    assert case.transport.closed
    assert (case.server.taken_bytes, case.slow) == (0, [])


async def test_the_end_of_a_server_waits_for_what_has_begun() -> None:
    case = PieceCase()
    Connection(case.server).connection_made(transport := PieceTransport())
    case.receive(REQUEST[:-1])
    assert case.server.in_flight == 1
    ending = asyncio.create_task(case.server.shutdown(10))
    await asyncio.sleep(0.01)
    assert transport.closed
    assert not case.transport.closed
    case.release.set()
    case.receive(REQUEST[-1:])
    await ending

    assert case.transport.answers == 1
    assert case.transport.closed


async def test_the_end_of_a_server_ends_what_does_not_end() -> None:
    case = PieceCase()
    case.at_once = False
    case.receive(REQUEST)
    await asyncio.sleep(0)
    task = case.connection.task
    await case.server.shutdown(0.01)
    assert task
    assert task.cancelled()
    assert case.transport.closed


async def test_a_handshake_does_not_outlive_its_server() -> None:
    case, pair = PieceCase(), self_signed(["localhost"])
    await case.server.listen("127.0.0.1:0", context(pair.certificate, pair.key), "--listen")
    reader, writer = await asyncio.open_connection(*split_address(case.server.address))
    await until(lambda: case.server.limiter.count, "the connection to be accepted")
    await case.server.shutdown(0.0)
    assert case.server.limiter.count == 0
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b"", "closed"
    writer.transport.abort()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_ends_as_it_begins_is_forgotten(
    loop: Callable[[], asyncio.AbstractEventLoop], turns: int
) -> None:
    """Whatever has been done of its beginning when it must make room for others: uvloop has a way of its own."""

    async def run() -> None:
        case = PieceCase()
        accepted, limiter = list[Connection](), case.server.limiter
        add = limiter.add

        def end(connection: Connection, left: int) -> None:
            if left:
                asyncio.get_running_loop().call_soon(end, connection, left - 1)
            else:
                connection.abort()

        def added(connection: Connection) -> None:
            add(connection)
            accepted.append(connection)
            end(connection, turns)

        limiter.add = added  # type: ignore[method-assign]
        await case.server.listen("127.0.0.1:0", None, "--listen")
        reader, writer = await asyncio.open_connection(*split_address(case.server.address))
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b"", "closed"
        await until(lambda: accepted and not accepted[0].opening)
        await until(lambda: not limiter.count, "it to be forgotten")
        assert [*case.server.open] == [case.connection], "which was there before"
        await case.server.shutdown(0.0)
        writer.transport.abort()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_a_request_outlives_a_client_that_leaves_with_its_handshake() -> None:
    """Its evaluation is waited for, as any other."""
    case = PieceCase()
    case.at_once = False
    case.receive(REQUEST)
    opening: asyncio.Task[None] = asyncio.create_task(asyncio.sleep(0))
    await opening
    case.connection.connection_lost(None)
    accepted = socket.socket()
    case.server._opened(case.connection, accepted, opening)
    assert (accepted.fileno(), case.server.in_flight) == (-1, 1)
    case.release.set()
    await until(lambda: not case.server.open, "the evaluation to end")


@pytest.mark.parametrize("paused", [False, True])
async def test_what_is_given_up_before_its_task_begins_is_answered_once(*, paused: bool) -> None:
    case = PieceCase()
    if paused:
        case.connection.pause_writing()
    case.receive(head(EVERYDAY_BYTES + 1) + b" " * PREFIX_BYTES)
    task = case.connection.task
    assert task
    if paused:
        await asyncio.sleep(0)
    case.connection.give_up(Overload.NO_ROOM)
    if paused:
        case.connection.resume_writing()
    case.release.set()
    await task

    assert case.transport.written.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert (case.transport.written.count(b"HTTP/1.1 "), case.slow, case.server.taken_bytes) == (1, [], 0)


async def test_a_task_that_never_began_holds_no_connection() -> None:
    """Memory may be short in the turn of the loop in which a request has come whole."""
    case = PieceCase()
    case.at_once = False
    case.receive(REQUEST)
    case.connection.give_up(Overload.NO_ROOM)
    await asyncio.sleep(0)
    case.connection.connection_lost(None)
    assert case.transport.written.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert case.slow == []
    assert not case.server.open


async def test_a_head_has_no_body() -> None:
    case = PieceCase()
    case.release.set()
    case.receive(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    case.receive(b"")
    await until(lambda: case.transport.written)
    assert case.transport.written.endswith(b"Content-Length: 2\r\n\r\n")
