from __future__ import annotations

from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from tests import builders
from tests.builders import known, launcher_pod, review, vmi
from tests.test_reviewer import MemoryCluster
from webhook.admission.audit import NoAudit
from webhook.policies.table import BY_PATH
from webhook.reviewer import Reviewer
from webhook.server.ops import Metrics, State, ops_app

PODS = "/mutate/scheduling/pods/enforce"
Logged = list[tuple[str, str, BaseException]]


def metrics() -> tuple[Metrics, Logged]:
    logged: Logged = []
    return Metrics(BY_PATH, lambda *line: logged.append(line)), logged


async def scrape(application: web.Application, path: str, aiohttp_client: Any) -> tuple[int, str]:
    client = await aiohttp_client(application)
    answer: aiohttp.ClientResponse = await client.get(path)
    return answer.status, await answer.text()


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_requests_and_decisions_are_counted(aiohttp_client: Any) -> None:
    counted, _ = metrics()
    reviewer = Reviewer(MemoryCluster(known(vmi())), builders.settings, NoAudit(), counted)
    for dry_run in (False, False, True):
        await reviewer.review(BY_PATH[PODS], msgspec.json.encode(review(launcher_pod(), dryRun=dry_run)), 1e9)
    counted.served(PODS, 200, 0.0007)

    _, text = await scrape(ops_app(counted.registry, lambda: ()), "/metrics", aiohttp_client)
    seen = values(text)

    labels = {
        "job": "scheduling",
        "resource": "pods",
        "mode": "enforce",
        "decision": "patched",
        "reason": "scheduler-injected",
    }
    assert seen["kubevirt_webhook_decisions_total", frozenset((labels | {"dry_run": "false"}).items())] == 2
    assert seen["kubevirt_webhook_decisions_total", frozenset((labels | {"dry_run": "true"}).items())] == 1
    assert seen["kubevirt_webhook_requests_total", frozenset({("webhook", PODS), ("code", "200")})] == 1
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in seen.items()
        if name == "kubevirt_webhook_latency_seconds_bucket" and ("webhook", PODS) in labels
    }
    assert (buckets["0.0005"], buckets["0.001"]) == (0, 1)


async def test_no_label_is_unbounded(aiohttp_client: Any) -> None:
    """Whatever names arrive, no new series appear."""
    counted, _ = metrics()
    reviewer = Reviewer(MemoryCluster(known(None)), builders.settings, NoAudit(), counted)
    for number in range(20):
        pod = launcher_pod()
        pod["metadata"]["labels"] = {}
        pod["metadata"]["generateName"] = f"pod-{number}-"
        await reviewer.review(BY_PATH[PODS], msgspec.json.encode(review(pod, user=f"user-{number}")), 1e9)

    _, text = await scrape(ops_app(counted.registry, lambda: ()), "/metrics", aiohttp_client)

    series = [labels for name, labels in values(text) if name == "kubevirt_webhook_decisions_total"]
    assert len(series) == 1
    assert "user-1" not in text


def test_explanations_are_counted_by_code() -> None:
    counted, _ = metrics()
    for status in (200, 401, 401):
        counted.explained(status)

    name = "kubevirt_webhook_explain_requests_total"
    counts = [counted.registry.get_sample_value(name, {"code": code}) for code in ("200", "401", "503")]
    assert counts == [1, 2, 0]


def test_bugs_are_counted_and_logged() -> None:
    counted, logged = metrics()
    error = ValueError("x")
    counted.failed(BY_PATH[PODS], error)
    counted.crashed(PODS, error)

    assert counted.registry.get_sample_value("kubevirt_webhook_panics_total", {"webhook": PODS}) == 2
    assert logged == [("request met a bug", PODS, error)] * 2


@pytest.mark.parametrize(("missing", "status"), [((), 200), (("namespaces: 403", "scheduler kubevirt"), 503)])
async def test_readiness_says_what_it_waits_for(missing: tuple[str, ...], status: int, aiohttp_client: Any) -> None:
    counted, _ = metrics()
    code, text = await scrape(ops_app(counted.registry, lambda: missing), "/readyz", aiohttp_client)

    assert code == status
    assert all(f"waiting for {item}\n" in text for item in missing)


async def test_health_is_alive_while_not_ready(aiohttp_client: Any) -> None:
    counted, _ = metrics()

    assert await scrape(ops_app(counted.registry, lambda: ("x",)), "/healthz", aiohttp_client) == (200, "ok\n")


async def test_state_is_read_at_the_scrape(aiohttp_client: Any) -> None:
    counted, _ = metrics()
    now = {"kubevirt": 1.0}
    found: dict[tuple[str, ...], float] = {("scheduling", "pods"): 2.0}
    state = State(
        {
            "kubevirt_webhook_scheduler_alive": ("Alive.", lambda: now),
            "kubevirt_webhook_ready": ("Ready.", lambda: {"": 1}),
            "kubevirt_webhook_unenforced_objects": ("Found.", lambda: found),
        },
        {"kubevirt_webhook_audit_dropped_total": ("Dropped.", lambda: {"": 3})},
        {
            "kubevirt_webhook_scheduler_alive": "scheduler",
            "kubevirt_webhook_unenforced_objects": ("job", "resource"),
        },
    )
    counted.registry.register(state)
    now["kubevirt"] = 0.0

    _, text = await scrape(ops_app(counted.registry, lambda: ()), "/metrics", aiohttp_client)

    seen = values(text)
    assert seen["kubevirt_webhook_scheduler_alive", frozenset({("scheduler", "kubevirt")})] == 0
    assert seen["kubevirt_webhook_ready", frozenset()] == 1
    of = frozenset({("job", "scheduling"), ("resource", "pods")})
    assert seen["kubevirt_webhook_unenforced_objects", of] == 2
    assert seen["kubevirt_webhook_audit_dropped_total", frozenset()] == 3
    assert any(name == "kubevirt_webhook_build_info" for name, _ in seen)
