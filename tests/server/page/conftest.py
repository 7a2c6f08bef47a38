from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.admission.audit_schema import record as audit_record
from tests.policies.migration.world import facts
from tests.review.memory import MemoryCluster
from tests.server.conftest import CountedServer, Visit, Visitor
from tests.waiting import break_off
from webhook import names
from webhook.admission.audit import AuditedObject, Record, timestamp
from webhook.admission.decision import Change, Reason
from webhook.facts import Key
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.server import guard
from webhook.server.admin import PAGE_PATH, admin_application
from webhook.server.page.health import HealthCondition, HealthHistory, HealthSubject
from webhook.server.page.listener import PageHandler
from webhook.server.page.recorder import DecisionRecorder
from webhook.server.page.renderer import PageRenderer
from webhook.server.page.views import PageViews
from webhook.settings.fields import is_loopback
from webhook.settings.model import Settings

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
    fields: dict[str, Any] = {"time": timestamp(time.time()), "user": "alice", "decision": decision, "message": None}
    fields |= {"object": AuditedObject("Pod", namespace, name), "reasons": tuple(reasons), "changes": tuple(changes)}
    return msgspec.structs.replace(audit_record("u1"), **fields | more)


def labeled(name: str, **modes: str) -> Namespace:
    """A namespace; keywords are modes by policy."""
    policies: Any = modes
    labels = {names.policy_label(policy): mode for policy, mode in policies.items()}
    return Namespace(ObjectMeta(name=name, labels=labels))


class OpenPage(Visitor):
    """A client of an open page, and what is behind it."""

    def __init__(
        self, visitor: Visitor, recorder: DecisionRecorder, counted: CountedServer, cluster: MemoryCluster
    ) -> None:
        super().__init__(visitor.client)
        self.recorder = recorder
        self.counted = counted
        self.cluster = cluster

    async def get(self, path: str = "/page", method: str = "GET", token: str = "", **headers: str) -> tuple[int, str]:
        return await super().get(path, method, token, **headers)


Opened = Callable[..., Awaitable[OpenPage]]


async def opened(
    visit: Visit,
    known: dict[Key[Any], object] | None = None,
    address: str = "127.0.0.1:0",
    *,
    namespaces: Iterable[Namespace] = (),
    settings: Settings | None = None,
    missing: tuple[str, ...] = (),
) -> OpenPage:
    """Open a page over the world of the migration policy's tests, until the test ends."""
    cluster, counted = MemoryCluster(facts() | (known or {}), listed=namespaces), CountedServer()
    recorder = DecisionRecorder()
    in_force = settings or builders.settings()
    conditions = {HealthSubject("scheduler", "kubevirt"): HealthCondition("good", "available", "it runs")}
    history = HealthHistory(lambda: conditions)
    history.sample()
    views = PageViews(cluster, lambda: in_force, recorder, history, lambda: missing)
    guarded = not is_loopback(address)
    part = PageHandler(cluster, views, counted, guarded=guarded).application()
    application = admin_application({PAGE_PATH: part}, counted, guarded=guarded)
    return OpenPage(await visit(application, address), recorder, counted, cluster)


# To compile the templates takes longer than all that a test asks.
RENDERER = PageRenderer()


@pytest.fixture
async def page(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    """Opens pages that answer as fast as they are asked."""
    monkeypatch.setattr(guard, "BURST", 1000)
    monkeypatch.setattr(guard, "BURST_OF_ALL", 1000)
    monkeypatch.setattr("webhook.server.page.listener.PageRenderer", lambda: RENDERER)
    yield partial(opened, visit)
    await break_off()
