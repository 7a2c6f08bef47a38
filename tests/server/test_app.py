"""The request path over real TLS sockets: its answers, its limits, its errors, and what it never discloses."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import Any

import msgspec
import pytest

from tests.builders import AVAILABLE, VMI_UID, known, launcher_pod, namespace, review, vmi
from tests.golden_files import Golden
from tests.server.clients import LAST, REQUEST, connect, everything
from tests.server.conftest import SlowCluster, Start
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import until
from webhook.admission.reasons import common
from webhook.facts import Key, NamespaceKey, SchedulerKey, VmiKey
from webhook.review.endpoints import BY_PATH
from webhook.server.app import DEFAULT_TIMEOUT, timeout_of


async def test_a_review_is_answered(start: Start) -> None:
    server = await start()
    status, text = await server.post(PODS + "?timeout=3s", BODY)
    response = json.loads(text)["response"]
    assert (status, response["allowed"], response["patchType"]) == (200, True, "JSONPatch")
    assert (server.counted.requests, server.app.in_flight) == ([(PODS, 200)], 0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"nonsense", 400),
        (b"\xff", 400),
        (BODY[:-9], 400),
        (b'{"request": {"object": ' + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_002, 400),
        (msgspec.json.encode(review(launcher_pod(), uid="")), 400),
        (msgspec.json.encode(review(launcher_pod(), kind={"kind": "Node", "version": "v1"})), 400),
        (b"{}", 400),
        (b" " * (8 * 1024 * 1024), 413),
    ],
    ids=["empty", "text", "utf-8", "truncated", "deep", "uid", "kind", "object", "8MiB"],
)
async def test_bad_bodies_get_one_sentence(start: Start, body: bytes, status: int, golden: Golden) -> None:
    server = await start()
    answer = await server.post(PODS, body)
    assert answer[0] == status
    golden(answer[1])
    assert (answer[1].count("\n"), server.counted.crashes) == (1, [])
    assert (await server.post(PODS, BODY))[0] == 200, "the next request is served"


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "", "application/json2"])
async def test_wrong_content_type(start: Start, content_type: str) -> None:
    server = await start()
    status, text = await server.post(PODS, BODY, **{"Content-Type": content_type})
    assert status == 415
    assert "send application/json" in text
    assert (await server.post(PODS, BODY, **{"Content-Type": "application/json; charset=utf-8"}))[0] == 200


async def test_wrong_method_and_path(start: Start) -> None:
    server = await start()
    async with server.client.get(f"https://{server.address}{PODS}") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    status, text = await server.post("/mutate/nothing", BODY)
    assert status == 404
    assert "manifests webhooks" in text
    assert server.counted.requests == [(PODS, 405)], "unknown paths must not become metric labels"


async def test_old_tls_is_refused(start: Start) -> None:
    server = await start()
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


async def test_a_namespace_of_slow_reviews_holds_up_no_other(start: Start) -> None:
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


async def test_namespaces_that_do_not_exist_share_their_turns(start: Start) -> None:
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


async def test_no_exception_escapes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await start()

    def broken(self: object, body: bytes) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(type(BY_PATH[PODS].codec), "decode", broken)
    status, text = await server.post(PODS, BODY)

    assert status == 500
    assert "ZeroDivision" not in text
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
    ("query", "seconds"),
    [
        *(("timeout=3s", 3.0), ("timeout=10s", 10.0), ("timeout=500ms", 0.5), ("timeout=1m0.5s", 30.0)),
        *(("timeout=1.5s", 1.5), ("a=b&timeout=2s", 2.0)),
        *((f"timeout={text}", DEFAULT_TIMEOUT) for text in ("0s", "", "-3s", "3", "x3s")),
        ("", DEFAULT_TIMEOUT),
    ],
)
def test_timeout_of_the_api_server(query: str, seconds: float) -> None:
    assert timeout_of(query) == seconds


@pytest.mark.parametrize("value", ["1" * 30_000, "1." * 15_000, "1m" * 15_000 + "1", "." + "1" * 30_000])
def test_a_timeout_that_is_none_takes_no_time(value: str) -> None:
    begin = time.process_time()
    assert timeout_of(f"timeout={value}") == DEFAULT_TIMEOUT
    assert time.process_time() - begin < 1, "30,000 digits took half a minute, in which no review was answered"


async def test_the_deadline_reaches_look_ups(start: Start) -> None:
    deadlines: list[float] = []

    class Noting(SlowCluster):
        async def read(self, key: Key[Any], deadline: float) -> Any:
            deadlines.append(deadline - asyncio.get_running_loop().time())
            return self.facts[key]

    await (await start(Noting(known(vmi()), peeked=set()))).post(PODS + "?timeout=20s", BODY)

    assert deadlines
    assert all(10 < left <= 18 for left in deadlines)


async def test_pipelined_requests_are_answered_in_order(start: Start) -> None:
    server = await start()
    other = BODY.replace(b"705ab4f5", b"00000000")
    said = await everything(server, REQUEST + head(len(other)) + other + LAST)
    assert said.count(b" 200 OK\r\n") == 3
    uids = [part.split(b'"')[0] for part in said.split(b'"uid":"')[1:]]
    assert [uid[:8] for uid in uids] == [b"705ab4f5", b"00000000", b"705ab4f5"]
    # One of HTTP/1.0 ends its connection as well.
    assert (await everything(server, REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0"))).count(b" 200 OK\r\n") == 1


async def test_chunked_body(start: Start) -> None:
    server = await start()
    chunked = head(0, extra="Transfer-Encoding: chunked\r\nConnection: close\r\n").replace(
        b"Content-Length: 0\r\n", b""
    )
    said = await everything(server, chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
    assert said.count(b" 200 OK\r\n") == 1
    assert b'"patchType":"JSONPatch"' in said
