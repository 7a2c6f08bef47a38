"""Overload is no way around a policy: what each endpoint answers where there is no memory or time for a review."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import known, review, vm, vmi
from tests.review.memory import MemoryCluster
from tests.server.clients import connect
from tests.server.conftest import ServedApp, Start
from tests.server.raw_requests import head
from tests.server.test_pieces import PieceTransport
from tests.waiting import PATIENCE, until
from webhook import names
from webhook.admission.reasons import common, instancetypes
from webhook.admission.wire import begun_request
from webhook.facts import NamespaceKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.review.endpoints import BY_PATH, ENDPOINTS, Endpoint
from webhook.server import app, edge
from webhook.server.app import MAX_BODY
from webhook.server.edge import EVERYDAY_BYTES, PREFIX_BYTES, Connection
from webhook.server.request import HttpRequest, Overload, parse_head
from webhook.settings.model import InstancetypeSettings

VMS = "/validate/instancetypes/virtualmachines/enforce"
ENFORCED = {names.policy_label(endpoint.policy): names.ENFORCE for endpoint in ENDPOINTS}
ATTACKERS = 8
# Of another client than the API server's; or of one that cannot be distinguished from it.
SOURCES = ("127.0.0.2", "127.0.0.1")


def forbidden(size: int, **request: Any) -> bytes:
    """A review of a VM that names an instancetype which is not on the list."""
    obj = vm(instancetype={"name": "huge"})
    obj["metadata"]["annotations"] = {"padding": "x" * size}
    return msgspec.json.encode(review(obj, **request))


@pytest.fixture
async def listed(start: Start, monkeypatch: pytest.MonkeyPatch) -> ServedApp:
    """A server whose settings allow other instancetypes only."""
    settings = msgspec.structs.replace(builders.settings(), instancetypes=InstancetypeSettings(allowed=("small",)))
    monkeypatch.setattr(builders, "settings", lambda: settings)
    namespace = Namespace(ObjectMeta(name="demo", labels=ENFORCED))
    return await start(MemoryCluster(known(vmi()) | {NamespaceKey("demo"): namespace}))


async def response(server: ServedApp, path: str, body: bytes) -> dict[str, Any]:
    """The response in the AdmissionReview that answers a review."""
    status, text = await server.post(path, body)
    assert status == 200, text
    answer: dict[str, Any] = json.loads(text)["response"]
    assert answer["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    return answer


async def trickle(server: ServedApp, source: str) -> None:
    """Announce the largest body, send as little of it as possible, and come back."""
    while True:
        with suppress(OSError, ssl.SSLError):
            reader, writer = await connect(server, source=source)
            try:
                # Less than this gets no room at all.
                writer.write(head(MAX_BODY, VMS + "?timeout=10s") + b" " * PREFIX_BYTES)
                ended = asyncio.ensure_future(reader.read())
                while not ended.done():
                    writer.write(b" ")
                    await asyncio.sleep(0.05)
            finally:
                writer.transport.abort()


@pytest.mark.parametrize("source", SOURCES)
async def test_clients_that_announce_and_trickle_let_no_forbidden_vm_pass(listed: ServedApp, source: str) -> None:
    attack = [asyncio.create_task(trickle(listed, source)) for _ in range(ATTACKERS)]
    await until(lambda: listed.app.taken_bytes >= MAX_BODY, "the attack to begin")
    answers = [await response(listed, VMS + "?timeout=3s", forbidden(300_000)) for _ in range(6)]
    for task in attack:
        task.cancel()
    await asyncio.gather(*attack, return_exceptions=True)

    assert [answer["allowed"] for answer in answers] == [False] * 6
    reasons = {answer["auditAnnotations"]["reason"] for answer in answers}
    # Another client has room of its own.
    assert (
        reasons == {instancetypes.NOT_ALLOWED}
        if source != "127.0.0.1"
        else reasons <= {instancetypes.NOT_ALLOWED, common.OVERLOADED}
    )


async def test_large_dry_runs_let_no_forbidden_vm_pass(listed: ServedApp) -> None:
    async def allowed(size: int, **request: Any) -> bool:
        return bool((await response(listed, VMS + "?timeout=3s", forbidden(size, **request)))["allowed"])

    dry_runs, others = (allowed(1_400_000, dryRun=True) for _ in range(16)), (allowed(300_000) for _ in range(16))
    results = await asyncio.gather(*dry_runs, *others)

    assert results == [False] * 32


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("overload", list(Overload), ids=lambda overload: overload.name)
async def test_each_endpoint_and_each_overload(listed: ServedApp, endpoint: Endpoint, overload: Overload) -> None:
    said = listed.reviewer.overloaded(endpoint, forbidden(0)[:4096], overload.clause, overload.denial)
    answer = json.loads(said or b"{}")["response"]

    denies = endpoint.stage == "enforce" and (
        endpoint.verb == "validate"
        or (endpoint.policy, endpoint.resource) in (("eviction", "pods"), ("instancetypes", "virtualmachineinstances"))
    )
    assert answer["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert answer["allowed"] is not denies
    assert "patch" not in answer
    if denies:
        assert answer["status"]["code"] == (413 if overload is Overload.TOO_LARGE else 429)
        assert answer["status"]["message"].endswith(f"[{common.OVERLOADED}]")
    elif endpoint.stage == "enforce":
        assert answer["warnings"][0].endswith(f"[{common.OVERLOADED}]")
    (record,) = listed.kept.records
    assert (record.object.namespace, record.reasons[0].code) == ("demo", common.OVERLOADED)


async def test_a_namespace_that_has_not_opted_in_is_not_denied(start: Start) -> None:
    server = await start(MemoryCluster({**known(vmi()), NamespaceKey("demo"): Namespace(ObjectMeta(name="demo"))}))
    answer = server.reviewer.overloaded(BY_PATH[VMS], forbidden(0), "why", 429)
    assert answer
    assert json.loads(answer)["response"]["allowed"] is True


@pytest.mark.parametrize("length", [100_000, EVERYDAY_BYTES + 1], ids=["everyday", "large"])
async def test_a_late_body(listed: ServedApp, length: int) -> None:
    reader, writer = await connect(listed)
    writer.write(head(length, VMS + "?timeout=10s") + forbidden(0)[:1000])
    async with asyncio.timeout(PATIENCE):
        answer = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])["response"]
    writer.transport.abort()
    assert (answer["allowed"], answer["status"]["code"]) == (False, 429)


async def test_no_room(listed: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    # Requests wait for a fifth of a second; what is remembered of timeouts does not count.
    monkeypatch.setattr(app, "DEFAULT_TIMEOUT", 0.3)
    monkeypatch.setattr(app, "timeout_of", app.timeout_of.__wrapped__)
    assert listed.server.room.taken == 0
    await listed.server.room.take("127.0.0.1", 1e9, 2 * MAX_BODY)
    answer = await response(listed, VMS, forbidden(300_000))
    assert (answer["allowed"], answer["auditAnnotations"]["reason"]) == (False, common.OVERLOADED)


async def test_a_body_that_is_too_large(listed: ServedApp) -> None:
    answer = await response(listed, VMS, forbidden(MAX_BODY))
    assert (answer["allowed"], answer["status"]["code"]) == (False, 413)


@pytest.mark.parametrize("path", [VMS, "/nowhere"])
async def test_what_waits_for_a_client_that_does_not_read_denies_no_other(
    listed: ServedApp, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client's requests take all of the memory; a review of another comes in pieces."""
    body = forbidden(EVERYDAY_BYTES // 4)
    limits = msgspec.structs.replace(listed.server.limits, kept_bytes=2 * len(body))
    monkeypatch.setattr(listed.server, "limits", limits)

    def connection(client: str) -> tuple[Connection, PieceTransport]:
        made, transport = Connection(listed.server, client), PieceTransport()
        made.connection_made(transport)
        return made, transport

    waiting = [connection("192.0.2.1") for _ in range(2)]
    for made, _ in waiting:
        made.pause_writing()
        made.data_received(head(len(body), path) + body)
    honest, transport = connection("192.0.2.2")
    honest.data_received(head(len(body), VMS) + body[:-1])
    honest.data_received(body[-1:])

    assert transport.answers == 1
    status = b"200 OK" if path == VMS else b"404 Not Found"
    assert [transport.written.startswith(b"HTTP/1.1 " + status) for _, transport in waiting] == [True, False]


@pytest.mark.parametrize("begin", [b"", b'{"request": {"uid": 5', b" " * 5000], ids=["nothing", "no-uid", "blanks"])
async def test_without_a_uid_there_is_an_http_error(
    listed: ServedApp, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "GRACE_SECONDS", 0.1)
    reader, writer = await connect(listed)
    writer.write(head(100_000, VMS) + begin)
    async with asyncio.timeout(PATIENCE):
        assert (await reader.readline()).split()[1] == b"408"
    writer.transport.abort()


@pytest.mark.parametrize(("length", "share"), [(EVERYDAY_BYTES, 0.72), (EVERYDAY_BYTES + 1, 0.45), (None, 0.45)])
@pytest.mark.parametrize(("query", "seconds"), [("timeout=1s", 1.0), ("timeout=30s", 3.0)])
async def test_how_long_a_review_may_wait(
    start: Start, length: int | None, share: float, query: str, seconds: float
) -> None:
    """The rest is for its evaluation, and for the way back before the API server gives up."""
    server = await start()
    request = HttpRequest(msgspec.structs.replace(parse_head(head(0, VMS))[0], query=query), length, None, 0.0)
    assert server.app.patience(request) == pytest.approx(seconds * share)


AS_GO_WRITES_IT = (
    b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","kind":{"group":"kubevirt.io",'
    b'"version":"v1","kind":"VirtualMachine"},"resource":{"group":"kubevirt.io","version":"v1","resource":'
    b'"virtualmachines"},"name":"web","namespace":"demo","operation":"CREATE","userInfo":{"username":"alice"},"object":'
    b'{"metadata":{"name":"other","namespace":"victim"}'
)


def test_what_the_beginning_of_a_review_says() -> None:
    found = begun_request(AS_GO_WRITES_IT)
    assert found
    version, request = found
    assert version == "admission.k8s.io/v1"
    assert (request.uid, request.name, request.namespace, request.operation) == ("u1", "web", "demo", "CREATE")


@pytest.mark.parametrize(
    "begin",
    [
        *(AS_GO_WRITES_IT[:cut] for cut in (0, 10, 40, 76)),
        b'{"kind":"AdmissionReview","apiVersion":"v2","request":{"uid":"u1"',
        b'{"kind":"Other","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1"',
        b'{"kind":"AdmissionReview","kind":"AdmissionReview","request":{"uid":"u1"',
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"object":{"uid":"u1"',
    ],
)
def test_what_is_not_the_beginning_of_a_review(begin: bytes) -> None:
    assert begun_request(begin) is None
