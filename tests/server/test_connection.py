"""How long connections last, and who may use them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from aiohttp import web

from certs.authority import Authority
from certs.pem import Pair
from certs.source import self_signed
from tests.builders import known, opted_in, vmi
from tests.e2e.support.pki import Pki
from tests.golden_files import Golden
from tests.policies.migration import world as migrations
from tests.review.memory import MemoryCluster
from tests.server.conftest import (
    LAST,
    REQUEST,
    ServedApp,
    SlowCluster,
    Start,
    Stream,
    ask,
    connect,
    everything,
    status,
    unharmed,
    working,
)
from tests.server.raw_requests import head
from tests.server.test_senders import KEY, OWN, URL, KeyTransport
from tests.tokens import claims, key_set, sign
from tests.waiting import PATIENCE, until
from webhook import names
from webhook.errors import InputError
from webhook.server import guard
from webhook.server.app import LIMITS
from webhook.server.guard import Client, ConnectionLimiter, Guard, Limits
from webhook.server.layer_scores.extender import LIMITS as EXTENDER_LIMITS
from webhook.server.listener import Listener, serving, split_address
from webhook.server.senders import SenderVerifier
from webhook.server.tls import ReloadableTLSContext, context

MIGRATIONS = "/validate/migration/virtualmachineinstancemigrations/enforce"
WORLD = migrations.facts(may=[("list", "nodes")]) | opted_in(names.MIGRATION)


async def test_an_old_connection_ends_with_an_answer_that_says_so(server: ServedApp) -> None:
    old, failing = await connect(server), await connect(server)
    for _ in range(2):
        assert not (await ask(old)).is_last
    server.server.recycle()
    last, error = await ask(old), await ask(failing, REQUEST.replace(b"POST", b"PUT"))
    assert (last.status, last.is_last, error.status, error.is_last) == (200, True, 405, True)
    assert await old[0].read() == await failing[0].read() == b"", "closed by the server, after the answer"
    later = await connect(server)
    assert not (await ask(later)).is_last
    for _, writer in (old, failing, later):
        writer.close()


async def test_ages_differ(server: ServedApp) -> None:
    assert LIMITS.keep_alive_seconds > 90, "net/http keeps idle connections for 90 s"
    for limits in (LIMITS, EXTENDER_LIMITS, Limits()):
        last = limits.lifetime_seconds * (1 + guard.JITTER)
        assert last < limits.abort_seconds, "its last answer says so before it is cut"
    streams = [await connect(server) for _ in range(8)]
    for stream in streams:
        await ask(stream)
    now = asyncio.get_running_loop().time()
    ages = {connection.closes_at - now for connection in server.server.open}
    assert len(ages) == 8
    least, most = LIMITS.lifetime_seconds * (1 - guard.JITTER) - 10, LIMITS.lifetime_seconds * (1 + guard.JITTER)
    assert all(least < age <= most for age in ages)
    for _, writer in streams:
        writer.close()


async def test_while_draining_every_answer_is_the_last_on_its_connection(server: ServedApp) -> None:
    before = await connect(server)
    await ask(before)
    begin = asyncio.get_running_loop().time()
    await server.server.begin_shutdown(0.05)
    assert asyncio.get_running_loop().time() - begin >= 0.05
    for stream in (before, await connect(server)):
        answer = await ask(stream)
        assert (answer.status, answer.is_last) == (200, True), "still served"
        assert await stream[0].read() == b""
        stream[1].close()


class ConnectedClients:
    """A server that verifies clients, and certificates for them."""

    def __init__(self, directory: Path) -> None:
        self.pair = self_signed(["localhost"])
        self.pki, self.unknown = Pki(directory / "pki"), Pki(directory / "strangers")
        self.tls = ReloadableTLSContext(self.pair.certificate, self.pair.key, self.pki.ca.read_bytes())

    def trust(self, pem: Path | None, pair: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=(pair or self.pair).authority.decode())
        if pem:
            context.load_cert_chain(pem)
        return context


@pytest.fixture
def clients(tmp_path: Path) -> ConnectedClients:
    return ConnectedClients(tmp_path)


async def answer(server: ServedApp, trust: ssl.SSLContext) -> tuple[int, str]:
    """The status and the body; 0: the connection ended without an answer, with or without an alert."""
    try:
        said, _, body = (await everything(server, LAST, trust)).decode().partition("\r\n\r\n")
    except (ssl.SSLError, ConnectionError):
        said, body = "", ""
    return (int(said.split()[1]), body) if said else (0, "")


@pytest.mark.control("strangers-send-reviews", "invented-objects")
async def test_only_named_clients_are_answered(start: Start, clients: ConnectedClients, golden: Golden) -> None:
    server = await start(swappable=clients.tls, clients=("apiserver", "other"))
    assert (await answer(server, clients.trust(clients.pki.client("apiserver"))))[0] == 200
    assert (await answer(server, clients.trust(clients.pki.client("other", ["system:masters"]))))[0] == 200
    status, said = await answer(server, clients.trust(None))
    assert status == 403
    golden(said)
    status, said = await answer(server, clients.trust(clients.pki.client("kubelet")))
    assert (status, "and kubelet is none of those" in said) == (403, True)
    assert [status for _, status in server.counted.requests] == [200, 200, 403, 403]


@pytest.mark.control("pods-claim-to-be-admins", "reveals-nodes")
async def test_nodes_are_named_to_a_caller_that_has_proved_who_it_is(start: Start, clients: ConnectedClients) -> None:
    """The sender of the review may list nodes, if it is who the review says."""
    body = msgspec.json.encode(migrations.asking(migrations.migration({"zone": "c"})))
    request = head(len(body), MIGRATIONS, "Connection: close\r\n") + body

    async def told(server: ServedApp, trust: ssl.SSLContext | None = None) -> str:
        said = (await everything(server, request, trust)).partition(b"\r\n\r\n")[2]
        return str(json.loads(said)["response"]["status"]["message"])

    cluster = MemoryCluster(WORLD)
    verifying, anybody = await start(cluster, swappable=clients.tls, clients=("apiserver",)), await start(cluster)
    verified = await told(verifying, clients.trust(clients.pki.client("apiserver")))
    claimed = await told(anybody)

    assert "node-a2, node-b1: without zone=c" in verified
    assert ("4 node(s) without zone=c" in claimed, "node-a" in claimed) == (True, False)
    assert claimed.endswith("[no-eligible-node]")
    for server in (verifying, anybody):
        assert "node-a2" in str(server.kept.records[0].details)


@pytest.mark.control("pods-claim-to-be-admins")
async def test_nodes_are_named_to_a_sender_with_an_api_servers_token_as_long_as_it_counts(
    start: Start, clients: ConnectedClients
) -> None:
    """On one connection: a token counts for the requests that have it, from when its key is known until it expires."""
    body = msgspec.json.encode(migrations.asking(migrations.migration({"zone": "c"})))
    server = await start(MemoryCluster(WORLD))
    server.app.senders = SenderVerifier(URL, OWN)
    stream = await connect(server)

    async def names_nodes(token: str = "") -> bool:
        extra = f"Authorization: Bearer {token}\r\n" if token else ""
        answer = await ask(stream, head(len(body), MIGRATIONS, extra) + body)
        assert answer.status == 200, "no token is no error"
        message = json.loads(answer.body)["response"]["status"]["message"]
        assert ("node-a2, node-b1: without zone=c" in message) == ("node-a" in message)
        return "node-a" in message

    token = sign(KEY, claims(URL + MIGRATIONS, now=time.time(), groups=("kubevirt.io",)))
    assert [await names_nodes(each) for each in (token, token)] == [False, False], "no key is known"
    async with working(server.app.senders.follow(KeyTransport(key_set(k1=KEY)), list[str]().append)):
        await until(lambda: server.app.senders and server.app.senders._keys, "the keys to be read")
    assert [await names_nodes(each) for each in (token, token, "", token, f"{token}A", "")] == [
        *(True, True, False, True, False, False)
    ]
    assert await names_nodes(token)
    (connection,) = server.server.open
    assert connection.verified_token
    assert time.monotonic() < connection.verified_token.until < time.monotonic() + 600
    connection.verified_token = connection.verified_token._replace(until=time.monotonic())
    assert not await names_nodes(token), "expired since"
    stream[1].close()

    # Where a certificate is needed, no token stands for it.
    strict = await start(MemoryCluster(WORLD), swappable=clients.tls, clients=("apiserver",))
    strict.app.senders = server.app.senders
    request = head(len(body), MIGRATIONS, f"Authorization: Bearer {token}\r\nConnection: close\r\n") + body
    assert (await everything(strict, request, clients.trust(None))).startswith(b"HTTP/1.1 403 ")


@pytest.mark.control("strangers-send-reviews")
async def test_a_stranger_does_not_get_through_the_handshake(start: Start, clients: ConnectedClients) -> None:
    server = await start(swappable=clients.tls, clients=("apiserver",))
    assert (await answer(server, clients.trust(clients.unknown.client("apiserver"))))[0] == 0
    # In TLS 1.2 a client could resume a session.
    old = clients.trust(clients.pki.client("apiserver"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert ((await answer(server, old))[0], server.counted.requests) == (0, [])


async def test_clients_are_verified_across_swaps(start: Start, clients: ConnectedClients) -> None:
    server = await start(swappable=clients.tls, clients=("apiserver",))
    life = (datetime.now(UTC), timedelta(days=1))
    pair = Authority.new(["localhost"], *life).issue(["localhost"], *life)
    clients.tls.swap(pair.certificate, pair.key)
    mine, strange = clients.pki.client("apiserver"), clients.unknown.client("apiserver")
    assert (await answer(server, clients.trust(mine, pair)))[0] == 200
    assert (await answer(server, clients.trust(None, pair)))[0] == 403

    clients.tls.trust(clients.unknown.ca.read_bytes())
    assert (await answer(server, clients.trust(strange, pair)))[0] == 200
    assert (await answer(server, clients.trust(mine, pair)))[0] == 0
    for bad in (b"\xff", b"nothing"):
        with pytest.raises(ssl.SSLError):
            clients.tls.trust(bad)
    assert (await answer(server, clients.trust(strange, pair)))[0] == 200, "what was refused changed nothing"


@pytest.mark.parametrize("name", ["localhost", None])
async def test_another_certificate_is_for_new_handshakes_and_a_bad_one_for_none(start: Start, name: str | None) -> None:
    first, second = self_signed(["localhost"]), self_signed(["localhost"])
    swappable = ReloadableTLSContext(first.certificate, first.key)
    server = await start(swappable=swappable)

    async def connected(pair: Pair) -> Stream:
        context = ssl.create_default_context(cadata=pair.authority.decode())
        context.check_hostname = name is not None
        return await asyncio.open_connection(*split_address(server.address), ssl=context, server_hostname=name or "")

    streams = [await connected(first)]
    with pytest.raises(ssl.SSLError):
        swappable.swap(first.certificate, second.key)
    streams.append(await connected(first))
    swappable.swap(second.certificate, second.key)
    streams.append(await connected(second))
    with pytest.raises(ssl.SSLCertVerificationError):
        await connected(first)
    for stream in streams:
        assert (await ask(stream)).status == 200
        stream[1].close()


async def test_without_a_certificate_no_handshake_succeeds() -> None:
    swappable, pair = ReloadableTLSContext(), self_signed(["localhost"])
    trust = ssl.create_default_context(cadata=pair.authority.decode())
    async with serving(
        Listener(web.Application(), Limits()), "127.0.0.1:0", swappable.listener, "--listen", 0.0
    ) as address:
        host, port = split_address(address)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost")
        swappable.swap(pair.certificate, pair.key)
        _, writer = await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost")
        writer.close()
        await writer.wait_closed()


async def test_address_of_another_host() -> None:
    with pytest.raises(InputError, match=r"nothing can listen on 192\.0\.2\.1:8443"):
        await Listener(web.Application(), Limits()).listen("192.0.2.1:8443", None, "--listen")


@pytest.mark.parametrize(
    ("address", "parts"), [("0.0.0.0:8443", ("0.0.0.0", 8443)), ("[::1]:80", ("::1", 80)), (":0", ("", 0))]
)
def test_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", [":0", "localhost:0"])
async def test_every_address_of_a_host_is_listened_on(address: str) -> None:
    async with serving(Listener(web.Application(), Limits()), address, None, "--listen", 0.0) as bound:
        _, writer = await asyncio.open_connection("127.0.0.1", split_address(bound)[1])
        writer.close()


async def plain(server: ServedApp, data: bytes) -> bytes:
    """What a client gets that sends bytes other than TLS, and ends its stream."""
    host, port = split_address(server.address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(data)
    writer.write_eof()
    try:
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def test_handshakes_that_are_none(server: ServedApp) -> None:
    dice = random.Random(1)
    trust, outgoing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO()
    trust.set_alpn_protocols(["http/1.1"])
    with suppress(ssl.SSLWantReadError):
        trust.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    truncated = [hello[: len(hello) * n // 12] for n in range(12)]
    changed = []
    for _ in range(30):
        copy = bytearray(hello)
        for _ in range(3):
            copy[dice.randrange(5, len(copy))] = dice.randrange(256)
        changed.append(bytes(copy))
    records = [b"\x16\x03\x01\xff\xff" + dice.randbytes(20_000), b"\x16\x03\x01\x00\x00" * 1000]
    records.append(b"\x80\x2e\x01\x00\x02")
    for data in [*truncated, *changed, *records, *(dice.randbytes(dice.randrange(1, 3000)) for _ in range(30))]:
        answer = await plain(server, data)
        # An alert, or the server's own hello if the client's still makes sense; never output of the application.
        assert answer[:1] in (b"", b"\x15", b"\x16")
        assert b"HTTP" not in answer
    assert await plain(server, REQUEST) in (b"", b"\x15\x03\x01\x00\x02\x02\x46", b"\x15\x03\x01\x00\x02\x02\x50")
    await until(lambda: len(server.server.open) == 0, "nobody to have come through")
    await unharmed(server)


async def test_nonsense_in_place_of_a_record_is_no_internal_error(server: ServedApp) -> None:
    """The error of TLS that ends such a connection is the client's fault, and reaches no handler as it is."""
    stream = await connect(server)
    stream[1].write(REQUEST[:-1])
    await until(lambda: server.app.in_flight == 1, "the review to begin")
    with socket.socket(fileno=os.dup(stream[1].get_extra_info("socket").fileno())) as raw:
        raw.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    await until(lambda: not server.server.open, "the connection to end")
    stream[1].transport.abort()
    await unharmed(server)
    assert [status for _, status in server.counted.requests] == [200], "of a client that has gone, nothing is counted"


