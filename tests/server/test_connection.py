"""How long connections last, and who may use them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from certs.authority import Authority
from certs.source import Pair, self_signed
from tests.builders import launcher_pod, review
from tests.e2e.support.pki import Pki
from tests.policies.migration import world as migrations
from tests.review.memory import MemoryCluster
from tests.server.conftest import ServedApp, Start
from tests.server.lifetimes import now_and_life
from tests.server.unanswering import Unanswering
from webhook import names
from webhook.facts import NamespaceKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.server.app import LIMITS
from webhook.server.edge import JITTER, split_address
from webhook.server.tls import ReloadableTLSContext

PODS = "/mutate/scheduling/pods/enforce"


MIGRATIONS = "/validate/migration/virtualmachineinstancemigrations/enforce"


OPTED_IN = Namespace(ObjectMeta(name="demo", labels={names.policy_label(names.MIGRATION): names.ENFORCE}))


BODY = msgspec.json.encode(review(launcher_pod()))


REQUEST = (
    f"POST {PODS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
    + BODY
)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(server: ServedApp) -> Stream:
    host, port = split_address(server.address)
    return await asyncio.open_connection(host, port, ssl=server.trust, server_hostname="localhost")


async def ask(stream: Stream, request: bytes = REQUEST) -> str:
    """The head of the answer; the body is read too."""
    reader, writer = stream
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(line for line in head.splitlines() if line.startswith("Content-Length"))
    await reader.readexactly(int(length.partition(":")[2]))
    return head


async def test_an_old_connection_ends_with_an_answer_that_says_so(start: Start) -> None:
    server = await start()
    old, young = await connect(server), await connect(server)
    for _ in range(2):
        assert "Connection: close" not in await ask(old)
    server.server.recycle()

    head = await ask(old)
    assert head.startswith("HTTP/1.1 200 OK")
    assert "Connection: close" in head
    assert await old[0].read() == b"", "closed by us, after the answer"
    later = await connect(server)
    assert "Connection: close" not in await ask(later)
    for _, writer in (old, young, later):
        writer.close()


async def test_errors_end_an_old_connection_too(start: Start) -> None:
    server = await start()
    old = await connect(server)
    server.server.recycle()

    assert "connection: close" in (await ask(old, REQUEST.replace(b"POST", b"PUT"))).lower()
    assert await old[0].read() == b""
    old[1].close()


async def test_ages_differ(start: Start) -> None:
    server = await start()
    streams = [await connect(server) for _ in range(8)]
    for stream in streams:
        await ask(stream)
    ages = {connection.closes_at for connection in server.server.open}
    now = asyncio.get_running_loop().time()

    assert len(ages) == 8
    assert all(
        LIMITS.lifetime_seconds * (1 - JITTER) - 10 < age - now <= LIMITS.lifetime_seconds * (1 + JITTER)
        for age in ages
    )
    for _, writer in streams:
        writer.close()


async def test_while_draining_every_answer_is_the_last_on_its_connection(start: Start) -> None:
    server = await start()
    before = await connect(server)
    await ask(before)
    await server.server.begin_shutdown(0)

    for stream in (before, await connect(server)):
        head = await ask(stream)
        assert head.startswith("HTTP/1.1 200 OK"), "still served"
        assert "Connection: close" in head
        assert await stream[0].read() == b""
        stream[1].close()


async def test_a_drain_lasts_as_long_as_told() -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()

    await Unanswering.server().begin_shutdown(0.05)
    assert loop.time() - begin >= 0.05


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
    host, port = split_address(server.address)
    reader, writer = await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost")
    writer.write(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    try:
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    return (int(head.split()[1]), body) if head else (0, "")


async def outcome(server: ServedApp, trust: ssl.SSLContext) -> int:
    """The status; 0: the connection ended without an answer, with or without an alert."""
    try:
        return (await answer(server, trust))[0]
    except (ssl.SSLError, ConnectionError):
        return 0


async def test_only_named_clients_are_answered(
    start: Start, clients: ConnectedClients, golden: Callable[[str], None]
) -> None:
    server = await start(swappable=clients.tls, clients=("apiserver", "other"))

    assert (await answer(server, clients.trust(clients.pki.client("apiserver"))))[0] == 200
    assert (await answer(server, clients.trust(clients.pki.client("other", ["system:masters"]))))[0] == 200
    status, said = await answer(server, clients.trust(None))
    assert status == 403
    golden(said)
    status, said = await answer(server, clients.trust(clients.pki.client("kubelet")))
    assert (status, "and kubelet is none of those" in said) == (403, True)
    assert [status for _, status in server.counted.requests] == [200, 200, 403, 403]


async def test_nodes_are_named_to_a_caller_that_has_proved_who_it_is(start: Start, clients: ConnectedClients) -> None:
    """The sender of the review may list nodes, if it is who the review says."""
    world = {**migrations.facts(may=[("list", "nodes")]), NamespaceKey("demo"): OPTED_IN}
    body = msgspec.json.encode(migrations.asking(migrations.migration({"zone": "c"})))

    async def told(server: ServedApp, trust: ssl.SSLContext) -> str:
        host, port = split_address(server.address)
        reader, writer = await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost")
        head = f"POST {MIGRATIONS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        response = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])["response"]
        writer.close()
        return str(response["status"]["message"])

    cluster = MemoryCluster(world)
    verifying = await start(cluster, swappable=clients.tls, clients=("apiserver",))
    verified = await told(verifying, clients.trust(clients.pki.client("apiserver")))
    anybody = await start(cluster)
    claimed = await told(anybody, anybody.trust)

    assert "node-a2, node-b1: without zone=c" in verified
    assert claimed.endswith("[no-eligible-node]")
    assert "4 node(s) without zone=c" in claimed
    assert "node-a" not in claimed
    for server in (verifying, anybody):
        assert "node-a2" in str(server.kept.records[0].details)


async def test_a_stranger_does_not_get_through_the_handshake(start: Start, clients: ConnectedClients) -> None:
    server = await start(swappable=clients.tls, clients=("apiserver",))
    trust = clients.trust(clients.unknown.client("apiserver"))
    assert await outcome(server, trust) == 0
    assert server.counted.requests == []


async def test_clients_are_verified_across_swaps(start: Start, clients: ConnectedClients) -> None:
    server = await start(swappable=clients.tls, clients=("apiserver",))
    authority = Authority.new(["localhost"], *now_and_life())
    pair = authority.issue(["localhost"], *now_and_life())
    clients.tls.swap(pair.certificate, pair.key)
    mine, strange = clients.pki.client("apiserver"), clients.unknown.client("apiserver")
    assert (await answer(server, clients.trust(mine, pair)))[0] == 200
    assert (await answer(server, clients.trust(None, pair)))[0] == 403

    clients.tls.trust(clients.unknown.ca.read_bytes())
    assert (await answer(server, clients.trust(strange, pair)))[0] == 200
    assert await outcome(server, clients.trust(mine, pair)) == 0
    with pytest.raises(ssl.SSLError):
        clients.tls.trust(b"\xff")
    with pytest.raises(ssl.SSLError):
        clients.tls.trust(b"nothing")
    assert (await answer(server, clients.trust(strange, pair)))[0] == 200, "what was refused changed nothing"


async def test_clients_that_could_resume_a_session_are_refused(start: Start, clients: ConnectedClients) -> None:
    server = await start(swappable=clients.tls, clients=("apiserver",))
    old = clients.trust(clients.pki.client("apiserver"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await answer(server, old)


async def test_without_a_certificate_no_handshake_succeeds() -> None:
    server = Unanswering.server()
    swappable = ReloadableTLSContext()
    await server.listen("127.0.0.1:0", swappable.listener, "--listen")
    host, port = split_address(server.address)
    pair = self_signed(["localhost"])
    trust = ssl.create_default_context(cadata=pair.authority.decode())
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost")
    swappable.swap(pair.certificate, pair.key)
    _, writer = await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost")
    writer.close()
    await writer.wait_closed()
    await server.shutdown(0.0)
