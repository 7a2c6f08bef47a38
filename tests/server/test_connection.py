"""How long connections last, and who may use them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from certs.authority import Authority
from certs.source import Pair, self_signed
from tests.e2e.support.pki import Pki
from tests.policies.migration import world as migrations
from tests.review.memory import MemoryCluster
from tests.server.clients import LAST, REQUEST, ask, connect, everything
from tests.server.conftest import ServedApp, Start
from tests.server.raw_requests import head
from tests.server.unanswering import Unanswering
from webhook import names
from webhook.facts import NamespaceKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.server.app import LIMITS
from webhook.server.edge import JITTER, split_address
from webhook.server.tls import ReloadableTLSContext

MIGRATIONS = "/validate/migration/virtualmachineinstancemigrations/enforce"
OPTED_IN = Namespace(ObjectMeta(name="demo", labels={names.policy_label(names.MIGRATION): names.ENFORCE}))


async def test_an_old_connection_ends_with_an_answer_that_says_so(start: Start) -> None:
    server = await start()
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


async def test_ages_differ(start: Start) -> None:
    assert LIMITS.keep_alive_seconds > 90, "net/http keeps idle connections for 90 s"
    server = await start()
    streams = [await connect(server) for _ in range(8)]
    for stream in streams:
        await ask(stream)
    now = asyncio.get_running_loop().time()
    ages = {connection.closes_at - now for connection in server.server.open}

    assert len(ages) == 8
    least, most = LIMITS.lifetime_seconds * (1 - JITTER) - 10, LIMITS.lifetime_seconds * (1 + JITTER)
    assert all(least < age <= most for age in ages)
    for _, writer in streams:
        writer.close()


async def test_while_draining_every_answer_is_the_last_on_its_connection(start: Start) -> None:
    server = await start()
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
    request = head(len(body), MIGRATIONS, "Connection: close\r\n") + body

    async def told(server: ServedApp, trust: ssl.SSLContext | None = None) -> str:
        said = (await everything(server, request, trust)).partition(b"\r\n\r\n")[2]
        return str(json.loads(said)["response"]["status"]["message"])

    cluster = MemoryCluster(world)
    verifying = await start(cluster, swappable=clients.tls, clients=("apiserver",))
    verified = await told(verifying, clients.trust(clients.pki.client("apiserver")))
    anybody = await start(cluster)
    claimed = await told(anybody)

    assert "node-a2, node-b1: without zone=c" in verified
    assert claimed.endswith("[no-eligible-node]")
    assert "4 node(s) without zone=c" in claimed
    assert "node-a" not in claimed
    for server in (verifying, anybody):
        assert "node-a2" in str(server.kept.records[0].details)


async def test_a_stranger_does_not_get_through_the_handshake(start: Start, clients: ConnectedClients) -> None:
    server = await start(swappable=clients.tls, clients=("apiserver",))
    assert (await answer(server, clients.trust(clients.unknown.client("apiserver"))))[0] == 0
    # In TLS 1.2 a client could resume a session.
    old = clients.trust(clients.pki.client("apiserver"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert (await answer(server, old))[0] == 0
    assert server.counted.requests == []


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


async def test_without_a_certificate_no_handshake_succeeds() -> None:
    server, swappable = Unanswering.server(), ReloadableTLSContext()
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
