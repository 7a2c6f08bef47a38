"""Records, a cluster and an open page, for the tests of the page."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

from tests import builders
from tests.policies.migration.world import facts
from tests.review.memory import MemoryCluster
from tests.server.listening import Crashes, Visitor, visited
from webhook import names
from webhook.admission.audit import SCHEMA, AuditedObject, Record, timestamp
from webhook.admission.decision import Change, Reason
from webhook.facts import Key
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.server.page.health import HealthCondition, HealthHistory, HealthSubject
from webhook.server.page.listener import PageHandler
from webhook.server.page.recorder import DecisionRecorder
from webhook.server.page.views import PageViews
from webhook.settings.model import Settings, is_loopback

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


class OpenPage(Visitor):
    """A client of an open page, and what is behind it."""

    def __init__(self, visitor: Visitor, recorder: DecisionRecorder, crashes: Crashes, cluster: PageCluster) -> None:
        super().__init__(visitor.url, visitor.client)
        self.recorder = recorder
        self.crashes = crashes
        self.cluster = cluster

    async def get(self, path: str = "/page", method: str = "GET", token: str = "", **headers: str) -> tuple[int, str]:
        return await super().get(path, method, token, **headers)


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
    cluster, crashes, recorder = PageCluster(facts() | (known or {}), namespaces), Crashes(), DecisionRecorder(Sunk())
    in_force = settings or builders.settings()
    conditions = {HealthSubject("scheduler", "kubevirt"): HealthCondition("good", "available", "it runs")}
    history = HealthHistory(lambda: conditions)
    history.sample()
    views = PageViews(cluster, lambda: in_force, recorder, history, lambda: missing)
    handler = PageHandler(cluster, views, crashes, guarded=not is_loopback(address))
    return OpenPage(await ends.enter_async_context(visited(handler, address)), recorder, crashes, cluster)
