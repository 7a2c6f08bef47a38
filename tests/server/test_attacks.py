"""Clients that mean harm, over real TLS: what they get is a refusal, what the others get is an answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import resource
import select
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import known, launcher_pod, review, vm, vmi
from tests.e2e.support.processes import free_port
from tests.server.conftest import Running, SlowCluster, Start
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, until
from webhook.review.endpoints import BY_PATH
from webhook.server import app, connection
from webhook.server.app import MAX_BODY
from webhook.server.budget import EVERYDAY, LANE, Budget
from webhook.server.lifecycle import split_address
from webhook.server.tls import context

ROOT = Path(__file__).parents[2]
VMS = "/mutate/scheduling/virtualmachines/enforce"
REQUEST = head(len(BODY)) + BODY
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(server: Running, trust: ssl.SSLContext | None = None) -> Stream:
    host, port = split_address(server.address)
    return await asyncio.open_connection(host, port, ssl=trust or server.trust, server_hostname="localhost")


async def status(stream: Stream) -> int:
    """Of the next answer; 0: there is none. The connection is ended."""
    reader, writer = stream
    try:
        return int((await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)).split()[1])
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        return 0
    finally:
        writer.transport.abort()


async def sent(server: Running, data: bytes) -> int:
    """The status that bytes get."""
    stream = await connect(server)
    stream[1].write(data)
    return await status(stream)


async def unharmed(server: Running) -> None:
    """The next client is served, nothing is held by those before, and we have no bug."""
    assert (await server.post(PODS, BODY))[0] == 200
    await until(lambda: server.app.in_flight == 0, "requests to end")
    assert server.app.bodies.taken_bytes == 0
    assert server.counted.crashes == []


# -- memory ------------------------------------------------------------------------------------------------------------


async def test_large_bodies_have_memory_for_four_and_never_delay_everyday_ones(start: Start) -> None:
    server = await start()
    slow = [await connect(server) for _ in range(LANE // MAX_BODY)]
    for _, writer in slow:
        writer.write(head(MAX_BODY, PODS + "?timeout=30s") + b" " * EVERYDAY)
    await until(lambda: server.app.bodies.taken_bytes == len(slow) * MAX_BODY, "all of them to be read")

    assert await sent(server, head(MAX_BODY, PODS + "?timeout=200ms") + b" " * EVERYDAY) == 429
    chunked = head(0, PODS + "?timeout=200ms").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    assert await sent(server, chunked + b"10000\r\n") == 429, "chunks of which nobody knows how many will come"
    assert (await server.post(PODS, BODY))[0] == 200
    assert server.app.bodies.taken_bytes == len(slow) * MAX_BODY

    waiting = asyncio.create_task(sent(server, head(MAX_BODY) + b" " * MAX_BODY))
    for _, writer in slow:
        writer.transport.abort()
    assert await waiting == 400, "judged, and found to be no JSON"
    await unharmed(server)


async def test_announced_bodies_take_nothing_before_they_come(start: Start) -> None:
    server = await start()
    streams = [await connect(server) for _ in range(20)]
    for _, writer in streams:
        writer.write(head(EVERYDAY, PODS + "?timeout=30s") + b" " * 1000)
    await until(lambda: server.app.in_flight == 20, "all of them to begin")
    await asyncio.sleep(0.05)

    assert server.app.bodies.taken_bytes <= 20 * 1000
    for _, writer in streams:
        writer.transport.abort()
    await unharmed(server)


async def test_everyday_bodies_have_a_limit_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "Budget", lambda: Budget(4 * EVERYDAY))
    cluster = SlowCluster(known(vmi()), peeked=set())
    server = await start(cluster, max_in_flight=1)
    body = BODY + b" " * (EVERYDAY - len(BODY))
    first = asyncio.create_task(sent(server, head(len(body), PODS + "?timeout=30s") + body))
    await until(lambda: cluster.waiting, "the first to be judged")
    others = [await connect(server) for _ in range(6)]
    for _, writer in others:
        writer.write(head(len(body), PODS + "?timeout=700ms") + body)
    statuses = await asyncio.gather(*(status(stream) for stream in others))
    cluster.release.set()

    assert (statuses, await first) == ([429] * 6, 200)
    await unharmed(server)


async def test_a_body_that_trickles_has_its_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "ARRIVAL", 0.1)
    server = await start()

    assert await sent(server, head(len(BODY), PODS + "?timeout=30s") + BODY[:100]) == 408
    await unharmed(server)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity", "nonsense"])
async def test_compressed_bodies_are_not_unpacked(start: Start, encoding: str) -> None:
    server = await start()
    bomb = gzip.compress(b" " * 100_000_000)
    assert len(bomb) < EVERYDAY

    answer = await server.post(PODS, bomb, **{"Content-Encoding": encoding})
    assert answer == (415, "the body is encoded; send JSON as it is\n")
    await unharmed(server)


async def test_a_client_that_never_reads_gets_no_endless_answers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED", 0.3)
    server = await start()
    _, writer = await connect_without_reading(server)

    async def flood() -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(REQUEST * 50)
                await writer.drain()

    flooding = asyncio.create_task(flood())
    await until(lambda: server.counted.requests and not server.server.connections, "the client to be cut off")
    flooding.cancel()
    writer.transport.abort()
    await unharmed(server)


async def test_a_client_that_reads_late_gets_all_its_answers(start: Start) -> None:
    server = await start()
    reader, writer = await connect_without_reading(server)
    count = 2000
    writing = asyncio.create_task(_written(writer, REQUEST * count))
    await until(lambda: any(each.writing_paused for each in server.server.connections), "answers to lie there")
    assert len(server.counted.requests) < count
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(count):
        await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200 OK"), PATIENCE)
    await writing
    writer.transport.abort()
    await unharmed(server)


async def connect_without_reading(server: Running) -> Stream:
    """A connection that is soon full of answers: the server's buffer is small.

    The client's is as the kernel makes it. One that is made smaller than the window that was promised lets the kernel
    drop segments, and each is sent again only after a timer that doubles: a minute for what takes a second.
    """
    stream = await connect(server)
    stream[0]._transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: server.server.connections, "the server to know it")
    (theirs,) = server.server.connections
    assert theirs.transport
    theirs.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    return stream


async def _written(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


# -- connections -------------------------------------------------------------------------------------------------------


async def test_connections_that_say_nothing_are_in_nobodys_way(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "KEEP_ALIVE", 0.5)
    server = await start()
    idle = []
    for number in range(100):
        idle.append(await connect(server))
        # Nothing; half a request line; headers without an end. At once: the first may be closed before the last come.
        idle[-1][1].write((b"", b"POST /mu", b"POST / HTTP/1.1\r\nHost: x\r\nA: b\r\n")[number % 3])
    # Not by the client that keeps its connection: that would be closed with the others, just when it is used again.
    assert await sent(server, REQUEST) == 200

    ends = [await asyncio.wait_for(reader.read(), PATIENCE) for reader, _ in idle]
    assert ends == [b""] * len(idle), "closed in time, one and all"
    for _, writer in idle:
        writer.transport.abort()
    await unharmed(server)


async def test_connections_that_break_anywhere_leave_nothing(start: Start) -> None:
    server = await start()
    for cut in (1, 20, len(REQUEST) - len(BODY), len(REQUEST) - 1, len(REQUEST)):
        for _ in range(10):
            _, writer = await connect(server)
            writer.write(REQUEST[:cut])
            await asyncio.sleep(0)
            writer.transport.abort()
    await until(lambda: len(server.server.connections) <= 1, "broken connections to be forgotten")
    await unharmed(server)


@pytest.mark.parametrize(
    "data",
    [
        b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(5000)) + b"\r\n",
        head(len(BODY), extra="Content-Length: 5\r\n") + BODY,
        head(len(BODY), extra="Transfer-Encoding: chunked\r\n") + BODY,
        head(-1),
        head(0).replace(b"Content-Length: 0", b"Content-Length: " + b"9" * 5000),
        head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"f" * 5000 + b"\r\n",
        head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"zz\r\n",
        head(0, extra="X: \x00\r\n"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\xff\xfe" * 50 + b"\r\n\r\n",
    ],
    ids=[
        *("path", "header", "headers", "two-lengths", "length-and-chunks", "negative", "huge-length"),
        *("huge-chunk", "no-chunk", "nul", "http2", "binary"),
    ],
)
async def test_floods_and_nonsense_in_heads(start: Start, data: bytes) -> None:
    server = await start()

    assert await sent(server, data) in (400, 413)
    assert server.counted.requests == []
    await unharmed(server)


async def test_odd_but_legal_heads(start: Start) -> None:
    server = await start()
    upgrade = head(len(BODY), extra="Connection: Upgrade\r\nUpgrade: websocket\r\n")
    assert await sent(server, upgrade + BODY) == 200
    assert await sent(server, head(len(BODY), PODS + "?timeout=" + "9" * 4000 + "s") + BODY) == 200
    assert await sent(server, b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n") == 404
    assert await sent(server, b"GET http://other/ HTTP/1.1\r\nHost: x\r\n\r\n") == 404
    assert await sent(server, head(len(BODY), "/%2e%2e/\xe4") + BODY) == 400
    await unharmed(server)


# -- bodies ------------------------------------------------------------------------------------------------------------


def _hostile() -> Iterator[bytes]:
    """Reviews with something in them that no API server sends."""
    for opener, closer in (("[", "]"), ('{"a":', "}")):
        for depth in (900, 1100, 100_000):
            yield opener.encode() * depth + b"1" + closer.encode() * depth
    yield from (b"9" * 100_000, b"1e999999", b"-0", b"1E-999999", b"NaN", b"Infinity", b'"\\ud800"', b'"\\u0000"')
    yield b'{"a":1,' + b'"a":1,' * 10_000 + b'"a":1}'
    yield b'"' + b"\xf0\x9f\x98\x80" * 10_000 + b'"'
    yield from (b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b"\xef\xbb\xbf1", b"1".decode().encode("utf-16"))


@pytest.mark.parametrize(
    "where", ["spec.template.spec.domain", "metadata.labels", "metadata.annotations.a", "status", "^.namespace"]
)
async def test_hostile_values_get_a_4xx_or_an_ordinary_answer(start: Start, where: str) -> None:
    server = await start()
    holder = review(vm())
    *way, last = where.split(".")
    place: dict[str, Any] = holder["request"]["object"]
    for name in way:
        place = holder["request"] if name == "^" else place.setdefault(name, {})
    place[last] = "@@"
    frame = json.dumps(holder).encode()
    for value in _hostile():
        code, text = await server.post(VMS, frame.replace(b'"@@"', value))
        assert code in (200, 400), (value[:40], code)
        assert text.count("\n") <= 1
        if where == "^.namespace" and (b"\xff" in value or len(value) > 200_000):
            assert code == 400, "there is no answer without the envelope"
        elif b"\xff" in value or len(value) > 200_000:
            # What a tenant may have written: with a 4xx a failurePolicy of Ignore would admit it in silence.
            answer = json.loads(text)["response"]
            assert (code, answer["allowed"]) == (200, True)
            assert any(warning.endswith("[invalid-object]") for warning in answer["warnings"])
    await unharmed(server)


@pytest.mark.parametrize("path", sorted(BY_PATH))
async def test_mutilated_reviews_are_never_a_bug(start: Start, path: str) -> None:
    server = await start()
    dice = random.Random(path)
    whole = msgspec.json.encode(review(vm() if "virtualmachines/" in path else launcher_pod()))
    for _ in range(15):
        body = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(body))
            body[at : at + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
        assert (await server.post(path, bytes(body)))[0] in (200, 400)
    await unharmed(server)


# -- TLS ---------------------------------------------------------------------------------------------------------------


def client_hello(name: str = "localhost", alpn: tuple[str, ...] = ("http/1.1",)) -> bytes:
    """What a client says first."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.set_alpn_protocols(list(alpn))
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        trust.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


