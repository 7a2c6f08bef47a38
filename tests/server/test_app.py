"""The request path over real TLS sockets: its answers, its limits, its errors, and what it never discloses.

Overload is no way around a policy: its part shows what each endpoint answers where a review has no memory or time.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from asyncio import FIRST_COMPLETED as FIRST
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import AVAILABLE, VMI_UID, changed, known, launcher_pod, namespace, opted_in, review, vm, vmi
from tests.golden_files import Golden
from tests.policies.headroom.world import QUOTAS_OF_DEMO, starting_pod
from tests.policies.headroom.world import cluster as cluster_with_room
from tests.review.memory import KeptInMemory, MemoryCluster
from tests.server.conftest import LAST, MOST_AHEAD, REQUEST, ServedApp, SlowCluster, Start, connect, everything
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, until
from webhook import names
from webhook.admission.audit import Record
from webhook.admission.reasons import common
from webhook.admission.wire import begun_request
from webhook.facts import HeadroomKey, Key, NamespaceKey, SchedulerKey, VerdictKey, VmiKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.placement.headroom.headroom import Headroom
from webhook.policies.headroom import reasons as headroom
from webhook.policies.headroom.settings import HEADROOM, HeadroomSettings
from webhook.policies.instancetypes import reasons as instancetypes
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.registry import BY_PATH, ENDPOINTS
from webhook.policy import Endpoint
from webhook.review.reviewer import Reviewer
from webhook.server import app, bodies
from webhook.server.answers import Overload
from webhook.server.app import DEFAULT_TIMEOUT, MAX_BODY, patience_of, timeout_of
from webhook.server.bodies import EVERYDAY_BYTES, PREFIX_BYTES
from webhook.server.headroom.decider import Decider


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *((b"", 400), (b"nonsense", 400), (b"\xff", 400), (BODY[:-9], 400)),
        (b'{"request": {"object": ' + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_002, 400),
        (msgspec.json.encode(review(launcher_pod(), uid="")), 400),
        (msgspec.json.encode(review(launcher_pod(), kind={"kind": "Node", "version": "v1"})), 400),
        (b"{}", 400),
        (b" " * (8 * 1024 * 1024), 413),
    ],
    ids=["empty", "text", "utf-8", "truncated", "deep", "uid", "kind", "object", "8MiB"],
)
async def test_bad_bodies_get_one_sentence(server: ServedApp, body: bytes, status: int, golden: Golden) -> None:
    answered, sentence = await server.post(PODS, body)
    golden(sentence)
    assert (answered, sentence.count("\n"), server.counted.crashes) == (status, 1, [])
    assert (await server.post(PODS, BODY))[0] == 200, "the next request is served"


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "", "application/json2"])
async def test_wrong_content_type(server: ServedApp, content_type: str) -> None:
    status, text = await server.post(PODS, BODY, **{"Content-Type": content_type})
    assert (status, "send application/json" in text) == (415, True)
    assert (await server.post(PODS, BODY, **{"Content-Type": "application/json; charset=utf-8"}))[0] == 200


async def test_wrong_method_and_path(server: ServedApp) -> None:
    async with server.client.get(PODS) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    status, text = await server.post("/mutate/nothing", BODY)
    assert (status, "manifests webhooks" in text) == (404, True)
    assert server.counted.requests == [(PODS, 405)], "unknown paths must not become metric labels"


@pytest.mark.control("reviews-changed-on-their-way")
async def test_old_tls_is_refused(server: ServedApp) -> None:
    old = ssl.create_default_context(cadata=server.pair.authority.decode())
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    _, writer = await connect(server, old)
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    writer.close()
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect(server, old)


@pytest.mark.control("floods")
async def test_overload_waits_then_says_so(start: Start) -> None:
    cluster = SlowCluster(known(vmi()), peeked=set())
    server = await start(cluster, max_in_flight=1)
    first = asyncio.create_task(server.post(PODS + "?timeout=10s", BODY))
    await until(lambda: cluster.waiting)

    status, text = await server.post(PODS + "?timeout=200ms", BODY)
    response = json.loads(text)["response"]
    assert (status, response["allowed"], "patch" in response) == (200, True, False)
    assert response["auditAnnotations"]["reason"] == common.OVERLOADED

    patient = asyncio.create_task(server.post(PODS + "?timeout=10s", BODY))
    await until(lambda: server.app.in_flight == 2)
    cluster.release.set()
    assert ((await first)[0], (await patient)[0]) == (200, 200)
    assert sorted(status for _, status in server.counted.requests) == [200, 200, 200]


def about(namespace: str, **request: Any) -> bytes:
    """A review as the API server writes it: no space, and the namespace before the object."""
    return msgspec.json.encode(review(launcher_pod(), namespace=namespace, **request))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reviews wait for their turn as long as the client says, also on a machine that does other things."""
    # What is remembered of timeouts does not count, and nothing is remembered for other tests.
    monkeypatch.setattr(app, "DEFAULT_TIMEOUT", 30.0)
    monkeypatch.setattr(app, "timeout_of", app.timeout_of.__wrapped__)


