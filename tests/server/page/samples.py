"""Records, a cluster and an open page, for the tests of the page."""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

from certs.source import self_signed
from tests import builders
from tests.policies.migration.world import facts
from tests.review.memory import MemoryCluster
from webhook import names
from webhook.admission.audit import SCHEMA, AuditedObject, Record, timestamp
from webhook.admission.decision import Change, Reason
from webhook.facts import Key
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.server import tls
from webhook.server.page.health import HealthCondition, HealthHistory, HealthSubject
from webhook.server.page.listener import PageHandler
from webhook.server.page.recorder import DecisionRecorder
from webhook.server.page.views import PATH, PageViews
from webhook.settings.model import Settings
from webhook.settings.syntax import is_loopback

PODS = "/mutate/scheduling/pods/enforce"
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m\"'&\n\x00"


def record(
    *,
    namespace: str = "demo",
    name: str = "web01",
    decision: Any = "patched",
    reasons: Iterable[Reason] = (Reason("scheduler-injected", "schedulerName is set"),),
    changes: Iterable[Change] = (),
    **more: Any,
) -> Record:
    """An audit record."""
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "time": timestamp(time.time()),
        "uid": "u1",
        "endpoint": PODS,
        "operation": "CREATE",
        "object": AuditedObject("Pod", namespace, name),
        "user": "alice",
        "dry_run": False,
        "mode": names.ENFORCE,
        "decision": decision,
        "reasons": tuple(reasons),
        "changes": tuple(changes),
        "message": None,
        "duration_ms": 0.5,
        "freshness": {},
    }
    return Record(**fields | more)


class Sunk:
    """A sink that keeps the records."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)


class PageCluster(MemoryCluster):
    """A cluster in memory whose namespaces can be listed."""

    def __init__(self, known: dict[Key[Any], object], namespaces: Iterable[Namespace] = ()) -> None:
        super().__init__(known)
        self._namespaces = tuple(namespaces)

    def namespaces(self) -> tuple[Namespace, ...]:
        return self._namespaces


def labeled(name: str, **modes: str) -> Namespace:
    """A namespace; keywords are modes by policy."""
    policies: Any = modes
    labels = {names.policy_label(policy): mode for policy, mode in policies.items()}
    return Namespace(ObjectMeta(name=name, labels=labels))


class PageCrashes:
    """Exceptions at the edge of the page."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def on_crash(self, path: str, error: BaseException) -> None:
        self.errors.append(error)


class OpenPage:
    """A listener of the page, and a client of it."""

    def __init__(self, url: str, recorder: DecisionRecorder, crashes: PageCrashes, cluster: PageCluster) -> None:
        self.url = url.replace("0.0.0.0", "127.0.0.1").removesuffix("/page")
        self.recorder = recorder
        self.crashes = crashes
        self.cluster = cluster
        self.client: aiohttp.ClientSession | None = None

    async def get(self, path: str = "/page", method: str = "GET", token: str = "", **headers: str) -> tuple[int, str]:
        assert self.client
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        options: Any = {"headers": headers | bearer, "allow_redirects": False}
        async with self.client.request(method, self.url + path, **options) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()


Opened = Callable[..., Awaitable[OpenPage]]


async def opened(
    ends: AsyncExitStack,
    known: dict[Key[Any], object] | None = None,
    address: str = "127.0.0.1:0",
    *,
    namespaces: Iterable[Namespace] = (),
    settings: Settings | None = None,
    missing: tuple[str, ...] = (),
) -> OpenPage:
    """Open a page over the world of the migration policy's tests, until the stack ends."""
    cluster, crashes, recorder = (
        PageCluster(facts() | (known or {}), namespaces),
        PageCrashes(),
        DecisionRecorder(Sunk()),
    )
    in_force = settings or builders.settings()
    history = HealthHistory(
        lambda: {HealthSubject("scheduler", "kubevirt"): HealthCondition("good", "available", "it runs")}
    )
    history.sample()
    views = PageViews(cluster, lambda: in_force, recorder, history, lambda: missing)
    pair = self_signed(["localhost", "127.0.0.1"])
    handler = PageHandler(cluster, views, crashes, guarded=not is_loopback(address))
    context = handler.listening(address, tls.context(pair.certificate, pair.key), "page.listen", 1.0)
    page = OpenPage(await ends.enter_async_context(context) + PATH, recorder, crashes, cluster)
    trust = ssl.create_default_context(cadata=pair.authority.decode())
    page.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust))
    ends.push_async_callback(page.client.close)
    return page
