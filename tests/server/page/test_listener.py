"""Who may look at the page, what it answers, and that nothing that a tenant wrote acts on it."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.builders import installed
from tests.policies.migration.world import CLAIMED, facts, stored, vmi
from tests.server.page.conftest import HOSTILE, Opened, OpenPage, labeled, record
from tests.waiting import until
from webhook.admission.decision import Change, Reason
from webhook.admission.wire import UserInfo
from webhook.errors import Unavailable
from webhook.facts import AccessKey, Key, KubeVirtKey, NamespaceKey, ObjectKey, TokenKey
from webhook.placement.machines import CLAIMS, PLACED_VMIS, VOLUMES
from webhook.server import guard
from webhook.server.authorizer import MAX_IN_FLIGHT, MAX_QUESTIONS
from webhook.server.guard import BURST, BURST_OF_ALL
from webhook.server.page.listener import HEADERS

ALICE = UserInfo("alice", "u1", [], {})
MAY = AccessKey.of_path(ALICE, "get", "/page")
VMI = AccessKey.of(ALICE, "get", "kubevirt.io", "virtualmachineinstances", "demo", "web01")
NODES = AccessKey.of(ALICE, "list", "", "nodes")
CLAIM_RIGHT = AccessKey.of(ALICE, "get", "", "persistentvolumeclaims", "demo")
VOLUME_RIGHT = AccessKey.of(ALICE, "get", "", "persistentvolumes")
# Of one client.
SHARE = MAX_IN_FLIGHT // 2
MATRIX = "/page/placement?namespace=demo&name=web01"
PAGES = ["/page", "/page/decisions", "/page/decisions/1", "/page/health", "/page/reasons", "/page/placement", MATRIX]
PAGES += ["/page/reasons/scheduler-injected", f"{MATRIX}&to=zone%3Db&node=node-a1"]
PATHS = [*PAGES, "/page/style.css", "/page/icon.svg"]


def signed_in(**answers: Any) -> dict[Key[Any], object]:
    keys: dict[str, Key[Any]] = {"may": MAY, "vmi": VMI, "nodes": NODES, "claims": CLAIM_RIGHT, "volumes": VOLUME_RIGHT}
    known: dict[Key[Any], object] = {TokenKey("GOOD"): answers.get("token", ALICE), TokenKey("BAD"): None}
    return known | {key: answers.get(name, True) for name, key in keys.items()}


@pytest.mark.parametrize(
    ("address", "method", "headers"),
    [("0.0.0.0:0", "GET", {}), ("127.0.0.1:0", "GET", {"Host": "evil.example"}), ("127.0.0.1:0", "POST", {})],
)
async def test_who_gets_nothing_has_a_pace_too(
    page: Opened, monkeypatch: pytest.MonkeyPatch, address: str, method: str, headers: dict[str, str]
) -> None:
    """What is missing is said on a page, which costs as much as any other."""
    monkeypatch.setattr(guard, "BURST", 2)
    monkeypatch.setattr(guard, "PER_SECOND", 0.001)
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.01)
    opened = await page(address=address)
    statuses = [(await opened.get(method=method, **headers))[0] for _ in range(4)]
    assert (statuses[:2].count(429), statuses[2:]) == (0, [429, 429])
    assert (await opened.get("/page/style.css"))[0] == 200


@pytest.mark.control("dns-rebinding")
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8091", ""])
async def test_another_name_of_this_host_is_refused(page: Opened, host: str) -> None:
    opened = await page()
    for path in PATHS:
        assert (await opened.get(path, Host=host))[0] == 403


@pytest.mark.control("page-shows-everything")
@pytest.mark.parametrize(
    ("token", "answers", "status"),
    [
        *(("GOOD", {}, 200), ("", {}, 401), ("BAD", {}, 401), ("GOOD", {"may": False}, 403)),
        *(("GOOD", {"may": Unavailable("no answer")}, 503), ("GOOD", {"token": Unavailable("no answer")}, 503)),
    ],
)
async def test_elsewhere_a_token_is_needed(page: Opened, token: str, answers: dict[str, Any], status: int) -> None:
    opened = await page(signed_in(**answers), "0.0.0.0:0")
    opened.recorder.write(record(name="secret-name"))
    assert opened.url.startswith("https://")
    for path in ("/page", "/page/decisions", "/page/decisions/1"):
        got, text = await opened.get(path, token=token)
        assert (got, "secret-name" in text) == (status, status == 200 and path != "/page")
        assert status != 401 or opened.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.control("page-shows-everything")
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize(("token", "may", "status"), [("", True, 401), ("BAD", True, 401), ("GOOD", False, 403)])
async def test_who_may_not_look_learns_nothing_about_paths(
    page: Opened, method: str, token: str, may: bool, status: int
) -> None:
    opened = await page(signed_in(may=may), "0.0.0.0:0")
    opened.recorder.write(record())
    paths = [*PAGES, "/page/", "/page/x", "/page/x/", "/page/decisions/", "/page/decisions/2", "/page/decisions/x"]
    paths += ["/page/reasons/x", "/page/style.css/", "/page//decisions"]
    answers = {await opened.get(path, method, token) for path in paths}
    assert {got for got, _ in answers} == {status}
    assert len(answers) == 1
    assert {name: opened.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.control("page-shows-everything")
@pytest.mark.parametrize("missing", ["vmi", "nodes"])
async def test_the_matrix_takes_what_it_shows(page: Opened, missing: str) -> None:
    opened = await page(signed_in(), "0.0.0.0:0")
    assert (await opened.get(MATRIX, token="GOOD"))[0] == 200
    opened = await page(signed_in(**{missing: False}), "0.0.0.0:0")
    status, text = await opened.get(MATRIX, token="GOOD")
    assert status == 403
    assert "node-a2" not in text


def claimed() -> dict[Key[Any], object]:
    """The VM with a disk that only the nodes of zone a reach."""
    return facts(vmi(volumes=CLAIMED[:1])) | stored("a")


def gaps(text: str) -> list[str]:
    """What a page says that it did not look up, but for quotas: the server may never read those."""
    found = re.findall(r"Not evaluated:</strong> <bdi>(.*?)</bdi>", text)
    assert any("ResourceQuotas" in gap for gap in found)
    return [gap for gap in found if "ResourceQuotas" not in gap]


async def test_the_matrix_knows_which_nodes_reach_the_disks(page: Opened) -> None:
    opened = await page(claimed())
    _, text = await opened.get(MATRIX)
    assert "olume &#34;data&#34; is only available" in text
    assert gaps(text) == []


@pytest.mark.control("volumes-in-explanations")
@pytest.mark.parametrize("missing", ["claims", "volumes"])
async def test_disks_are_not_looked_at_for_who_may_not_see_them(page: Opened, missing: str) -> None:
    opened = await page(claimed() | signed_in(), "0.0.0.0:0")
    assert gaps((await opened.get(MATRIX, token="GOOD"))[1]) == []
    opened = await page(claimed() | signed_in(**{missing: False}), "0.0.0.0:0")
    status, text = await opened.get(MATRIX, token="GOOD")
    assert (status, len(gaps(text))) == (200, 1)
    assert not any(isinstance(key, ObjectKey) and key.resource in (CLAIMS, VOLUMES) for key in opened.cluster.reads)


async def test_the_page_says_what_it_may_not_read_itself(page: Opened) -> None:
    denied = {key: Unavailable("403") for key in stored("a")}
    status, text = await (await page(claimed() | denied)).get(MATRIX)
    assert status == 200
    assert gaps(text)
    assert "node-b1" in text


@pytest.mark.control("dns-rebinding")
@pytest.mark.parametrize("path", PATHS)
async def test_every_page_is_closed_to_everything_else(page: Opened, path: str) -> None:
    opened = await page()
    opened.recorder.write(record())
    status, text = await opened.get(path)
    assert (status, {name: opened.headers[name] for name in HEADERS}) == (200, HEADERS)
    assert "default-src 'none'" in opened.headers["Content-Security-Policy"]
    assert "script-src" not in opened.headers["Content-Security-Policy"]
    assert (await opened.get(path, "HEAD"), opened.counted.crashes) == ((200, ""), [])
    if text.startswith("<!doctype html>"):
        assert [text.count(tag) for tag in ("<h1>", "<main", 'class="skip"', "<title>")] == [1, 1, 1, 1]
        assert not re.search(r"<script|<style|style=|<iframe|https?://", text)


@pytest.mark.control("page-only-reads")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_only_reading(page: Opened, method: str) -> None:
    opened = await page()
    for path in PATHS:
        assert ((await opened.get(path, method))[0], opened.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 302),
        *((path, 404) for path in ("/page/x", "/page/style.css/../base.html")),
        *((f"/page/decisions/{number}", 404) for number in ("2", "-1", "9" * 5000)),
        *((f"/page/reasons/{code}", 404) for code in ("x", "..%2F..%2Fetc%2Fpasswd")),
        *((f"/page?{query}", 400) for query in ("x=1", "refresh=1", "first=x")),
        *(("/page/decisions?policy=x", 400), ("/page/placement?namespace=demo", 400)),
        *(("/page/placement?namespace=demo&name=..%2F..", 400), (f"{MATRIX}&to=nonsense", 400)),
        *(("/page/placement?namespace=demo&name=nobody", 404), (f"{MATRIX}&node=nobody", 404)),
    ],
)
async def test_what_is_not_there_is_said_in_a_page(page: Opened, path: str, status: int) -> None:
    opened = await page({KubeVirtKey(): installed(), ObjectKey(PLACED_VMIS, "demo", "nobody"): None})
    got, text = await opened.get(path)
    assert got == status, text
    assert status == 302 or "<h1>" in text
    assert opened.counted.crashes == []


async def test_what_is_not_there_is_named_and_leads_to_the_overview(page: Opened) -> None:
    opened = await page()
    for path, named in (
        ("/page/nodes", "/page/nodes"),
        ("/page/decisions/7", "decision 7"),
        ("/page/reasons/%3Cb%3E", "&lt;b&gt;"),
    ):
        status, text = await opened.get(path)
        assert (status, named in text, '<a href="/page">Overview</a>' in text) == (404, True, True)
        assert "<h1>Not found</h1>" in text
        assert {name: opened.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize(
    ("path", "here"),
    [
        *(("/page", "Overview"), ("/page/decisions", "Decisions"), ("/page/decisions/1", "Decisions")),
        *((MATRIX, "Placement"), ("/page/health", "Health"), ("/page/reasons", "Reasons")),
        *(("/page/reasons/scheduler-injected", "Reasons"), ("/page/reasons/scheduler%2Dinjected", "Reasons")),
    ],
)
async def test_the_navigation_says_where_a_page_is(page: Opened, path: str, here: str) -> None:
    opened = await page()
    opened.recorder.write(record())
    status, text = await opened.get(path)
    assert (status, re.findall('aria-current="page">([^<]*)<', text)) == (200, [here])


async def test_a_slash_at_the_end_of_an_address_is_one_too_many(page: Opened) -> None:
    opened = await page()
    opened.recorder.write(record())
    for address in PATHS:
        path, mark, query = address.partition("?")
        for method in ("GET", "HEAD"):
            status, _ = await opened.get(f"{path}/{mark}{query}", method)
            assert (status, opened.headers["Location"]) == (308, address)
            assert {name: opened.headers[name] for name in HEADERS} == HEADERS
    assert (await opened.get("/page/nodes/"))[0] == 404
    assert (await opened.get("/page/decisions/7/"))[0] == 308


@pytest.mark.parametrize(
    "target", ["http://evil.example/page/", "//evil.example/page/", "/page//evil.example/", "/page/..//evil.example/"]
)
async def test_no_address_leads_to_another_host(page: Opened, target: str) -> None:
    opened = await page()
    url = opened.client.make_url("/")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    assert int(answer.split()[1]) in (308, 404)
    for location in re.findall(r"(?im)^Location: *(.*)\r$", answer):
        assert re.match("/page(/|$)", location)
    assert opened.counted.crashes == []


async def test_a_page_loads_itself_again_only_for_who_asks_for_it(page: Opened) -> None:
    opened = await page()
    await opened.get("/page/decisions")
    assert "Refresh" not in opened.headers
    _, text = await opened.get("/page/decisions?policy=migration")
    assert re.search('href="/page/decisions[^"]*refresh=10[^"]*"[^>]*>every 10 seconds</a>', text)
    _, text = await opened.get("/page/decisions?refresh=10&policy=migration")
    assert (opened.headers["Refresh"], "http-equiv" in text) == ("10", False)
    assert 'href="/page/decisions?policy=migration">Stop</a>' in text


async def test_decisions_come_fifty_at_a_time(page: Opened) -> None:
    opened = await page()
    for number in range(60):
        opened.recorder.write(record(name=f"paged-{number}"))
    for first, names, link in (("", range(10, 60), "first=50"), ("?first=50", range(10), "/page/decisions")):
        _, text = await opened.get(f"/page/decisions{first}")
        assert {int(name) for name in re.findall(r"paged-(\d+)", text)} == {*names}
        assert re.search(f'href="[^"]*{link}"[^>]*>(?:Next|Previous)', text)


async def test_a_bug_is_one_plain_sentence(page: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = await page()
    monkeypatch.setattr("webhook.server.page.views.namespace_table", lambda *_, **__: 1 / 0)
    status, text = await opened.get()
    assert status == 500
    assert "ZeroDivisionError" not in text
    assert {name: opened.headers[name] for name in HEADERS} == HEADERS
    assert len(opened.counted.crashes) == 1


@pytest.mark.control("page-takes-the-processor")
async def test_few_pages_are_made_at_once(page: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = await page()
    release, begun = asyncio.Event(), 0

    async def slow(*_: Any, **__: Any) -> tuple[list[Any], int]:
        nonlocal begun
        begun += 1
        await release.wait()
        return [], 0

    monkeypatch.setattr("webhook.server.page.views.namespace_table", slow)
    monkeypatch.setattr("webhook.server.authorizer.PATIENCE_SECONDS", 0.05)
    waiting = [asyncio.create_task(opened.get()) for _ in range(SHARE)]
    await until(lambda: begun == SHARE)
    assert ((await opened.get())[0], opened.headers["Retry-After"]) == (429, "1")
    # Styles are not made.
    assert (await opened.get("/page/style.css"))[0] == 200
    release.set()
    assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * SHARE


GUESSERS = 14


@asynccontextmanager
async def guessers(opened: OpenPage) -> AsyncIterator[list[int]]:
    """Clients at 127.0.0.2 that send made-up tokens again and again; gives the statuses that they get.

    No token of theirs is answered as long as the context lasts, so that they hold all that they can get.
    """
    read, release, waiting, statuses = opened.cluster.read, asyncio.Event(), set(), list[int]()

    async def read_slowly(key: Key[Any], deadline: float) -> Any:
        if not isinstance(key, TokenKey) or not key.token.startswith("guess"):
            return await read(key, deadline)
        waiting.add(key.token)
        await release.wait()
        return None

    async def guess(client: aiohttp.ClientSession, number: int) -> None:
        for again in itertools.count():
            headers = {"Authorization": f"Bearer guess-{number}-{again}"}
            async with client.get(f"{opened.url}/page", headers=headers, allow_redirects=False) as answer:
                statuses.append(answer.status)

    opened.cluster.read = read_slowly  # type: ignore[method-assign]
    source = aiohttp.TCPConnector(ssl=False, local_addr=("127.0.0.2", 0), limit=GUESSERS)
    async with aiohttp.ClientSession(connector=source) as client:
        tasks = [asyncio.create_task(guess(client, number)) for number in range(GUESSERS)]
        # Of eight questions one client gets half.
        await until(lambda: len(waiting) >= MAX_QUESTIONS // 2, "made-up tokens to be reviewed")
        try:
            yield statuses
        finally:
            release.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.control("made-up-tokens")
async def test_made_up_tokens_at_one_address_keep_no_admin_at_another_waiting(
    page: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BURST", BURST)
    monkeypatch.setattr(guard, "BURST_OF_ALL", BURST_OF_ALL)
    opened = await page(signed_in(), "0.0.0.0:0")
    async with guessers(opened) as statuses:
        answers = [(await opened.get(path, token="GOOD"))[0] for path in ["/page", MATRIX] * (BURST // 2)]
    assert answers == [200] * BURST
    assert 200 not in statuses


@pytest.mark.control("markup-on-the-page")
async def test_what_a_tenant_writes_is_shown_and_does_nothing(page: Opened) -> None:
    long = HOSTILE + "x" * 2_000_000
    opened = await page(
        {NamespaceKey(HOSTILE): None, KubeVirtKey(): installed()}, namespaces=[labeled(HOSTILE, scheduling=HOSTILE)]
    )
    for text in (HOSTILE, long):
        change = Change(("metadata", "labels", text), text, {text: [text]}, "scheduler-injected")
        reasons = [Reason("scheduler-injected", text)]
        texts = dict.fromkeys(("namespace", "name", "user", "uid", "message"), text)
        opened.recorder.write(record(**texts, reasons=reasons, changes=[change], decision="denied"))

    paths = ["/page", "/page/decisions", "/page/decisions/1", "/page/decisions/2", "/page/reasons/scheduler-injected"]
    for path in paths:
        status, html = await opened.get(path)
        assert (status, opened.counted.crashes) == (200, [])
        assert "<script" not in html
        assert not re.search("[\x00-\x08\x1b\x7f-\x9f\u200b-\u200f\u2028-\u202e]", html)
        assert "&lt;script&gt;" in html
        assert len(html) < 300_000


@pytest.mark.control("markup-on-the-page")
async def test_hostile_questions_are_quoted(page: Opened) -> None:
    opened = await page()
    for name in ("namespace", "name", "to", "node"):
        _, html = await opened.get(f"/page/placement?{name}=%22%3E%3Cscript%3E%E2%80%AE")
        assert "<script" not in html
        assert r"&#34;&gt;&lt;script&gt;\u202e" in html
    _, html = await opened.get("/page?prefix=%22%3E%3Cscript%3E")
    assert "&#34;&gt;&lt;script&gt;" in html


async def test_health_is_on_the_overview(page: Opened) -> None:
    _, html = await (await page(missing=("nodes: 403",))).get()
    assert "Scheduler <bdi><strong>kubevirt</strong></bdi>: available" in html
    assert "nodes: 403" in html