@pytest.mark.control("reviews-changed-on-their-way")
async def test_names_and_protocols_that_we_do_not_have(server: ServedApp) -> None:
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


@pytest.mark.control("reviews-changed-on-their-way")
async def test_renegotiation_is_refused(server: ServedApp) -> None:
    assert context().options & ssl.OP_NO_RENEGOTIATION
    client = shutil.which("openssl")
    if not client:
        pytest.skip("no openssl on this machine, and Python's client can't ask for it")
    command, pipe = (client, "s_client", "-connect", server.address, "-tls1_2"), asyncio.subprocess.PIPE
    asking = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    said, _ = await asyncio.wait_for(asking.communicate(b"R\n"), PATIENCE)
    assert [words in said for words in (b"RENEGOTIATING", b"no renegotiation")] == [True, True]
    await unharmed(server)


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


@pytest.fixture
async def limiter() -> ConnectionLimiter:
    return ConnectionLimiter(MAX_CONNECTIONS_PER_CLIENT, MAX_CONNECTIONS)


@pytest.mark.control("idle-ops-connections")
async def test_the_oldest_connection_of_a_client_makes_room_for_its_newest(limiter: ConnectionLimiter) -> None:
    made = [Connected(limiter, "10.0.0.1") for _ in range(MAX_CONNECTIONS_PER_CLIENT + 3)]
    assert [guest.is_cut for guest in made] == [True] * 3 + [False] * MAX_CONNECTIONS_PER_CLIENT


