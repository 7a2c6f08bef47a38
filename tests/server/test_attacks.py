"""Malicious clients over real TLS: they get errors, and all other clients get answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import pytest

from tests.builders import AVAILABLE, VMI_UID, known, launcher_pod, namespace, review, vm, vmi
from tests.golden_files import Golden
from tests.server.conftest import REQUEST, ServedApp, SlowCluster, Start, Stream, connect, sent, status, unharmed
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, until
from webhook.admission.reasons import common
from webhook.facts import NamespaceKey, SchedulerKey, VmiKey
from webhook.policies.scheduling import reasons as scheduling
from webhook.server import app, guard
from webhook.server.app import MAX_BODY
from webhook.server.bodies import EVERYDAY_BYTES as EVERYDAY
from webhook.server.bodies import PREFIX_BYTES

pytestmark = pytest.mark.repeats

VMS = "/mutate/scheduling/virtualmachines/enforce"
VM_RULES = "/validate/instancetypes/virtualmachines/enforce"


@pytest.fixture
async def server(start: Start) -> AsyncIterator[ServedApp]:
    """A server that must be unharmed after the test."""
    server = await start()
    yield server
    await unharmed(server)


@pytest.mark.control("floods")
async def test_large_bodies_have_memory_for_four_and_never_delay_everyday_ones(server: ServedApp) -> None:
    slow = [await connect(server) for _ in range(2)]
    for _, writer in slow:
        writer.write(head(MAX_BODY, PODS + "?timeout=30s") + b" " * EVERYDAY)
    await until(lambda: server.app.request_bytes == len(slow) * MAX_BODY, "both of them to be read")

    assert await sent(server, head(MAX_BODY, PODS + "?timeout=200ms") + b" " * EVERYDAY) == 429
    chunked = head(0, PODS + "?timeout=200ms").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    assert await sent(server, chunked + b"10000\r\n" + b" " * PREFIX_BYTES) == 411, (
        "chunks of which nobody knows how many will come"
    )
    assert ((await server.post(PODS, BODY))[0], server.app.request_bytes) == (200, len(slow) * MAX_BODY)

    waiting = asyncio.create_task(sent(server, head(MAX_BODY) + b" " * MAX_BODY))
    for _, writer in slow:
        writer.transport.abort()
    assert await waiting == 400, "evaluated, and found not to be JSON"


async def test_announced_bodies_take_nothing_before_they_come(server: ServedApp) -> None:
    streams = [await connect(server) for _ in range(20)]
    for _, writer in streams:
        writer.write(head(EVERYDAY, PODS + "?timeout=30s") + b" " * 1000)
    await until(lambda: server.server.in_flight == 20, "all of them to begin")
    assert server.app.request_bytes <= 20 * (1000 + len(head(EVERYDAY, PODS + "?timeout=30s")))
    for _, writer in streams:
        writer.transport.abort()


async def test_everyday_bodies_have_a_limit_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LIMITS", msgspec.structs.replace(app.LIMITS, counted_bytes=4 * EVERYDAY))
    cluster = SlowCluster(known(vmi()), peeked=set())
    server = await start(cluster, max_in_flight=1)
    body = b" " * (EVERYDAY - 1)
    first = asyncio.create_task(sent(server, REQUEST))
    await until(lambda: cluster.waiting, "the first to be evaluated")
    others = [await connect(server) for _ in range(6)]
    for _, writer in others:
        writer.write(head(len(body) + 1, PODS) + body)
    await until(lambda: server.app.request_bytes > 3 * EVERYDAY, "most of them to arrive")
    statuses = await asyncio.gather(*(status(stream) for stream in others))
    cluster.release.set()

    assert await first == 200
    assert 1 <= statuses.count(429) <= 3, "those that the memory is not enough for"
    assert set(statuses) == {408, 429}
    await unharmed(server)


async def test_bodies_that_wait_for_their_answers_deny_no_other_client(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client's reviews take all of the memory and wait for look-ups; a review of another client comes in pieces."""
    monkeypatch.setattr(app, "LIMITS", msgspec.structs.replace(app.LIMITS, counted_bytes=3 * EVERYDAY))
    facts = known(vmi()) | {NamespaceKey("shop"): namespace(), VmiKey("shop", "web01", VMI_UID): vmi()}
    facts |= {SchedulerKey("kubevirt", "shop"): AVAILABLE}
    cluster = SlowCluster(facts, peeked={*facts} - {VmiKey("demo", "web01", VMI_UID)})
    server = await start(cluster)
    large, small = launcher_pod(), launcher_pod()
    large["metadata"]["annotations"] = {"padding": "x" * (EVERYDAY - 10_000)}
    small["metadata"]["annotations"] = {"padding": "x" * 40_000}
    body, honest = msgspec.json.encode(review(large)), msgspec.json.encode(review(small, namespace="shop"))
    attackers = [await connect(server, source="127.0.0.2") for _ in range(3)]
    for _, writer in attackers:
        writer.write(head(len(body), PODS + "?timeout=30s") + body)
    await until(lambda: cluster.waiting == len(attackers), "look-ups to begin")
    stream = await connect(server)
    stream[1].write(head(len(honest), PODS + "?timeout=30s") + honest[:-1])
    await until(lambda: server.kept.records, "one of them to be given up")
    stream[1].write(honest[-1:])

    assert await status(stream) == 200
    assert [record.reasons[0].code for record in server.kept.records] == [common.OVERLOADED, scheduling.INJECTED]
    cluster.release.set()
    assert [await status(stream) for stream in attackers] == [200] * 3
    await unharmed(server)


@cache
def bomb() -> bytes:
    return gzip.compress(b" " * 100_000_000)


