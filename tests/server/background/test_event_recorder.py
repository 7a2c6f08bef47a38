"""Events at a fake API server; the real one takes them in tests/e2e/test_audit.py."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.fake_apiserver import FakeApiServer, FakeClock, running
from tests.waiting import until
from webhook.k8s.client.resources import EVENTS
from webhook.k8s.client.transport import connect
from webhook.server.background.event_recorder import CAPACITY, WINDOW_SECONDS, Event, EventWriter

REFUSED = Event("demo", "v1", "Namespace", "demo", "", "Denied", "no-eligible-node", "CREATE of x was refused: why")
DEMO = EVENTS.path("demo")


class RecorderCase:
    def __init__(self, server: FakeApiServer, api: Any, clock: FakeClock) -> None:
        self.server = server
        self.clock = clock
        self.writer = EventWriter(api, "replica-1", clock=clock)
        self.api = api

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self.server.held(EVENTS).values())


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[RecorderCase]:
    async with running(FakeApiServer()) as server:
        server.serve(EVENTS)
        transport = await connect(server.kubeconfig(tmp_path / "kubeconfig"))
        try:
            yield RecorderCase(server, transport, FakeClock())
        finally:
            await transport.close()


async def test_a_happening_is_an_event(case: RecorderCase) -> None:
    case.writer.add(REFUSED)
    assert case.server.asked == [], "nobody waits for it"
    await case.writer.write()

    (asked,) = case.server.asked
    sent = json.loads(asked.body)
    assert asked.path == DEMO
    assert sent.pop("metadata")["namespace"] == "demo"
    assert sent.pop("eventTime").endswith("Z")
    assert sent == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "type": "Warning",
        "reason": "Denied",
        "action": "Admission",
        "note": "CREATE of x was refused: why",
        "regarding": {"apiVersion": "v1", "kind": "Namespace", "namespace": "demo", "name": "demo"},
        "reportingController": "kubevirt-webhook.github.io/admission",
        "reportingInstance": "replica-1",
    }
    assert case.writer.results == {"written": 1, "repeated": 0, "dropped": 0, "failed": 0}


async def test_repeats_are_one_event_whose_series_counts(case: RecorderCase) -> None:
    for number in range(5):
        case.writer.add(msgspec.structs.replace(REFUSED, note=f"why {number}"))
        await case.writer.write()
    assert len(case.events) == 1
    assert "series" not in case.events[0], "not before its time"
    case.clock.time += WINDOW_SECONDS
    await case.writer.write()
    await case.writer.write()

    (event,) = case.events
    assert event["series"]["count"] == 5
    assert event["note"] == "why 0"
    assert [asked.verb for asked in case.server.asked] == ["post", "patch"]
    case.writer.add(REFUSED)
    await case.writer.write()
    assert len(case.events) == 2, "later, it is news again"


async def test_what_happened_once_is_left_as_it_is(case: RecorderCase) -> None:
    case.writer.add(REFUSED)
    await case.writer.write()
    case.clock.time += WINDOW_SECONDS
    await case.writer.write()

    assert len(case.server.asked) == 1


@pytest.mark.parametrize("field", ["namespace", "kind", "name", "reason", "code"])
async def test_others_are_events_of_their_own(case: RecorderCase, field: str) -> None:
    case.writer.add(REFUSED)
    case.writer.add(msgspec.structs.replace(REFUSED, **{field: "other"}))
    await case.writer.write()

    assert len(case.events) == 2


async def test_a_flood_is_dropped_and_counted_and_written_with_pauses(case: RecorderCase) -> None:
    for number in range(CAPACITY + 7):
        case.writer.add(msgspec.structs.replace(REFUSED, name=f"vm-{number}"))
    await case.writer.write()

    assert case.writer.results["dropped"] == 7
    assert len(case.events) == 10


async def test_long_notes_are_cut_to_bytes(case: RecorderCase) -> None:
    case.writer.add(msgspec.structs.replace(REFUSED, note="ä" * 2000, uid="u"))
    await case.writer.write()

    (event,) = case.events
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("ä…")
    assert event["regarding"]["uid"] == "u"


async def test_a_refusal_is_said_once_and_the_next_one_is_a_new_try(
    case: RecorderCase, caplog: pytest.LogCaptureFixture
) -> None:
    case.server.fail(DEMO, 403, times=2)
    for _ in range(3):
        case.writer.add(REFUSED)
        await case.writer.write()

    assert (case.writer.results["failed"], case.writer.results["written"]) == (2, 1)
    (said,) = caplog.messages
    assert said.endswith("grant create on events.events.k8s.io")
    assert "SECRET" not in said


async def test_a_server_that_is_away_costs_events_only(case: RecorderCase, caplog: pytest.LogCaptureFixture) -> None:
    await case.api.close()
    case.writer.add(REFUSED)
    await case.writer.write()

    assert case.writer.results["failed"] == 1
    assert "closed" in caplog.messages[0]


async def test_it_runs_until_it_is_cancelled_and_over_bugs(
    case: RecorderCase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(case.writer, "_event", lambda _: 1 / 0)
    task = asyncio.create_task(case.writer.run())
    case.writer.add(REFUSED)
    await until(lambda: caplog.messages)
    monkeypatch.undo()
    case.writer.add(msgspec.structs.replace(REFUSED, name="other"))
    await until(lambda: case.events)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert caplog.messages == ["Events: internal error"]