@pytest.mark.control("scrape-floods")
async def test_where_all_are_too_many_the_client_with_most_makes_room(limiter: ConnectionLimiter) -> None:
    greedy = [Connected(limiter, "10.0.0.1") for _ in range(12)]
    others = [Connected(limiter, f"10.0.1.{number}") for number in range(MAX_CONNECTIONS)]
    assert all(guest.is_cut for guest in greedy)
    assert not any(guest.is_cut for guest in others)
    for guest in (*greedy, *others, *greedy):
        limiter.remove(guest)  # type: ignore[arg-type]
    assert limiter.count == 0


async def test_clients_without_connections_are_forgotten(limiter: ConnectionLimiter) -> None:
    for number in range(3000):
        limiter.remove(Connected(limiter, f"10.{number >> 8}.{number & 255}.1"))  # type: ignore[arg-type]
    assert len(limiter._clients) <= 1024


async def test_a_connection_that_is_not_known_leaves(limiter: ConnectionLimiter) -> None:
    foreign: Any = Connected(limiter, "10.0.0.1")
    limiter._clients.clear()
    limiter.remove(foreign)
    assert limiter.count == 1


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


@pytest.mark.control("scrape-floods")
async def test_one_client_that_asks_too_often_takes_no_turn_of_another(
    limiter: ConnectionLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(seconds: float) -> None:
        assert 0 < seconds <= 2

    monkeypatch.setattr("webhook.server.guard.asyncio.sleep", at_once)
    turns = [await limiter.wait("10.0.0.1") for _ in range(5000)]

    assert turns[:39] == [True] * 39
    assert sum(turns) < 50
    assert await limiter.wait("10.0.0.2")


# -- a listener's beginning and end ------------------------------------------------------------------------------------


async def test_the_end_of_a_server_waits_for_what_has_begun(server: ServedApp) -> None:
    """A body that has not come whole, and an idle connection, which ends at once."""
    idle, busy = await connect(server), await connect(server)
    await ask(idle)
    busy[1].write(REQUEST[:-1])
    await until(lambda: server.server.in_flight == 1, "the request to begin")
    ending = asyncio.create_task(server.server.shutdown(PATIENCE))
    assert await asyncio.wait_for(idle[0].read(), PATIENCE) == b""
    assert (await ask(busy, REQUEST[-1:])).is_last
    await ending
    for _, writer in (idle, busy):
        writer.close()


async def test_who_is_in_a_handshake_as_a_server_ends_gets_one_answer(server: ServedApp) -> None:
    """While another request keeps the server from ending."""
    busy, host, port = await connect(server), *split_address(server.address)
    busy[1].write(REQUEST[:-1])
    reader, writer = await asyncio.open_connection(host, port)
    await until(lambda: server.server.in_flight == 1 and server.server.limiter.count == 2, "both to begin")
    ending = asyncio.create_task(server.server.shutdown(PATIENCE))
    await until(lambda: server.server.limiter.connections()[0].closes_at == 0.0, "the end to begin")
    await writer.start_tls(server.trust, server_hostname="localhost")
    assert (await ask((reader, writer))).is_last
    assert (await ask(busy, REQUEST[-1:])).is_last
    await ending
    for each in (writer, busy[1]):
        each.close()


async def test_the_end_of_a_server_ends_what_does_not_end(start: Start) -> None:
    cluster = SlowCluster(known(vmi()), peeked=set())
    server = await start(cluster)
    stream = await connect(server)
    stream[1].write(REQUEST)
    await until(lambda: cluster.waiting, "the look-up to begin")
    await server.server.shutdown(0.01)
    assert await status(stream) == 0
    assert server.server.in_flight == 0


async def test_a_handshake_does_not_outlive_its_server() -> None:
    listener, pair = Listener(web.Application(), Limits()), self_signed(["localhost"])
    await listener.listen("127.0.0.1:0", context(pair.certificate, pair.key), "--listen")
    reader, writer = await asyncio.open_connection(*split_address(listener.address))
    await until(lambda: listener.limiter.count, "the connection to be accepted")
    await listener.shutdown(0.0)
    assert listener.limiter.count == 0
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b"", "closed"
    writer.transport.abort()


@pytest.mark.control("handshakes-while-the-ca-changes")
async def test_who_was_in_a_handshake_is_recycled_too(server: ServedApp) -> None:
    host, port = split_address(server.address)
    reader, writer = await asyncio.open_connection(host, port)
    await until(lambda: server.server.limiter.count, "the connection to be accepted")
    server.server.recycle()
    await writer.start_tls(server.trust, server_hostname="localhost")
    assert (await ask((reader, writer))).is_last
    writer.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_ends_as_it_begins_is_forgotten(
    loop: Callable[[], asyncio.AbstractEventLoop], turns: int
) -> None:
    """Whatever has been done of its beginning when it must make room for others: uvloop has a way of its own."""

    async def run() -> None:
        listener = Listener(web.Application(), Limits())
        accepted, limiter = list[Guard](), listener.limiter
        add = limiter.add

        def end(connection: Guard, left: int) -> None:
            if left:
                asyncio.get_running_loop().call_soon(end, connection, left - 1)
            else:
                connection.abort()

        def added(connection: Guard) -> None:
            add(connection)
            accepted.append(connection)
            end(connection, turns)

        limiter.add = added  # type: ignore[method-assign, assignment]
        await listener.listen("127.0.0.1:0", None, "--listen")
        reader, writer = await asyncio.open_connection(*split_address(listener.address))
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b"", "closed"
        await until(lambda: accepted and not accepted[0].opening)
        await until(lambda: not limiter.count, "it to be forgotten")
        assert listener.open == []
        await listener.shutdown(0.0)
        writer.transport.abort()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