@pytest.mark.control("floods")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity", "nonsense"])
async def test_compressed_bodies_are_not_unpacked(server: ServedApp, encoding: str, golden: Golden) -> None:
    assert len(bomb()) < EVERYDAY
    answer = await server.post(PODS, bomb(), **{"Content-Encoding": encoding})
    assert answer[0] == 415
    golden(answer[1])


@pytest.mark.control("floods", "pipelined-requests")
async def test_a_client_that_never_reads_gets_no_endless_answers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "STALLED_SECONDS", 0.3)
    server = await start()
    _, writer = await connect_without_reading(server)

    async def flood() -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(REQUEST * 50)
                await writer.drain()

    flooding = asyncio.create_task(flood())
    await until(lambda: server.counted.requests and not server.server.open, "the client to be cut off")
    flooding.cancel()
    writer.transport.abort()
    await unharmed(server)


async def test_a_client_that_reads_late_gets_all_its_answers(server: ServedApp) -> None:
    reader, writer = await connect_without_reading(server)
    count = 0

    def send() -> None:
        nonlocal count
        writer.write(REQUEST * 500)
        count += 500

    def is_stalled() -> bool:
        return any(each.is_stalled for each in server.server.open)

    # How many answers the kernel takes before they lie in the server is the kernel's choice.
    while not is_stalled():
        send()
        await until(lambda: is_stalled() or len(server.counted.requests) >= count, "answers to lie there")
    send()
    assert len(server.counted.requests) < count
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(count):
        await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200 OK"), PATIENCE)
    writer.transport.abort()


async def connect_without_reading(server: ServedApp) -> Stream:
    """A connection that is soon full of answers: the server's buffer is small.

    The client's is as the kernel makes it. One that is made smaller than the window that was promised lets the kernel
    drop segments, and each is sent again only after a timer that doubles: a minute for what takes a second.
    """
    stream = await connect(server)
    stream[0]._transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: server.server.open, "the server to know it")
    (theirs,) = server.server.open
    assert theirs.transport
    theirs.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    return stream


@pytest.mark.control("heads-without-end")
async def test_connections_that_say_nothing_are_in_nobodys_way(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LIMITS", msgspec.structs.replace(app.LIMITS, keep_alive_seconds=0.5))
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


async def test_connections_that_break_anywhere_leave_nothing(server: ServedApp) -> None:
    for cut in (1, 20, len(REQUEST) - len(BODY), len(REQUEST) - 1, len(REQUEST)):
        for _ in range(10):
            _, writer = await connect(server)
            writer.write(REQUEST[:cut])
            await asyncio.sleep(0)
            writer.transport.abort()
    await until(lambda: len(server.server.open) <= 1, "broken connections to be forgotten")


CHUNKED = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")


@pytest.mark.control("floods")
async def test_floods_and_nonsense_in_heads(server: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (
        b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(5000)) + b"\r\n",
        head(len(BODY), extra="Content-Length: 5\r\n") + BODY,
        head(len(BODY), extra="Transfer-Encoding: chunked\r\n") + BODY,
        head(-1),
        head(0).replace(b"Content-Length: 0", b"Content-Length: " + b"9" * 5000),
        CHUNKED + b"f" * 5000 + b"\r\n",
        CHUNKED + b"zz\r\n",
        head(0, extra="X: \x00\r\n"),
        b"\xff\xfe" * 50 + b"\r\n\r\n",
    ):
        assert await sent(server, data) in (400, 411, 413, 431), data[:60]
    # llhttp takes it for the beginning of HTTP/2, which nothing here speaks: no request begins.
    monkeypatch.setattr(guard, "HEAD_SECONDS", 0.2)
    assert await sent(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == 0
    assert {status for _, status in server.counted.requests} <= {411}, "chunks that are none"


def _hostile() -> Iterator[bytes]:
    """Reviews with something in them that no API server sends."""
    for opener, closer in (("[", "]"), ('{"a":', "}")):
        # From Python 3.14 on, what can be decoded depends on the stack, not on a count.
        for depth in (900, 1100, 1_000_000):
            yield opener.encode() * depth + b"1" + closer.encode() * depth
    yield from (b"9" * 100_000, b"1e999999", b"-0", b"1E-999999", b"NaN", b"Infinity", b'"\\ud800"', b'"\\u0000"')
    yield b'{"a":1,' + b'"a":1,' * 10_000 + b'"a":1}'
    yield b'"' + b"\xf0\x9f\x98\x80" * 10_000 + b'"'
    yield from (b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b"\xef\xbb\xbf1", b"1".decode().encode("utf-16"))


@pytest.mark.parametrize(
    "where", ["spec.template.spec.domain", "metadata.labels", "metadata.annotations.a", "status", "^.namespace"]
)
async def test_hostile_values_get_a_4xx_or_an_ordinary_answer(server: ServedApp, where: str) -> None:
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
            # A tenant may have written this: with a 4xx, failurePolicy Ignore would allow it silently.
            answer = json.loads(text)["response"]
            assert (code, answer["allowed"]) == (200, True)
            assert any(warning.endswith("[invalid-object]") for warning in answer["warnings"])


async def test_mutilated_reviews_are_never_a_bug(server: ServedApp) -> None:
    """Of a few endpoints; tests/fuzz does the same to each of them without HTTP."""
    for path in (PODS, VMS, VM_RULES):
        dice = random.Random(path)
        whole = msgspec.json.encode(review(launcher_pod() if path == PODS else vm()))
        for _ in range(15):
            body = bytearray(whole)
            for _ in range(dice.randint(1, 4)):
                at = dice.randrange(len(body))
                body[at : at + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
            assert (await server.post(path, bytes(body)))[0] in (200, 400)
