"""What goes on to aiohttp: heads one at a time, bodies as far as they are wanted, and nothing behind a bad head.

Clients are sockets, since no client of aiohttp sends such bytes.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import msgspec
import pytest
import uvloop
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.server.conftest import MOST_AHEAD
from tests.server.raw_requests import BODY, head
from tests.waiting import PATIENCE, until
from webhook.server import bodies, guard
from webhook.server.answers import TrafficObserver, errors_to_answers, response
from webhook.server.app import LIMITS
from webhook.server.bodies import EVERYDAY_BYTES, PREFIX_BYTES, RequestBody
from webhook.server.guard import MAX_HEAD_BYTES, ConnectionLimiter, Guard, Limits, guard_of
from webhook.server.listener import Listener, serving, split_address

PATH = "/echo"
# More than sockets hold.
LARGE = 32 * 1024 * 1024
REQUEST = head(len(BODY), PATH) + BODY
GET = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
# What makes a socket's end a reset.
_RESET = socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)


class Served:
    """A listener whose handler reads bodies, and waits before it answers until it may."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.release = asyncio.Event()
        self.release.set()
        self.bodies: list[bytes] = []
        self.begun = 0
        application = web.Application(middlewares=[errors_to_answers(TrafficObserver(), "ask for /echo")])
        application.router.add_route("*", PATH, self._echo)
        application.router.add_route("*", "/unread", self._unread)
        application.router.add_route("*", "/patient", self._patient)
        application.router.add_route("*", "/large", self._large)
        application.router.add_route("*", "/everyday", self._everyday)
        self.listener = Listener(application, limits)

    async def _echo(self, request: web.Request) -> web.Response:
        self.begun += 1
        with RequestBody(request, guard_of(request)) as body:
            data = await body.read(asyncio.get_running_loop().time() + 10)
            self.bodies.append(data)
            await self.release.wait()
        return response(200, b"%d" % len(data))

    async def _unread(self, _request: web.Request) -> web.Response:
        return response(200, b"unread")

    async def _patient(self, request: web.Request) -> web.Response:
        """Lets the loop read on while it has the body, as a review does that waits for facts."""
        answer = await self._echo(request)
        await asyncio.sleep(0.001)
        return answer

    async def _large(self, _request: web.Request) -> web.Response:
        self.begun += 1
        await self.release.wait()
        return response(200, bytes(LARGE))

    async def _everyday(self, _request: web.Request) -> web.Response:
        self.begun += 1
        return response(200, bytes(16 * 1024))

    @property
    def only(self) -> Guard:
        (found,) = self.listener.open
        return found

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(*split_address(self.listener.address))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def everything(self, *pieces: bytes) -> bytes:
        """All that the server sends until it closes the connection."""
        async with self.connection() as (reader, writer):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)
            received = b""
            with suppress(ConnectionResetError):
                while piece := await asyncio.wait_for(reader.read(65536), PATIENCE):
                    received += piece
            return received


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    case = Served()
    async with serving(case.listener, "127.0.0.1:0", None, "--listen", 0.0):
        yield case
    assert (case.listener.request_bytes, case.listener.in_flight) == (0, 0)


LAST = REQUEST.replace(b"Host: x", b"Host: x\r\nConnection: close")


@pytest.mark.parametrize("size", [1, 7, 100, 4096, 10**6])
async def test_a_request_may_come_in_pieces(served: Served, size: int) -> None:
    data = REQUEST + LAST
    answers = await served.everything(*(data[start : start + size] for start in range(0, len(data), size)))
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert served.bodies == [BODY, BODY]


