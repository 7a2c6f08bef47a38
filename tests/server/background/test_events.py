"""Which decisions become Kubernetes Events, and how these are written."""

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

from tests.builders import UNAVAILABLE, VMI_UID, Json, known, launcher_pod, review, vm, vmi
from tests.cluster.fake_apiserver import FakeApiServer, FakeClock, running
from tests.policies.eviction import world as evictions
from tests.review.memory import PODS, PODS_OBSERVED, VMS, KeptInMemory, evaluate
from tests.server.background.decisions import DENIED
from tests.waiting import until
from webhook import names
from webhook.admission.decision import Decision, Reason
from webhook.admission.reasons import scheduling as reasons
from webhook.facts import NamespaceKey
from webhook.k8s.client.transport import connect
from webhook.k8s.resources import EVENTS
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.review.endpoints import BY_PATH, Endpoint
from webhook.server.background.events import CAPACITY, WINDOW_SECONDS, Event, EventObserver, EventWriter, event_of

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


EVICTIONS = BY_PATH["/mutate/eviction/pods/enforce"]


def said(body: Json, endpoint: Endpoint, decision: Decision | None = None, **facts: Any) -> Event | None:
    if decision is not None:
        endpoint = msgspec.structs.replace(endpoint, handler=lambda *_: decision)
    return event_of(endpoint, evaluate(body, known(vmi(), **facts), endpoint)[0])


def test_a_refused_creation_is_told_of_the_namespace() -> None:
    event = said(review(vm()), VMS, DENIED)

    note = "kubevirt-webhook (scheduling): CREATE of VirtualMachine web01 was denied: it cannot be [no]"
    assert event == Event("demo", "v1", "Namespace", "demo", "", "Denied", "no", note)


def test_a_refused_change_is_told_of_the_object() -> None:
    body = review(vm() | {"metadata": {"name": "web01", "uid": "u1"}}, operation="UPDATE", name="web01")
    event = said(body, VMS, DENIED)

    assert event
    assert (event.api_version, event.kind, event.name, event.uid) == ("kubevirt.io/v1", "VirtualMachine", "web01", "u1")


def test_what_concerns_a_pod_is_reported_on_its_vmi() -> None:
    event = said(review(launcher_pod()), PODS, health=UNAVAILABLE)

    assert event
    assert (event.reason, event.code) == ("Warned", "scheduler-unavailable")
    assert (event.kind, event.name, event.uid) == ("VirtualMachineInstance", "web01", VMI_UID)
    assert reasons.unavailable("kubevirt", UNAVAILABLE.why).text in event.note
    assert event.note.startswith("kubevirt-webhook (scheduling): ")
    assert event.note.endswith(" [scheduler-unavailable]")


def test_what_could_not_be_evaluated() -> None:
    body = review(vm() | {"spec": 5}, name="web01")
    event = said(body, VMS)

    assert event
    assert (event.reason, event.kind, event.name) == ("NotEvaluated", "VirtualMachine", "web01")


def test_mode_warn_says_what_would_be() -> None:
    observed = msgspec.structs.replace(PODS_OBSERVED, handler=lambda *_: DENIED)
    body = review(vm())
    pod = event_of(observed, evaluate(review(launcher_pod()), known(vmi(), mode="warn"), observed)[0])

    assert pod
    assert (pod.reason, pod.kind) == ("WouldDeny", "VirtualMachineInstance")
    assert said(body, VMS, DENIED, mode="audit") is None


def test_a_refused_eviction_is_told_of_the_pod() -> None:
    endpoint = BY_PATH["/mutate/eviction/pods/enforce"]
    request = evictions.review()["request"]
    sent: Any = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    labels = {names.policy_label(names.EVICTION): "enforce"}
    there = {NamespaceKey("demo"): Namespace(ObjectMeta(name="demo", labels=labels))}
    refusing = msgspec.structs.replace(endpoint, handler=lambda *_: DENIED)
    event = event_of(refusing, evaluate(sent, known() | there, refusing)[0])

    assert event
    assert (event.api_version, event.kind, event.name) == ("v1", "Pod", evictions.POD)
    request["object"]["deleteOptions"] = {"dryRun": ["All"]}
    assert event_of(refusing, evaluate(sent, known() | there, refusing)[0]) is None


def test_an_object_without_a_name_is_told_of_the_namespace() -> None:
    body = review(vm() | {"metadata": {}})
    event = said(body, VMS, Decision((Reason("x", "y"),), warnings=(Reason("x", "beware"),)))

    assert event
    assert (event.kind, event.name) == ("Namespace", "demo")


@pytest.mark.parametrize("change", [{"dryRun": True}, {"namespace": ""}])
def test_nothing_is_told_of_dry_runs_and_of_what_is_in_no_namespace(change: Json) -> None:
    assert said(review(vm(), **change), VMS, DENIED) is None


def test_nothing_is_told_of_an_eviction_whose_own_options_say_dry_run() -> None:
    there = Namespace(ObjectMeta(name="demo", labels={names.policy_label(names.EVICTION): names.ENFORCE}))
    facts = evictions.facts(nodes=[]) | {NamespaceKey("demo"): there, NamespaceKey("demo", fresh=True): there}
    body = evictions.review()
    told = event_of(EVICTIONS, evaluate(body, facts, EVICTIONS)[0])
    assert told
    assert (told.reason, told.code) == ("Denied", "no-eligible-node")

    body["request"]["object"]["deleteOptions"] = {"dryRun": ["All"]}
    assert event_of(EVICTIONS, evaluate(body, facts, EVICTIONS)[0]) is None


def test_nothing_is_told_of_what_went_as_it_should() -> None:
    assert said(review(launcher_pod()), PODS) is None


def test_everything_is_passed_on() -> None:
    kept, told = KeptInMemory(), list[Event]()
    on = [True]
    announcer = EventObserver(kept, told.append, lambda: on[0])
    endpoint = msgspec.structs.replace(VMS, handler=lambda *_: DENIED)
    verdict = evaluate(review(vm()), known(), endpoint)[0]
    announcer.on_evaluated(endpoint, verdict, 0.1)
    announcer.on_evaluated(PODS, evaluate(review(launcher_pod()))[0], 0.1)
    on[0] = False
    announcer.on_evaluated(endpoint, verdict, 0.1)
    error = ValueError()
    announcer.on_error(PODS, error)

    assert len(told) == 1
    assert kept.errors == [error]