@pytest.mark.control("one-tenants-slow-reviews")
async def test_a_namespace_of_slow_reviews_holds_up_no_other(start: Start, patient: None) -> None:
    """Its look-ups never end; another's reviews, and those of a third, are answered while all of them wait."""
    facts = known(vmi())
    for name in ("shop", "bank"):
        facts |= {NamespaceKey(name): namespace(), VmiKey(name, "web01", VMI_UID): vmi()}
        facts[SchedulerKey("kubevirt", name)] = AVAILABLE
    cluster = SlowCluster(facts, peeked={*facts} - {VmiKey("demo", "web01", VMI_UID)})
    server = await start(cluster, max_in_flight=16)
    slow = [asyncio.create_task(server.post(PODS + "?timeout=30s", about("demo"))) for _ in range(90)]
    await until(lambda: server.app.in_flight == 90)
    assert cluster.waiting == 8

    for name in ("shop", "bank", "shop"):
        assert (await server.post(PODS + "?timeout=30s", about(name)))[0] == 200
    assert not any(task.done() for task in slow)

    cluster.release.set()
    assert {status for status, _ in await asyncio.gather(*slow)} == {200}


@pytest.mark.control("starts-kept-out")
async def test_starts_that_take_long_to_decide_hold_up_no_other_review(
    start: Start, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty wait for their verdict, one after the other; other reviews pass them, and starts that are clear do."""
    used = changed(builders.settings(), **{HEADROOM: changed(HeadroomSettings(), enabled=True)})
    monkeypatch.setattr(builders, "settings", lambda: used)
    found = cluster_with_room()
    found._current()
    facts = known(vmi()) | {HeadroomKey(): found, QUOTAS_OF_DEMO: ()} | opted_in(HEADROOM)
    cluster = DecidedLater(facts, found)
    server = await start(cluster)
    path = "/validate/headroom/pods/enforce?timeout=30s"
    hard = msgspec.json.encode(review(starting_pod("5500Mi")))
    starts = [asyncio.create_task(server.post(path, hard)) for _ in range(30)]
    await until(lambda: len(cluster.asked) == 30)
    assert (await server.post(PODS + "?timeout=30s", BODY))[0] == 200
    assert (await server.post(path, msgspec.json.encode(review(starting_pod()))))[0] == 200
    assert not any(task.done() for task in starts)
    cluster.release.set()
    assert {status for status, _ in await asyncio.gather(*starts)} == {200}
    codes = [record.reasons[0].code for record in server.kept.records if "headroom" in record.endpoint]
    assert codes == [headroom.KEPT, *[headroom.NO_PLACE] * 30]


class DecidedLater(MemoryCluster):
    """A cluster in which starts are decided once they may be."""

    def __init__(self, facts: dict[Key[Any], object], found: Headroom) -> None:
        super().__init__(facts)
        self.asked: list[Key[Any]] = []
        self.release = asyncio.Event()
        self._decider = Decider(found)

    async def read(self, key: Key[Any], deadline: float) -> Any:
        if not isinstance(key, VerdictKey):
            return await super().read(key, deadline)
        self.asked.append(key)
        await self.release.wait()
        return await self._decider.read(key, deadline)


@pytest.mark.control("invented-namespaces")
async def test_namespaces_that_do_not_exist_share_their_seats(start: Start, patient: None) -> None:
    facts = known(vmi()) | {NamespaceKey(f"made-up-{number}"): None for number in range(40)}
    cluster = SlowCluster(facts, peeked={*known(vmi())})
    server = await start(cluster, max_in_flight=16)
    bodies = [about(f"made-up-{number}") for number in range(40)]
    forged = [asyncio.create_task(server.post(PODS + "?timeout=30s", body)) for body in bodies]
    await until(lambda: server.app.in_flight == 40)
    assert (cluster.waiting, (await server.post(PODS + "?timeout=30s", BODY))[0]) == (8, 200)
    cluster.release.set()
    await asyncio.gather(*forged)
    assert len(cluster.reads) == 40, "a GET each"


async def test_no_exception_escapes(server: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, body: bytes) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(type(BY_PATH[PODS].codec), "decode", broken)
    status, text = await server.post(PODS, BODY)

    assert (status, "ZeroDivision" in text) == (500, False)
    assert [type(error) for error in server.counted.crashes] == [ZeroDivisionError]


async def test_client_that_gives_up_frees_its_turn(start: Start) -> None:
    cluster = SlowCluster(known(vmi()), peeked=set())
    server = await start(cluster, max_in_flight=1)
    _, writer = await connect(server)
    writer.write(REQUEST)
    await writer.drain()
    writer.transport.abort()
    cluster.release.set()
    assert (await server.post(PODS, BODY))[0] == 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("3s", 3.0), ("10s", 10.0), ("500ms", 0.5), ("1m0.5s", 30.0), ("1.5s", 1.5)),
        *((text, DEFAULT_TIMEOUT) for text in ("0s", "", "-3s", "3", "x3s")),
    ],
)
def test_timeout_of_the_api_server(text: str, seconds: float) -> None:
    assert timeout_of(text) == seconds


@pytest.mark.parametrize("value", ["1" * 30_000, "1." * 15_000, "1m" * 15_000 + "1", "." + "1" * 30_000])
def test_a_timeout_that_is_none_takes_no_time(value: str) -> None:
    begin = time.process_time()
    assert timeout_of(value) == DEFAULT_TIMEOUT
    assert time.process_time() - begin < 1, "30,000 digits took half a minute, in which no review was answered"


@pytest.mark.control("slow-lookups")
async def test_the_deadline_reaches_look_ups(start: Start) -> None:
    deadlines: list[float] = []

    class Noting(SlowCluster):
        async def read(self, key: Key[Any], deadline: float) -> Any:
            deadlines.append(deadline - asyncio.get_running_loop().time())
            return self.facts[key]

    await (await start(Noting(known(vmi()), peeked=set()))).post(PODS + "?a=b&timeout=20s", BODY)

    assert 10 < min(deadlines) <= max(deadlines) <= 18


async def test_pipelined_requests_are_answered_in_order(server: ServedApp) -> None:
    other = BODY.replace(b"705ab4f5", b"00000000")
    said = await everything(server, REQUEST + head(len(other)) + other + LAST)
    assert said.count(b" 200 OK\r\n") == 3
    uids = [part.split(b'"')[0] for part in said.split(b'"response":{"uid":"')[1:]]
    assert [uid[:8] for uid in uids] == [b"705ab4f5", b"00000000", b"705ab4f5"]
    # One of HTTP/1.0 ends its connection as well.
    assert (await everything(server, REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0"))).count(b" 200 OK\r\n") == 1


async def test_of_reviews_sent_ahead_one_at_a_time_is_taken(start: Start) -> None:
    cluster = SlowCluster(known(vmi()), peeked=set())
    server = await start(cluster)
    reader, writer = await connect(server)
    writer.write(REQUEST * 3000)
    await until(lambda: cluster.waiting, "the first to be evaluated")
    for _ in range(50):
        await asyncio.sleep(0)
        assert (server.app.in_flight, server.app.request_bytes <= MOST_AHEAD) == (1, True)
    cluster.release.set()
    for number in range(3000):
        await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200 OK"), PATIENCE)
        assert (server.app.in_flight <= 1, server.app.request_bytes <= MOST_AHEAD) == (True, True), number
    writer.transport.abort()


@pytest.mark.parametrize("extra", ["Upgrade: websocket", "Upgrade: h2c", "Upgrade: unknown/1"])
async def test_a_review_that_would_upgrade_its_connection_is_answered_all_the_same(
    server: ServedApp, extra: str
) -> None:
    """aiohttp leaves what follows such a head to the handler: its request has no body that could be read."""
    request = head(len(BODY), extra=f"Connection: Upgrade\r\n{extra}\r\n") + BODY
    answers = await asyncio.wait_for(everything(server, request), PATIENCE)
    assert answers.startswith((b"HTTP/1.1 200 OK", b"HTTP/1.1 400 ")), answers[:200]
    assert (await everything(server, LAST)).startswith(b"HTTP/1.1 200 OK")


async def test_a_body_in_chunks_is_asked_for_whole(server: ServedApp) -> None:
    extra = "Transfer-Encoding: chunked\r\nConnection: close\r\n"
    chunked = head(0, extra=extra).replace(b"Content-Length: 0\r\n", b"")
    said = await everything(server, chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
    assert (said.count(b" 411 Length Required\r\n"), b"Content-Length" in said) == (1, True)


# -- overload ----------------------------------------------------------------------------------------------------------


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


LISTED = changed(builders.settings(), instancetypes=InstancetypeSettings(allowed=("small",)))


@pytest.fixture
async def listed(start: Start, monkeypatch: pytest.MonkeyPatch) -> ServedApp:
    """A server whose settings allow other instancetypes only."""
    monkeypatch.setattr(builders, "settings", lambda: LISTED)
    return await start(MemoryCluster(facts_of(ENFORCED)))


def facts_of(labels: dict[str, str]) -> dict[Key[Any], object]:
    """The facts of a cluster whose namespace has these labels."""
    return known(vmi()) | {NamespaceKey("demo"): Namespace(ObjectMeta(name="demo", labels=labels))}


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


@pytest.mark.control("overload-past-a-denial")
@pytest.mark.parametrize("source", SOURCES)
async def test_clients_that_announce_and_trickle_let_no_forbidden_vm_pass(listed: ServedApp, source: str) -> None:
    attack = [asyncio.create_task(trickle(listed, source)) for _ in range(ATTACKERS)]
    await until(lambda: listed.app.request_bytes >= MAX_BODY, "the attack to begin")
    answers = [await response(listed, VMS + "?timeout=3s", forbidden(300_000)) for _ in range(6)]
    for task in attack:
        task.cancel()
    await asyncio.gather(*attack, return_exceptions=True)

    assert [answer["allowed"] for answer in answers] == [False] * 6
    reasons = {answer["auditAnnotations"]["reason"] for answer in answers}
    # Another client has room of its own.
    assert reasons <= {instancetypes.NOT_ALLOWED} | ({common.OVERLOADED} if source == "127.0.0.1" else set())


@pytest.mark.control("overload-past-a-denial")
async def test_large_dry_runs_let_no_forbidden_vm_pass(listed: ServedApp) -> None:
    async def allowed(size: int, **request: Any) -> bool:
        return bool((await response(listed, VMS + "?timeout=3s", forbidden(size, **request)))["allowed"])

    dry_runs, others = (allowed(1_400_000, dryRun=True) for _ in range(16)), (allowed(300_000) for _ in range(16))
    assert await asyncio.gather(*dry_runs, *others) == [False] * 32


def overloaded(endpoint: Endpoint, labels: dict[str, str], why: str, denial_code: int) -> tuple[Any, list[Record]]:
    """The response to a review of a forbidden VM for which there is no memory or time, and what is recorded."""
    kept = KeptInMemory()
    reviewer = Reviewer(MemoryCluster(facts_of(labels)), lambda: LISTED, kept, kept)
    answer = reviewer.overloaded(endpoint, forbidden(0)[:4096], why, denial_code)
    return json.loads(answer or b"{}")["response"], kept.records


# What these cannot evaluate goes as it would without them.
ALWAYS_IGNORE = ("preemption", "headroom")


@pytest.mark.control("overload-past-a-denial")
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("overload", list(Overload), ids=lambda overload: overload.name)
def test_each_endpoint_and_each_overload(endpoint: Endpoint, overload: Overload) -> None:
    answer, (record,) = overloaded(endpoint, ENFORCED, overload.clause, overload.denial_code)

    denies = endpoint.stage == "enforce" and (
        (endpoint.verb == "validate" and endpoint.policy not in ALWAYS_IGNORE and endpoint.resource != "namespaces")
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
    assert (record.object.namespace, record.reasons[0].code) == ("demo", common.OVERLOADED)


def test_a_namespace_that_has_not_opted_in_is_not_denied() -> None:
    answer, _ = overloaded(BY_PATH[VMS], {}, "why", 429)
    assert answer["allowed"] is True


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
    assert listed.server.reserved.taken == 0
    await listed.server.reserved.take("127.0.0.1", 1e9, 2 * MAX_BODY)
    answer = await response(listed, VMS, forbidden(300_000))
    assert (answer["allowed"], answer["auditAnnotations"]["reason"]) == (False, common.OVERLOADED)


async def test_a_body_that_is_too_large(listed: ServedApp) -> None:
    answer = await response(listed, VMS, forbidden(MAX_BODY))
    assert (answer["allowed"], answer["status"]["code"]) == (False, 413)


async def test_where_there_is_too_much_the_client_with_the_most_of_it_loses(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client's reviews wait for look-ups, and take all of the memory; a review of another one is evaluated."""
    monkeypatch.setattr(builders, "settings", lambda: LISTED)
    cluster = SlowCluster(facts_of(ENFORCED), peeked=set())
    server = await start(cluster)
    body = forbidden(EVERYDAY_BYTES // 4)
    limits = msgspec.structs.replace(server.server.limits, counted_bytes=3 * len(body))
    monkeypatch.setattr(server.server, "limits", limits)
    waiting = [await connect(server, source="127.0.0.2") for _ in range(2)]
    for _, writer in waiting:
        writer.write(head(len(body), VMS + "?timeout=10s") + body)
    await until(lambda: server.app.in_flight == 2, "the requests to come")
    honest = asyncio.create_task(response(server, VMS + "?timeout=10s", body))
    first, _ = await asyncio.wait([asyncio.create_task(reader.readline()) for reader, _ in waiting], return_when=FIRST)
    assert len(first) == 1
    cluster.release.set()

    assert (await honest)["auditAnnotations"]["reason"] == instancetypes.NOT_ALLOWED
    for _, writer in waiting:
        writer.transport.abort()


@pytest.mark.parametrize("begin", [b"", b'{"request": {"uid": 5', b" " * 5000], ids=["nothing", "no-uid", "blanks"])
async def test_without_a_uid_there_is_an_http_error(
    listed: ServedApp, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "GRACE_SECONDS", 0.1)
    reader, writer = await connect(listed)
    writer.write(head(100_000, VMS) + begin)
    async with asyncio.timeout(PATIENCE):
        assert (await reader.readline()).split()[1] == b"408"
    writer.transport.abort()


@pytest.mark.parametrize(("is_large", "share"), [(False, 0.72), (True, 0.45)])
@pytest.mark.parametrize(("timeout", "seconds"), [(1.0, 1.0), (30.0, 3.0)])
def test_how_long_a_review_may_wait(is_large: bool, share: float, timeout: float, seconds: float) -> None:
    """The rest is for its evaluation, and for the way back before the API server gives up."""
    assert patience_of(timeout, is_large=is_large) == pytest.approx(seconds * share)


AS_GO_WRITES_IT = (
    b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","kind":{"group":"kubevirt.io",'
    b'"version":"v1","kind":"VirtualMachine"},"resource":{"group":"kubevirt.io","version":"v1","resource":'
    b'"virtualmachines"},"name":"web","namespace":"demo","operation":"CREATE","userInfo":{"username":"alice"},"object":'
    b'{"metadata":{"name":"other","namespace":"victim"}'
)


def test_what_the_beginning_of_a_review_says() -> None:
    found = begun_request(AS_GO_WRITES_IT)
    assert found
    version, asked = found
    said = (version, asked.uid, asked.name, asked.namespace, asked.operation)
    assert said == ("admission.k8s.io/v1", "u1", "web", "demo", "CREATE")


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


async def test_an_error_while_overload_is_answered(listed: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reviewer, "overloaded", lambda *_: 1 // 0)
    reader, writer = await connect(listed)
    writer.write(head(100_000, VMS) + forbidden(0)[:1000])
    async with asyncio.timeout(PATIENCE):
        assert (await reader.read()).startswith(b"HTTP/1.1 500 ")
    writer.transport.abort()