@pytest.mark.control("request-smuggling")
@given(
    st.lists(st.integers(1, len(REQUEST) * 3), max_size=8),
    st.sampled_from([asyncio.new_event_loop, uvloop.new_event_loop]),
)
def test_where_a_stream_is_cut_changes_nothing(cuts: list[int], loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    stream = REQUEST + GET + REQUEST + LAST
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})

    async def run() -> None:
        case = Served()
        async with serving(case.listener, "127.0.0.1:0", None, "--listen", 0.0):
            pieces = [stream[start:end] for start, end in pairwise(edges)]
            answers = await case.everything(*pieces)
        assert answers.count(b"HTTP/1.1 200 OK") == 4
        assert case.bodies == [BODY, b"", BODY, BODY]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@pytest.mark.control("request-smuggling")
@pytest.mark.parametrize(
    "data",
    [
        b"\x00 bad\r\n\r\n",
        # What others may take for the end of a head must not be inside of one.
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\n\nabc\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\nabc\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\rabc\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nA: b\r\n Content-Length: 3\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: \r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
)
async def test_behind_a_bad_head_nothing_goes_on(served: Served, data: bytes) -> None:
    async with served.connection() as (reader, writer):
        writer.write(data + REQUEST)
        try:
            status = (await asyncio.wait_for(reader.readline(), PATIENCE)).split()[1:2]
        except ConnectionError:
            status = []
        assert status in ([b"400"], []), data
    await until(lambda: not served.listener.open, "the connection to end")
    assert served.bodies == []


async def test_what_clients_do_is_no_error_of_the_server(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are no HTTP, and clients that go in the middle of a head, a body, or what is read behind an answer."""
    assert b" 400 " in await served.everything(b"\x00 bad\r\n\r\n")
    assert b" 400 " in await served.everything(REQUEST + b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n")
    for data in (REQUEST[:50], REQUEST[:-1], head(10**6, "/unread") + BODY, head(10**6, PATH) + BODY):
        for end in ("close", "reset"):
            async with served.connection() as (reader, writer):
                writer.write(data)
                await until(lambda: served.listener.open, "the connection to be made")
                if b"/unread" in data:
                    await asyncio.wait_for(reader.readuntil(b"unread"), PATIENCE)
                if end == "reset":
                    writer.transport.get_extra_info("socket").setsockopt(*_RESET)
                else:
                    writer.write_eof()
            await until(lambda: not served.listener.open, "the connection to end")
    assert not [record for record in caplog.records if record.name != "asyncio"]


async def test_a_bad_head_lets_no_memory_be_filled(served: Served) -> None:
    async with served.connection() as (reader, writer):
        writer.write(b"\x00 bad\r\n\r\n")
        most = 0
        try:
            for _ in range(200):
                writer.write(b"x" * 65536)
                await writer.drain()
                most = max(most, served.listener.counted_bytes)
        except ConnectionError:
            pass
        del reader
    assert most <= 4 * 65536


@pytest.mark.control("heads-without-end")
@pytest.mark.parametrize("begin", [b"POST / HTTP/1.1\r\nA: ", b"POST / HTTP/1.1\r\n", b"", b"POST /"])
async def test_a_head_without_an_end_has_a_limit(served: Served, begin: bytes) -> None:
    answer = await served.everything(begin, b"A: b\r\n" * (MAX_HEAD_BYTES // 6 + 1))
    assert not answer or answer.split()[1] in (b"431", b"400")
    assert served.begun == 0


async def test_half_a_head_has_its_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a request, and an empty line that aiohttp passes over."""
    monkeypatch.setattr(guard, "HEAD_SECONDS", 0.2)
    for begin in (b"", REQUEST):
        for half in (b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\n", b"\r\n\r\n"):
            answers = await served.everything(begin + half)
            assert answers.count(b"HTTP/1.1 200 OK") == bool(begin), half


@pytest.mark.parametrize("empty", [b"\r\n", b"\r\n\r\n", b"\n\n", b"\r\n" * 50_000])
async def test_empty_lines_before_a_request_are_passed_over(served: Served, empty: bytes) -> None:
    """RFC 9112, section 2.2."""
    answers = await served.everything(empty + REQUEST + empty, empty + LAST)
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert served.bodies == [BODY, BODY]


async def test_empty_lines_without_an_end_have_the_time_of_a_head(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "HEAD_SECONDS", 0.2)

    async def flood(writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(b"\r\n" * 1000)
                await writer.drain()
                await asyncio.sleep(0.01)

    async with served.connection() as (reader, writer):
        flooding = asyncio.create_task(flood(writer))
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        assert not served.listener.counted_bytes
        flooding.cancel()


@pytest.mark.control("pipelined-requests")
async def test_of_requests_sent_ahead_one_at_a_time_is_taken(served: Served) -> None:
    served.release.clear()
    async with served.connection() as (reader, writer):
        writer.write(REQUEST * 3)
        await until(lambda: served.begun == 1, "the first to begin")
        for _ in range(50):
            writer.write(REQUEST * 20)
            await asyncio.sleep(0)
        assert served.begun == 1
        assert served.listener.counted_bytes < 4 * 65536, "the rest waits in the socket's buffer"
        served.release.set()
        for _ in range(1003):
            await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200 OK"), PATIENCE)
    assert served.bodies == [BODY] * 1003


async def test_requests_sent_ahead_are_no_more_in_memory_after_many_answers(served: Served) -> None:
    """aiohttp resumes reading at the end of each body, and whenever a handler takes some of it."""
    request = head(len(BODY), "/patient") + BODY
    most = 0
    async with served.connection() as (reader, writer):
        writer.write(request * 4000)
        for _ in range(50):
            await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200 OK"), PATIENCE)
            most = max(most, served.listener.counted_bytes)
    assert most <= MOST_AHEAD


async def test_after_the_last_answer_nothing_is_taken(served: Served) -> None:
    answers = await served.everything(LAST + REQUEST, REQUEST)
    assert (answers.count(b"HTTP/1.1 "), answers.lower().count(b"connection: close")) == (1, 1)
    assert served.begun == 1


@pytest.mark.parametrize("behind", [REQUEST, REQUEST[:5], b"\x00"])
async def test_what_is_behind_chunks_is_no_part_of_them(served: Served, behind: bytes) -> None:
    chunked = head(0, PATH).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    answers = await served.everything(b"%s%x\r\n%s\r\n0\r\n\r\n%s" % (chunked, len(BODY), BODY, behind))
    assert (answers.count(b"HTTP/1.1 "), answers.split()[1]) == (1, b"411")
    assert served.bodies == []


@pytest.mark.parametrize("pieces", [[b"zz\r\n"], [b"5\r\nabcde\r\n", b"zz\r\n"], [b"5\r\nabcdefg\r\n"]])
async def test_chunks_are_never_looked_at(served: Served, pieces: list[bytes]) -> None:
    chunked = head(0, PATH).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    answers = await served.everything(chunked, *pieces)
    assert answers.split()[1] == b"411"
    assert served.bodies == []


@pytest.mark.control("floods")
@pytest.mark.parametrize("length", [len(BODY), EVERYDAY_BYTES + 1])
async def test_a_body_that_does_not_come_is_given_up(
    served: Served, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "GRACE_SECONDS", 0.1)
    async with served.connection() as (reader, writer):
        writer.write(head(length, PATH) + BODY[:-1])
        lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)).lower()
        assert lines.split()[1] == b"408"
        assert b"connection: close" in lines
        # The rest is still read, or the client would not see the answer.
        writer.write(b" " * length)
        await asyncio.wait_for(reader.read(), PATIENCE)
    assert served.bodies == []


async def test_a_body_that_is_not_read_ends_its_connection_and_is_no_request(served: Served) -> None:
    data = REQUEST
    answers = await served.everything(head(len(data), "/unread") + data[:50], data[50:], REQUEST)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert served.begun == 0


async def test_a_request_without_a_body_is_followed_by_others(served: Served) -> None:
    answers = await served.everything(b"HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n" + GET, LAST)
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert served.bodies == [b"", b"", BODY]


@pytest.mark.parametrize(
    "data",
    [
        b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /echo HTTP/1.0\r\n\r\n",
    ],
)
async def test_what_another_protocol_may_follow_is_the_last_request(served: Served, data: bytes) -> None:
    answers = await served.everything(data, REQUEST)
    assert answers.count(b"HTTP/1.") == 1
    assert served.bodies in ([b""], [])


async def test_a_body_that_is_expected_is_asked_for(served: Served) -> None:
    async with served.connection() as (reader, writer):
        writer.write(head(len(BODY), PATH, "Expect: 100-continue\r\n"))
        assert b"100 Continue" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        writer.write(BODY)
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)


@pytest.mark.parametrize("path", [PATH, "/nothing"])
async def test_an_expectation_that_nobody_knows_is_denied_and_costs_nothing(served: Served, path: str) -> None:
    alone = head(0, path, "Expect: nonsense\r\n")
    answers = await served.everything(alone + alone + LAST)
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"417", b"417", b"200"]
    assert b"aiohttp" not in answers

    unread = await served.everything(head(len(BODY), path, "Expect: nonsense\r\n") + BODY + LAST)
    assert (unread.count(b"HTTP/1.1 "), b"Connection: close" in unread) == (1, True)
    assert len(served.bodies) == 1


