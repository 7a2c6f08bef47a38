"""Metrics and health over HTTP; tokens at an authorizer: one question for each, kept for a while, and few at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from aiohttp import web
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests import builders
from tests.builders import known, launcher_pod, review, vmi
from tests.review.memory import MemoryCluster
from tests.server.conftest import SlowCluster, Visit
from tests.waiting import other_turns, until
from webhook.admission.audit import NoAudit
from webhook.admission.wire import UserInfo
from webhook.cluster.access import _access
from webhook.errors import Unavailable
from webhook.facts import AccessKey, Key, TokenKey, Unreadable
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Reviewer
from webhook.server import authorizer, guard
from webhook.server.admin import admin_application
from webhook.server.answers import RequestDenied
from webhook.server.authorizer import MAX_KEPT, MAX_QUESTIONS, Authorizer
from webhook.server.guard import Limits
from webhook.server.listener import Listener, serving, split_address
from webhook.server.ops import METRICS_PATH, Health, Metrics, MetricsState, Rendering, StateMetric, metrics_application

PODS = "/mutate/scheduling/pods/enforce"


@pytest.fixture
def counted() -> Metrics:
    return Metrics(BY_PATH, lambda *_: None)


class CountedRendering(Rendering):
    count = 0

    async def _render(self) -> bytes:
        self.count += 1
        return await super()._render()


@pytest.fixture
def rendering(counted: Metrics) -> CountedRendering:
    return CountedRendering(counted.registry)


def ops_app(counted: Metrics, waiting_for: Callable[[], tuple[str, ...]] = tuple) -> web.Application:
    return Health(waiting_for, Rendering(counted.registry), counted).application()


Series = tuple[str, frozenset[tuple[str, str]]]


def metric(name: str, **labels: str) -> Series:
    return f"kubevirt_webhook_{name}", frozenset(labels.items())


def values(text: str) -> dict[Series, float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_requests_and_decisions_are_counted(visit: Visit, counted: Metrics) -> None:
    reviewer = Reviewer(MemoryCluster(known(vmi())), builders.settings, NoAudit(), counted)
    for dry_run in (False, False, True):
        await reviewer.review(BY_PATH[PODS], msgspec.json.encode(review(launcher_pod(), dryRun=dry_run)), 1e9)
    counted.on_served(PODS, 200, 0.0007)

    _, text = await (await visit(ops_app(counted))).get("/metrics")
    seen = values(text)

    labels = {"policy": "scheduling", "resource": "pods", "mode": "enforce", "decision": "patched"}
    labels["reason"] = "scheduler-injected"
    decided = [seen[metric("decisions_total", **labels, dry_run=dry_run)] for dry_run in ("false", "true")]
    assert (decided, seen[metric("requests_total", webhook=PODS, code="200")]) == ([2, 1], 1)
    assert [seen[metric("latency_seconds_bucket", webhook=PODS, le=le)] for le in ("0.0005", "0.001")] == [0, 1]


@pytest.mark.control("forged-probes", "metrics-reveal-names")
async def test_no_label_is_unbounded(visit: Visit, counted: Metrics) -> None:
    """Whatever names arrive, no new series appear."""
    reviewer = Reviewer(MemoryCluster(known(None)), builders.settings, NoAudit(), counted)
    for number in range(20):
        pod = launcher_pod()
        pod["metadata"]["labels"] = {}
        pod["metadata"]["generateName"] = f"pod-{number}-"
        await reviewer.review(BY_PATH[PODS], msgspec.json.encode(review(pod, user=f"user-{number}")), 1e9)
    _, text = await (await visit(ops_app(counted))).get("/metrics")
    series = [labels for name, labels in values(text) if name == "kubevirt_webhook_decisions_total"]
    assert len(series) == 1
    assert "user-1" not in text


def test_explanations_are_counted_by_code(counted: Metrics) -> None:
    for status in (200, 401, 401):
        counted.on_explained(status)
    name = "kubevirt_webhook_explain_requests_total"
    counts = [counted.registry.get_sample_value(name, {"code": code}) for code in ("200", "401", "503")]
    assert counts == [1, 2, 0]


def test_bugs_are_counted_and_logged() -> None:
    logged: list[tuple[str, str, BaseException]] = []
    counted, error = Metrics(BY_PATH, lambda *line: logged.append(line)), ValueError("x")
    counted.on_failure(BY_PATH[PODS], error)
    counted.on_crash(PODS, error)
    assert counted.registry.get_sample_value("kubevirt_webhook_panics_total", {"webhook": PODS}) == 2
    assert [details[1:] for details in logged] == [(PODS, error)] * 2


@pytest.mark.control("forged-probes")
@pytest.mark.parametrize(("missing", "status"), [((), 200), (("namespaces: 403", "scheduler kubevirt"), 503)])
async def test_readiness_says_what_it_waits_for(
    visit: Visit, counted: Metrics, missing: tuple[str, ...], status: int
) -> None:
    ops = await visit(ops_app(counted, lambda: missing))
    code, text = await ops.get("/readyz")
    assert (code, all(f"waiting for {item}\n" in text for item in missing)) == (status, True)
    assert await ops.get("/healthz") == (200, "ok\n"), "alive while not ready"


@pytest.mark.control("stale-watches")
async def test_state_is_read_at_the_scrape(visit: Visit, counted: Metrics) -> None:
    now = {"kubevirt": 1.0}
    found: dict[tuple[str, ...], float] = {("scheduling", "pods"): 2.0}
    state = MetricsState(
        [
            StateMetric("kubevirt_webhook_scheduler_available", "Alive.", lambda: now, ("scheduler",)),
            StateMetric("kubevirt_webhook_ready", "Ready.", lambda: 1),
            StateMetric("kubevirt_webhook_drift_objects", "Found.", lambda: found, ("policy", "resource")),
            StateMetric("kubevirt_webhook_audit_dropped_total", "Dropped.", lambda: 3),
        ]
    )
    counted.registry.register(state)
    now["kubevirt"] = 0.0

    _, text = await (await visit(ops_app(counted))).get("/metrics")

    expected = {
        metric("scheduler_available", scheduler="kubevirt"): 0,
        metric("ready"): 1,
        metric("drift_objects", policy="scheduling", resource="pods"): 2,
        metric("audit_dropped_total"): 3,
    }
    assert expected.items() <= values(text).items()


@pytest.fixture
async def opened(counted: Metrics, rendering: CountedRendering) -> AsyncIterator[tuple[Listener, int]]:
    """The server of a listener, and its port."""
    server = Listener(Health(tuple, rendering, counted).application(), Limits())
    async with serving(server, "127.0.0.1:0", None, "--ops-listen", 0.0) as address:
        yield server, split_address(address)[1]


async def get(port: int, path: str) -> int:
    """The status of an answer on a connection of its own; 0 where there was none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    try:
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    writer.close()
    return int(answer.split()[1]) if answer else 0


