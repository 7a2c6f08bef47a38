"""One listener for all that admins and their tools read: each part below its path, with its own answers."""

from __future__ import annotations

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from tests import builders
from tests.policies.migration.world import facts
from tests.review.memory import MemoryCluster
from tests.server.conftest import CountedServer, Visit, Visitor
from webhook.server.admin import PAGE_PATH, admin_application
from webhook.server.explanations import explainer
from webhook.server.ops import METRICS_PATH, Rendering, metrics_application


def page() -> web.Application:
    async def shown(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    application = web.Application()
    application.router.add_get("", shown)
    return application


@pytest.fixture
async def admin(visit: Visit, counted: CountedServer) -> Visitor:
    """All parts, on a loopback address."""
    parts = {
        explainer.PATH: explainer.Explainer(
            MemoryCluster(facts()), counted, builders.settings, guarded=False
        ).application(),
        METRICS_PATH: metrics_application(Rendering(CollectorRegistry()), None, counted),
        PAGE_PATH: page(),
    }
    return await visit(admin_application(parts, counted, guarded=False))


@pytest.fixture
def counted() -> CountedServer:
    return CountedServer()


async def test_each_part_is_below_its_path(admin: Visitor) -> None:
    asked = f"{explainer.PATH}?namespace=demo&name=web01&to=zone=a"
    kinds = []
    for path in (asked, explainer.PATH, METRICS_PATH, PAGE_PATH):
        status, _ = await admin.get(path)
        kinds.append((status, admin.headers["Content-Type"].partition(";")[0]))
    assert kinds == [(200, "application/json"), (400, "application/json"), (200, "text/plain"), (200, "text/plain")]


async def test_the_root_leads_to_the_page(admin: Visitor, visit: Visit, counted: CountedServer) -> None:
    assert (await admin.get("/"))[0] == 302
    assert admin.headers["Location"] == PAGE_PATH
    assert ((await admin.get("/", "POST"))[0], admin.headers["Allow"]) == (405, "GET, HEAD")
    other = await visit(admin_application({METRICS_PATH: page()}, counted, guarded=False))
    assert (await other.get("/"))[0] == 404


@pytest.mark.parametrize("path", ["/x", "/v1/explain", "/pages", "/metricsx", "/healthz", "/page/../metricsx"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_elsewhere_is_nothing(admin: Visitor, counted: CountedServer, path: str, method: str) -> None:
    status, text = await admin.get(path, method)
    assert (status, "ask for /metrics, /page, /v1/explain/migration\n" in text) == (404, True)
    assert admin.headers["Cache-Control"] == "no-store"
    assert counted.crashes == []


@pytest.mark.parametrize("path", ["/x", "/", explainer.PATH])
async def test_another_host_is_denied(admin: Visitor, path: str) -> None:
    assert (await admin.get(path, Host="attacker.example"))[0] == 403


async def test_what_is_not_there_has_the_limit_of_what_is(admin: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> bool:
        return False

    monkeypatch.setattr("webhook.server.guard.ConnectionLimiter.wait", never)
    for path in ("/", "/x", explainer.PATH, METRICS_PATH):
        assert (await admin.get(path))[0] == 429
