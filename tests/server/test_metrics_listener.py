"""Metrics on a listener of their own: who may have them, and what asking costs the API server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from certs.source import self_signed
from tests.review.memory import MemoryCluster
from tests.waiting import break_off, until
from webhook.admission.wire import UserInfo
from webhook.cluster.access import _access
from webhook.errors import Unavailable
from webhook.facts import AccessKey, Key, TokenKey
from webhook.policies.common.required_facts import access_to_path
from webhook.server import authorizer, edge, ops, tls
from webhook.server.authorizer import MAX_KEPT, MAX_QUESTIONS, Authorizer
from webhook.server.ops import Rendering
from webhook.settings.syntax import is_loopback

PROMETHEUS = UserInfo("system:serviceaccount:monitoring:prometheus", "u1", ["system:serviceaccounts"], {"k": ["v"]})
# Of one client.
SHARE = MAX_QUESTIONS // 2
MAY = access_to_path(PROMETHEUS, "get", "/metrics")


class ScrapedCluster(MemoryCluster):
    """Knows one token; may be slow."""

    def __init__(self, known: dict[Key[Any], object]) -> None:
        facts: dict[Key[Any], object] = {TokenKey("GOOD"): PROMETHEUS, MAY: True}
        super().__init__(facts | known, peeked=set())
        self.slow = asyncio.Event()
        self.slow.set()

    async def read(self, key: Key[Any], deadline: float) -> Any:
        self.reads.append(key)
        await self.slow.wait()
        return self.facts.get(key)


class CrashingScrape:
    def __init__(self) -> None:
        self.seen: list[BaseException] = []

    def on_crash(self, path: str, error: BaseException) -> None:
        self.seen.append(error)


class Scraper:
    def __init__(
        self, url: str, cluster: ScrapedCluster, crashes: CrashingScrape, client: aiohttp.ClientSession
    ) -> None:
        self.url, self.cluster, self.crashes, self._client = url, cluster, crashes, client

    async def get(self, token: str = "", path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._client.request(method, self.url + path, headers=headers) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()


Open = Callable[..., Awaitable[Scraper]]


@pytest.fixture
async def scraper(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    ends: list[Any] = []
    monkeypatch.setattr(edge, "BURST", 1000)
    monkeypatch.setattr(edge, "BURST_OF_ALL", 1000)

    async def start(known: dict[Key[Any], object] | None = None, address: str = "0.0.0.0:0") -> Scraper:
        pair = self_signed(["localhost", "127.0.0.1"])
        registry, cluster, crashes = CollectorRegistry(), ScrapedCluster(known or {}), CrashingScrape()
        Counter("seen_total", "Seen.", registry=registry)
        listener = tls.context(pair.certificate, pair.key)
        checks = None if is_loopback(address) else Authorizer(cluster, ops.METRICS_PATH)
        scraped = ops.Ops(Rendering(registry), None, crashes, checks)
        context = scraped.listening(address, listener, "metrics.listen", 1.0)
        url = await context.__aenter__()
        trust = ssl.create_default_context(cadata=pair.authority.decode())
        client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust))
        ends.extend((client.close, lambda: context.__aexit__(None, None, None)))
        return Scraper(url.replace("0.0.0.0", "127.0.0.1"), cluster, crashes, client)

    yield start
    for end in ends:
        await end()
    await break_off()


async def test_who_may_gets_metrics_over_tls(scraper: Open) -> None:
    asking = await scraper()

    assert asking.url.startswith("https://")
    status, text = await asking.get("GOOD")
    assert status == 200
    assert "seen_total 0.0" in text
    assert (await asking.get("GOOD", method="HEAD"))[0] == 200


async def test_a_loopback_listener_asks_nobody(scraper: Open) -> None:
    asking = await scraper(address="127.0.0.1:0")

    assert asking.url.startswith("http://")
    assert (await asking.get())[0] == 200
    assert asking.cluster.reads == []


@pytest.mark.parametrize(
    ("token", "known", "status"),
    [
        ("", {}, 401),
        ("BAD", {}, 401),
        ("GOOD", {MAY: False}, 403),
        ("GOOD", {TokenKey("GOOD"): Unavailable("no answer")}, 503),
        ("GOOD", {MAY: Unavailable("no answer")}, 503),
    ],
)
async def test_the_others_don_t(token: str, known: dict[Key[Any], object], status: int, scraper: Open) -> None:
    asking = await scraper(known)

    got, text = await asking.get(token)
    assert got == status
    assert "seen_total" not in text
    assert "WWW-Authenticate" in asking.headers or status != 401


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/", "GET", 404), ("/healthz", "GET", 404), ("/metrics", "POST", 405)]
)
async def test_nothing_else_is_there(path: str, method: str, status: int, scraper: Open) -> None:
    asking = await scraper()

    assert (await asking.get("GOOD", path, method))[0] == status
    assert asking.cluster.reads == []


async def test_answers_are_kept_for_a_while_and_not_for_ever(scraper: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = await scraper()
    for _ in range(5):
        assert (await asking.get("GOOD"))[0] == 200
        assert (await asking.get("BAD"))[0] == 401
    assert len(asking.cluster.reads) == 3, "a good token and its right, a bad token"

    monkeypatch.setattr(authorizer, "KEPT_SECONDS", -1.0)
    asking.cluster.facts[MAY] = False
    assert (await asking.get("OTHER"))[0] == 401
    asking.cluster.reads.clear()
    assert (await asking.get("OTHER"))[0] == 401
    assert len(asking.cluster.reads) == 1


async def test_what_is_not_known_is_not_kept(scraper: Open) -> None:
    asking = await scraper({MAY: Unavailable("no answer")})
    assert (await asking.get("GOOD"))[0] == 503
    asking.cluster.facts[MAY] = True

    assert (await asking.get("GOOD"))[0] == 200


async def test_guessers_fill_no_memory_and_are_few_questions_at_a_time(
    scraper: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = await scraper()
    for number in range(MAX_KEPT + 10):
        assert (await asking.get(f"GUESS{number}"))[0] == 401
    asking.cluster.reads.clear()
    assert (await asking.get("GUESS0"))[0] == 401
    assert len(asking.cluster.reads) == 1, "it was forgotten"

    monkeypatch.setattr(authorizer, "PATIENCE_SECONDS", 0.05)
    asking.cluster.slow.clear()
    tasks = [asyncio.create_task(asking.get(f"X{number}")) for number in range(SHARE)]
    await until(lambda: len(asking.cluster.reads) == 1 + SHARE)
    assert (await asking.get("Y"))[0] == 429
    asking.cluster.slow.set()
    assert [status for status, _ in await asyncio.gather(*tasks)] == [401] * SHARE


async def test_a_bug_is_told_and_answered(scraper: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = await scraper()
    monkeypatch.setattr(ops, "header_lines", lambda _: 1 / 0)

    status, text = await asking.get("GOOD")
    assert status == 500
    assert "division" not in text
    assert [type(error) for error in asking.crashes.seen] == [ZeroDivisionError]


def test_the_right_is_that_to_a_path() -> None:
    assert _access(MAY) == {
        "user": PROMETHEUS.username,
        "groups": ["system:serviceaccounts"],
        "uid": "u1",
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
    }
    other = AccessKey("u", (), "", (), "get", "", "pods", "n")
    assert _access(other)["resourceAttributes"] == {"verb": "get", "group": "", "resource": "pods", "namespace": "n"}
    assert "nonResourceAttributes" not in _access(other)