async def test_the_text_is_that_of_the_library(counted: Metrics) -> None:
    counted.on_served(PODS, 200, 0.0007)
    assert await Rendering(counted.registry).text() == generate_latest(counted.registry)


@pytest.mark.control("scrape-floods")
async def test_all_who_ask_within_a_second_share_one_rendering(
    counted: Metrics, rendering: CountedRendering, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = await asyncio.gather(*(rendering.text() for _ in range(200)))
    assert (rendering.count, len(set(map(id, texts)))) == (1, 1)
    assert await rendering.text() is texts[0]
    monkeypatch.setattr(rendering, "_until", asyncio.get_running_loop().time())
    counted.on_served(PODS, 200, 0.0007)
    assert await rendering.text() != texts[0]
    assert rendering.count == 2


@pytest.mark.control("scrape-floods")
async def test_others_come_between_the_metrics_of_a_rendering(counted: Metrics) -> None:
    async with other_turns() as turns:
        await Rendering(counted.registry).text()
    assert len(turns) > len(list(counted.registry.collect()))


async def test_one_who_goes_takes_nothing_from_the_others(rendering: CountedRendering) -> None:
    first, second = (asyncio.create_task(rendering.text()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second
    assert rendering.count == 1


async def test_a_rendering_that_fails_is_tried_anew(counted: Metrics, rendering: CountedRendering) -> None:
    failing = MetricsState([StateMetric("x", "X.", lambda: 1 / 0)])
    # One that describes no metrics to the registry beforehand.
    counted.registry.register(Mock(collect=failing.collect, describe=tuple))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await rendering.text()
    assert rendering.count == 2


@pytest.mark.control("scrape-floods")
async def test_a_flood_of_scrapers_is_rendered_once_and_ends_oldest_first(
    rendering: CountedRendering, opened: tuple[Listener, int]
) -> None:
    server, port = opened
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
    await until(lambda: len(server.open) == Limits().per_client)
    assert await get(port, "/healthz") == 200, "a probe always gets through"
    assert (await get(port, "/metrics"), rendering.count) == (200, 1)
    for _, writer in idle:
        writer.close()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long requests have waited, which they no longer do."""
    seconds, sleep = list[float](), asyncio.sleep

    async def noted(delay: float) -> None:
        seconds.append(delay)
        await sleep(0)

    monkeypatch.setattr("webhook.server.guard.asyncio.sleep", noted)
    return seconds


@pytest.mark.control("scrape-floods")
async def test_requests_that_cost_something_wait_for_their_turn(
    slept: list[float], opened: tuple[Listener, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "PER_SECOND", 0.1)
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 45.0)
    _, port = opened
    for _ in range(24):
        assert await get(port, "/metrics") == 200
    assert (len([seconds for seconds in slept if seconds > 0]), await get(port, "/metrics")) == (4, 429)
    slept.clear()
    for _ in range(25):
        assert await get(port, "/healthz") == 200
    assert not any(slept), "probes don't wait"


@pytest.mark.control("idle-ops-connections")
async def test_a_connection_that_asks_for_health_again_and_again_waits(
    slept: list[float], opened: tuple[Listener, int]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", opened[1])
    slept.clear()
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
    for _ in range(10):
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
    assert len([seconds for seconds in slept if seconds > 0]) == 9
    writer.close()


def test_every_listener_but_for_those_of_the_cluster_ends_connections_after_a_minute() -> None:
    assert Limits().abort_seconds <= 60


@pytest.mark.control("metrics-reveal-names")
async def test_where_metrics_are_served_elsewhere(visit: Visit, counted: Metrics) -> None:
    ops = await visit(Health(tuple, None, counted).application())
    status, text = await ops.get("/metrics")
    assert (status, "ask for /healthz, /readyz\n" in text) == (404, True)
    assert (await ops.get("/healthz", "POST"))[0] == 405


PROMETHEUS = UserInfo("system:serviceaccount:monitoring:prometheus", "u1", ["system:serviceaccounts"], {"k": ["v"]})
MAY = AccessKey.of_path(PROMETHEUS, "get", "/metrics")


@pytest.mark.control("metrics-reveal-names")
@pytest.mark.parametrize("address", ["0.0.0.0:0", "127.0.0.1:0"])
async def test_on_a_listener_of_their_own_metrics_take_a_token_but_on_loopback(
    visit: Visit, counted: Metrics, address: str
) -> None:
    """What becomes of tokens at every listener is shown below."""
    cluster = MemoryCluster({TokenKey("GOOD"): PROMETHEUS, MAY: True, TokenKey("BAD"): None}, peeked=set())
    guarded = address != "127.0.0.1:0"
    token_checks = Authorizer(cluster, METRICS_PATH) if guarded else None
    part = metrics_application(Rendering(counted.registry), token_checks, counted)
    application = admin_application({METRICS_PATH: part}, counted, guarded=guarded)
    visitor = await visit(application, address)
    assert visitor.url.startswith("https://" if guarded else "http://127.0.0.1:")
    for path, method, status in (("/", "GET", 404), ("/healthz", "GET", 404), ("/metrics", "POST", 405)):
        assert (await visitor.get(path, method, "GOOD"))[0] == status
    for token in ("", "BAD"):
        assert (await visitor.get("/metrics", token=token))[0] == (401 if guarded else 200)
    status, text = await visitor.get("/metrics", token="GOOD")
    assert (status, (await visitor.get("/metrics", "HEAD", "GOOD"))[0]) == (200, 200)

    assert "kubevirt_webhook_requests_total" in text
    assert cluster.reads == ([TokenKey("BAD"), TokenKey("GOOD"), MAY] if guarded else [])


@pytest.mark.control("metrics-reveal-names")
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


# Of one client, who gets half of what is free.
SHARE = MAX_QUESTIONS // 2
KNOWN: dict[Key[Any], object] = {TokenKey("GOOD"): PROMETHEUS, MAY: True}


@pytest.mark.control("metrics-reveal-names", "made-up-tokens")
@pytest.mark.parametrize(
    ("known", "status", "reads"),
    [
        ({}, 200, [TokenKey("GOOD"), MAY]),
        ({TokenKey("GOOD"): None}, 401, [TokenKey("GOOD")]),
        ({MAY: False}, 403, [TokenKey("GOOD"), MAY]),
        # What is not known is asked again.
        ({MAY: Unavailable("no answer")}, 503, [TokenKey("GOOD"), MAY] * 3),
    ],
)
async def test_an_answer_is_kept_for_the_path_of_the_authorizer(
    known: dict[Key[Any], object], status: int, reads: list[Key[Any]]
) -> None:
    cluster = MemoryCluster(KNOWN | known, peeked=set())
    guard, statuses = Authorizer(cluster, METRICS_PATH), list[int]()
    for _ in range(3):
        try:
            await guard.admit("GOOD", "10.0.0.1")
            statuses.append(200)
        except RequestDenied as denied:
            statuses.append(denied.status)
        except Unreadable:
            statuses.append(503)
    assert (statuses, cluster.reads) == ([status] * 3, reads)


@pytest.mark.control("made-up-tokens")
async def test_an_answer_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "KEPT_SECONDS", -1.0)
    cluster = MemoryCluster(dict(KNOWN), peeked=set())
    guard = Authorizer(cluster, METRICS_PATH)
    await guard.admit("GOOD", "10.0.0.1")
    cluster.facts[MAY] = False
    with pytest.raises(RequestDenied):
        await guard.admit("GOOD", "10.0.0.1")


@pytest.mark.control("made-up-tokens")
async def test_guessers_fill_no_memory_and_are_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "PATIENCE_SECONDS", 0.05)
    known: dict[Key[Any], object] = {TokenKey(str(number)): None for number in range(200)}
    slow = SlowCluster(known, set())
    guard = Authorizer(slow, METRICS_PATH)
    guesses = [asyncio.create_task(guard.admit(str(number), "10.0.0.1")) for number in range(SHARE + 3)]
    await until(lambda: slow.waiting == SHARE, "half of the questions to be asked")
    await until(lambda: sum(guess.done() for guess in guesses) == 3, "the others to be denied")
    await Authorizer(MemoryCluster(KNOWN, peeked=set()), METRICS_PATH).admit("GOOD", "10.0.0.2")
    slow.release.set()
    refused = await asyncio.gather(*guesses, return_exceptions=True)
    assert sorted(error.status for error in refused if isinstance(error, RequestDenied)) == [401] * SHARE + [429] * 3

    for number in range(200):
        with pytest.raises(RequestDenied):
            await guard.admit(str(number), "10.0.0.1")
    assert guard._kept.currsize == MAX_KEPT