async def test_a_large_body_waits_for_room_in_the_sockets_buffer(served: Served) -> None:
    size = 2 * 1024 * 1024
    taken = served.listener.limits.reserved_bytes // 2
    assert await served.listener.reserved.take("other", 0.0, taken)
    assert await served.listener.reserved.take("others", 0.0, taken // 2)
    assert await served.listener.reserved.take("more", 0.0, taken // 4)
    assert await served.listener.reserved.take("most", 0.0, taken // 8)
    async with served.connection() as (reader, writer):
        writer.write(head(size, PATH) + b"x" * size)
        await until(lambda: served.begun == 1, "the request to begin")
        await asyncio.sleep(0.1)
        # As much as is read at once.
        assert served.listener.counted_bytes <= PREFIX_BYTES + 256 * 1024
        served.listener.reserved.give("other", taken)
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    for client, count in (("others", taken // 2), ("more", taken // 4), ("most", taken // 8)):
        served.listener.reserved.give(client, count)


@pytest.mark.control("idle-ops-connections")
async def test_connections_end_after_a_while_whatever_they_do() -> None:
    limits = msgspec.structs.replace(Limits(), abort_seconds=0.3, body_bytes=10**6)
    case = Served(limits)
    case.release.clear()
    async with serving(case.listener, "127.0.0.1:0", None, "--listen", 0.0):
        for data in (b"", REQUEST[:100], REQUEST, REQUEST * 100):
            assert await case.everything(data) == b""
        case.release.set()
        await until(lambda: case.listener.in_flight == 0, "the handlers to end")


async def test_an_idle_connection_that_closes_waits_for_no_client_that_reads_nothing() -> None:
    """Its answers are too few to stall it, and the connection could last for long."""
    limits = msgspec.structs.replace(Limits(), keep_alive_seconds=0.3, abort_seconds=10 * PATIENCE)
    case = Served(limits)
    async with serving(case.listener, "127.0.0.1:0", None, "--listen", 0.0), case.connection() as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: case.listener.open, "the connection to be made")
        only = case.only
        assert only.transport
        asked = 0
        while not only.transport.get_write_buffer_size():
            writer.write(b"GET /everyday HTTP/1.1\r\nHost: x\r\n\r\n")
            asked += 1
            await until(lambda: case.begun == asked and only.is_idle, "the answer")  # noqa: B023 - waited for at once
        assert not only.is_stalled
        await until(lambda: not case.listener.open, "the connection to end")


async def test_bytes_that_are_read_for_a_client_to_see_its_answer_are_not_kept() -> None:
    """A client whose body is not wanted reads its answer only once it has written all of it."""
    case = Served(msgspec.structs.replace(LIMITS, counted_bytes=2 * MAX_HEAD_BYTES))
    size = 2 * 1024 * 1024
    async with serving(case.listener, "127.0.0.1:0", None, "--listen", 0.0), case.connection() as (reader, writer):
        writer.write(head(size, "/unread"))
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        for _ in range(size // 65536):
            writer.write(b" " * 65536)
            await writer.drain()
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b"unread"


async def test_bytes_of_a_client_that_has_gone_cost_no_other_client_its_request() -> None:
    case = Served(msgspec.structs.replace(LIMITS, counted_bytes=2 * len(REQUEST)))
    case.release.clear()
    async with serving(case.listener, "127.0.0.1:0", None, "--listen", 0.0):
        async with case.connection() as (_, gone):
            gone.write(REQUEST)
            await until(lambda: case.begun == 1, "its request to begin")
        await until(lambda: not case.listener.open, "it to leave")
        async with case.connection() as (second, writer), case.connection() as (third, other):
            writer.write(REQUEST)
            await until(lambda: case.begun == 2, "the second request to begin")
            other.write(REQUEST)
            await until(lambda: case.begun == 3, "the third one to begin")
            assert case.listener.counted_bytes <= case.listener.limits.counted_bytes
            case.release.set()
            for reader in (second, third):
                assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)


async def test_a_request_ends_with_its_client() -> None:
    """It would hold its memory and its seat for an answer that goes nowhere."""
    case = Served()
    case.release.clear()
    async with serving(case.listener, "127.0.0.1:0", None, "--listen", 0.0):
        async with case.connection() as (_, writer):
            writer.write(REQUEST)
            await until(lambda: case.bodies == [BODY], "the request to begin")
        await until(lambda: not case.listener.in_flight, "it to end")
        assert case.listener.request_bytes == 0


async def test_the_end_of_a_server_waits_until_answers_are_written() -> None:
    case = Served()
    case.release.clear()
    await case.listener.listen("127.0.0.1:0", None, "--listen")
    async with case.connection() as (reader, writer):
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: case.begun == 1, "the request to begin")
        ending = asyncio.create_task(case.listener.shutdown(PATIENCE))
        await until(lambda: case.only.closes_at == 0.0, "the end to begin")
        case.release.set()
        await until(lambda: case.listener.in_flight == 0, "the answer to be known")
        await asyncio.sleep(0.1)
        assert len((await asyncio.wait_for(reader.read(), PATIENCE)).partition(b"\r\n\r\n")[2]) == LARGE
    await ending


@pytest.mark.control("scrape-floods")
async def test_an_ipv6_network_of_64_bits_is_one_client() -> None:
    """One machine has as many addresses of its network as it likes."""
    limiter = ConnectionLimiter(per_client=2, total=100)
    listener = Listener(web.Application(), Limits())
    network = [Guard(listener, f"2001:db8::{number:x}") for number in range(5)]
    others = [Guard(listener, address) for address in ("2001:db8:0:1::1", "10.0.0.1", "10.0.0.2", "fe80::1%eth0")]
    for each in (*others, *network):
        limiter.add(each)
    assert limiter.connections() == [*others, *network[-2:]]


async def test_a_handler_that_does_not_end_keeps_no_server_from_ending() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def stubborn(_request: web.Request) -> web.Response:
        begun.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        return response(200, b"")

    application = web.Application()
    application.router.add_post("/stubborn", stubborn)
    listener = Listener(application, LIMITS)
    await listener.listen("127.0.0.1:0", None, "--listen")
    _, writer = await asyncio.open_connection(*listener.address.split(":"))
    writer.write(head(0, "/stubborn"))
    await asyncio.wait_for(begun.wait(), PATIENCE)
    try:
        await asyncio.wait_for(listener.shutdown(0.0), PATIENCE)
    finally:
        release.set()
        writer.transport.abort()