async def plain(server: Running, data: bytes, *, eof: bool = False) -> bytes:
    """What somebody gets who sends bytes that are no TLS; he ends."""
    host, port = split_address(server.address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(data)
    if eof:
        writer.write_eof()
    try:
        async with asyncio.timeout(0.05 if not eof else PATIENCE):
            return await reader.read()
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.transport.abort()


async def test_handshakes_that_are_none(start: Start) -> None:
    server = await start()
    dice = random.Random(1)
    hello = client_hello()
    truncated = [hello[: len(hello) * n // 12] for n in range(12)]
    changed = []
    for _ in range(30):
        copy = bytearray(hello)
        for _ in range(3):
            copy[dice.randrange(5, len(copy))] = dice.randrange(256)
        changed.append(bytes(copy))
    records = [
        b"\x16\x03\x01\xff\xff" + dice.randbytes(20_000),
        b"\x16\x03\x01\x00\x00" * 1000,
        b"\x80\x2e\x01\x00\x02",
    ]
    for data in [*truncated, *changed, *records, *(dice.randbytes(dice.randrange(1, 3000)) for _ in range(30))]:
        answer = await plain(server, data, eof=True)
        # An alert, or for a hello that still makes sense the server's own; never anything of ours.
        assert answer[:1] in (b"", b"\x15", b"\x16")
        assert b"HTTP" not in answer
    assert await plain(server, REQUEST, eof=True) in (
        b"",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"\x15\x03\x01\x00\x02\x02\x50",
    )
    await until(lambda: len(server.server.connections) == 0, "nobody to have come through")
    await unharmed(server)


async def test_names_and_protocols_that_we_do_not_have(start: Start) -> None:
    server = await start()
    server.trust.check_hostname = False
    host, port = split_address(server.address)
    for name in ("a" * 63 + "." + "b" * 63, "xn--80ak6aa92e.com", "192.0.2.1", "*.example", "-", "a b", None):
        with suppress(ssl.SSLError, ConnectionError):
            stream = await asyncio.open_connection(host, port, ssl=server.trust, server_hostname=name or "")
            stream[1].write(REQUEST)
            assert await status(stream) == 200, "names decide nothing here"
    other = ssl.create_default_context(cadata=server.pair.authority.decode())
    other.set_alpn_protocols(["h2", "nonsense"])
    stream = await connect(server, other)
    assert stream[1].get_extra_info("ssl_object").selected_alpn_protocol() is None
    stream[1].write(REQUEST)
    assert await status(stream) == 200, "as Go's servers do where a client names no protocol that they have"
    await unharmed(server)


async def test_renegotiation_is_refused(start: Start) -> None:
    assert context().options & ssl.OP_NO_RENEGOTIATION
    client = shutil.which("openssl")
    if not client:
        pytest.skip("no openssl on this machine, and Python's client can't ask for it")
    server = await start()
    asking = await asyncio.create_subprocess_exec(
        *(client, "s_client", "-connect", server.address, "-tls1_2"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(asking.communicate(b"R\n"), PATIENCE)
    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said
    await unharmed(server)


# -- the process -------------------------------------------------------------------------------------------------------


@contextmanager
def process(files: int, stdout: int, stderr: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server that may open so many files, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "webhook", "serve", f"--cluster-from={ROOT / 'examples/cluster'}"]
    command += [f"--config={ROOT / 'examples/settings.yaml'}", f"--listen=127.0.0.1:{port}", "--ops-listen=127.0.0.1:0"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, 40), files))

    # Set by the child itself: a limit of ours would be one of all tests.
    with subprocess.Popen(command, stdout=stdout, stderr=stderr, preexec_fn=limit) as running:  # noqa: PLW1509
        try:
            yield running, port
        finally:
            running.kill()


def ask(port: int, body: bytes = BODY) -> int:
    """The status of a review; 0: no connection."""
    trust = ssl._create_unverified_context()
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain_socket,
            trust.wrap_socket(plain_socket) as encrypted,
        ):
            # Else the request waits for the handshake's acknowledgement, which takes its 40 ms.
            encrypted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            encrypted.sendall(head(len(body)) + body)
            return int(encrypted.recv(100).split()[1])
    except (OSError, IndexError):
        return 0


def eventually(check: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not (done := check()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return done


def test_full_disks_and_files_that_run_out_stop_nothing() -> None:
    """Standard output and error on a full disk; more connections than files, which are raised to what we may have."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with process(120, full, full) as (running, port):
            assert eventually(lambda: ask(port) == 200)
            assert all(ask(port) == 200 for _ in range(20))
            # More than the 40 that it was started with.
            idle = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(60)]
            assert ask(port) == 200
            idle += [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(100)]
            assert running.poll() is None
            for each in idle:
                each.close()
            assert eventually(lambda: ask(port) == 200), "served again as soon as there are files"
            assert running.poll() is None
    finally:
        os.close(full)


def test_a_reader_of_audit_lines_that_hangs_stops_nothing() -> None:
    reading, writing = os.pipe()
    try:
        with process(1000, writing, subprocess.DEVNULL) as (running, port):
            assert eventually(lambda: ask(port) == 200)
            # Far more than a pipe holds.
            assert all(ask(port) == 200 for _ in range(150))
            assert eventually(lambda: not select.select((), (writing,), (), 0)[1]), "a thread fills the pipe"
            assert running.poll() is None
    finally:
        os.close(reading)
        os.close(writing)
