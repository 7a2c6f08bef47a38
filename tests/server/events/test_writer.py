"""Which decisions become Kubernetes Events, and how these are written."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest

from tests.builders import UNAVAILABLE, VMI_UID, Json, known, launcher_pod, opted_in, review, vm, vmi
from tests.cluster.fake_apiserver import FakeClock
from tests.policies.decisions import always
from tests.policies.eviction import world as evictions
from tests.review.memory import PODS, PODS_OBSERVED, VMS, evaluate
from tests.server.conftest import ServedApi, working
from tests.waiting import until
from webhook import names
from webhook.admission.decision import Announcement, Decision, Denial, Reason
from webhook.errors import Unavailable
from webhook.k8s.resources import EVENTS
from webhook.policies.registry import BY_PATH
from webhook.policies.scheduling import reasons
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation
from webhook.server.events.writer import CAPACITY, WINDOW_SECONDS, Event, EventWriter, announced_by, event_of

REFUSED = Event("demo", "v1", "Namespace", "demo", "", "Denied", "no-eligible-node", "CREATE of x was refused: why")
DEMO = EVENTS.path("demo")
# A decision that becomes an Event.
DENIED = Decision((Reason("no", "it cannot be"),), denial=Denial(403, "it cannot be [node-a]"))


class RecorderCase:
    def __init__(self, api: ServedApi) -> None:
        self.server, self.api = api
        self.server.serve(EVENTS)
        self.clock = FakeClock()
        self.writer = EventWriter(self.api, "replica-1", lambda: True, clock=self.clock)

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self.server.held(EVENTS).values())

    async def write(self, **change: Any) -> None:
        self.writer.add(msgspec.structs.replace(REFUSED, **change))
        await self.writer.write()


@pytest.fixture
def case(api: ServedApi) -> RecorderCase:
    return RecorderCase(api)


async def test_a_happening_is_an_event(case: RecorderCase) -> None:
    case.writer.add(REFUSED)
    assert case.server.asked == [], "nobody waits for it"
    await case.writer.write()

    (asked,) = case.server.asked
    sent = json.loads(asked.body)
    assert (asked.path, sent.pop("metadata")["namespace"]) == (DEMO, "demo")
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


@pytest.mark.control("event-floods")
async def test_repeats_are_one_event_whose_series_counts(case: RecorderCase) -> None:
    await case.write(name="once")
    for number in range(5):
        await case.write(note=f"why {number}")
    assert len(case.events) == 2
    assert not any("series" in event for event in case.events), "not before its time"
    case.clock.time += WINDOW_SECONDS
    await case.writer.write()
    await case.writer.write()

    _, event = case.events
    assert (event["series"]["count"], event["note"]) == (5, "why 0")
    assert [asked.verb for asked in case.server.asked] == ["post", "post", "patch"], "what happened once stays as it is"
    await case.write()
    assert len(case.events) == 3, "later, it is news again"


@pytest.mark.parametrize("field", ["namespace", "kind", "name", "reason", "code"])
async def test_others_are_events_of_their_own(case: RecorderCase, field: str) -> None:
    case.writer.add(REFUSED)
    await case.write(**{field: "other"})
    assert len(case.events) == 2


@pytest.mark.control("event-floods")
async def test_a_flood_is_dropped_and_counted_and_written_with_pauses(case: RecorderCase) -> None:
    for number in range(CAPACITY + 7):
        case.writer.add(msgspec.structs.replace(REFUSED, namespace=f"tenant-{number % 8}", name=f"vm-{number}"))
    await case.writer.write()
    assert (case.writer.results["dropped"], len(case.events)) == (7, 10)


@pytest.mark.control("event-floods")
async def test_one_namespace_leaves_room_for_others(case: RecorderCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.server.events.writer.CAPACITY", 8)
    for number in range(20):
        await case.write(name=f"vm-{number}")
        await case.write(name=f"vm-{number}")
    # The first ones have got their counts before their time, so that memory is bounded.
    assert [event["series"]["count"] for event in case.events if "series" in event] == [2] * 12
    for number in range(9):
        case.writer.add(msgspec.structs.replace(REFUSED, name=f"more-{number}"))
    case.writer.add(msgspec.structs.replace(REFUSED, namespace="other"))
    assert case.writer.results["dropped"] == 7


async def test_long_notes_are_cut_to_bytes(case: RecorderCase) -> None:
    await case.write(note="ä" * 2000, uid="u")
    (event,) = case.events
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("ä…")
    assert event["regarding"]["uid"] == "u"


async def test_a_refusal_is_said_once_and_the_next_one_is_a_new_try(
    case: RecorderCase, caplog: pytest.LogCaptureFixture
) -> None:
    case.server.fail(DEMO, 403, times=2)
    for _ in range(3):
        await case.write()
    assert (case.writer.results["failed"], case.writer.results["written"]) == (2, 1)
    (said,) = caplog.messages
    assert "grant create on events.events.k8s.io" in said
    assert "SECRET" not in said
    await case.api.close()
    await case.write(name="later")
    assert case.writer.results["failed"] == 3
    assert "closed" in caplog.messages[1]


async def test_it_runs_until_it_is_cancelled_and_over_bugs(
    case: RecorderCase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(case.writer, "_event", lambda _: 1 / 0)
    async with working(case.writer.run()):
        case.writer.add(REFUSED)
        await until(lambda: caplog.messages)
        monkeypatch.undo()
        case.writer.add(msgspec.structs.replace(REFUSED, name="other"))
        await until(lambda: case.events)
    assert caplog.messages == ["Events: internal error"]


async def test_what_can_not_be_sent_holds_up_no_other(case: RecorderCase, monkeypatch: pytest.MonkeyPatch) -> None:
    send = case.writer._send

    async def broken(verb: str, series: Any) -> bool:
        if series.event.name == "broken":
            raise RuntimeError
        return await send(verb, series)

    monkeypatch.setattr(case.writer, "_send", broken)
    for name in ("broken", "x", "y"):
        case.writer.add(msgspec.structs.replace(REFUSED, name=name))
    with pytest.raises(RuntimeError):
        await case.writer.write()
    await case.writer.write()
    assert [event["regarding"]["name"] for event in case.events] == ["x", "y"]
    assert case.writer.results == {"written": 2, "repeated": 0, "dropped": 0, "failed": 0}


EVICTIONS = BY_PATH["/mutate/eviction/pods/enforce"]


def said(body: Json, endpoint: Endpoint, decision: Decision | None = None, **facts: Any) -> Event | None:
    if decision is not None:
        endpoint = msgspec.structs.replace(endpoint, handler=always(decision))
    return event_of(endpoint, evaluate(body, known(vmi(), **facts), endpoint)[0])


@pytest.mark.control("events-tell-too-much")
def test_a_refused_creation_is_told_of_the_namespace() -> None:
    event = said(review(vm()), VMS, DENIED)
    note = "kubevirt-webhook (scheduling): CREATE of VirtualMachine web01 was denied: it cannot be [no]"
    assert event == Event("demo", "v1", "Namespace", "demo", "", "Denied", "no", note)


OTHER = Announcement("jobs", "v1", "Pod", "batch", "p-1", "WaitsForMigration", "waits", "waits for a VM\u202e")
TOLD = msgspec.structs.replace(DENIED, announcements=(OTHER,))


@pytest.mark.control("events-tell-too-much")
@pytest.mark.parametrize(
    ("body", "endpoint", "is_told"),
    [
        (review(vm()), VMS, True),
        (review(vm(), dryRun=True), VMS, False),
        (review(launcher_pod()), PODS_OBSERVED, False),
    ],
)
def test_another_object_is_told_of_what_was_carried_out(body: Json, endpoint: Endpoint, is_told: bool) -> None:
    endpoint = msgspec.structs.replace(endpoint, handler=always(TOLD))
    found = [*announced_by(evaluate(body, known(vmi()), endpoint)[0])]
    event = Event("jobs", "v1", "Pod", "batch", "p-1", "WaitsForMigration", "waits", "waits for a VM\\u202e", "Normal")
    assert found == ([event] if is_told else [])


@pytest.fixture
def told() -> Evaluation:
    endpoint = msgspec.structs.replace(VMS, handler=always(TOLD))
    return evaluate(review(vm()), known(vmi()), endpoint)[0]


async def test_it_is_written_beside_the_event_of_the_decision_and_not_where_events_are_off(
    told: Evaluation, api: ServedApi
) -> None:
    api[0].serve(EVENTS)
    switch: list[str] = []
    writer = EventWriter(api[1], "replica-1", lambda: bool(switch), clock=FakeClock())
    for expected in ([], [("Namespace", "Warning"), ("Pod", "Normal")]):
        writer.on_evaluated(VMS, told, 0.1)
        await writer.write()
        held = api[0].held(EVENTS).values()
        assert sorted((each["regarding"]["kind"], each["type"]) for each in held) == expected
        switch.append("on")


WARNED = Decision((Reason("x", "y"),), warnings=(Reason("x", "beware"),))
CHANGED = review(vm() | {"metadata": {"name": "web01", "uid": "u1"}}, operation="UPDATE", name="web01")


@pytest.mark.parametrize(
    ("body", "endpoint", "decision", "mode", "told"),
    [
        (CHANGED, VMS, DENIED, "enforce", ("Denied", "kubevirt.io/v1", "VirtualMachine", "web01", "u1")),
        (
            review(vm() | {"spec": 5}, name="web01"),
            *(VMS, None, "enforce", ("NotEvaluated", "kubevirt.io/v1", "VirtualMachine", "web01", "")),
        ),
        (review(vm() | {"metadata": {}}), VMS, WARNED, "enforce", ("Warned", "v1", "Namespace", "demo", "")),
        (
            review(launcher_pod()),
            *(PODS_OBSERVED, DENIED, "warn"),
            ("WouldDeny", "kubevirt.io/v1", "VirtualMachineInstance", "web01", VMI_UID),
        ),
        (review(vm()), VMS, DENIED, "audit", None),
        (review(launcher_pod()), PODS, None, "enforce", None),
    ],
    ids=["change", "unreadable", "nameless", "warn", "audit", "fine"],
)
def test_what_an_event_is_about(body: Json, endpoint: Endpoint, decision: Any, mode: str, told: Any) -> None:
    event = said(body, endpoint, decision, mode=mode)
    assert (event and (event.reason, event.api_version, event.kind, event.name, event.uid)) == told


def test_what_concerns_a_pod_is_reported_on_its_vmi() -> None:
    event = said(review(launcher_pod()), PODS, health=UNAVAILABLE)
    assert event
    assert (event.reason, event.code) == ("Warned", "scheduler-unavailable")
    assert (event.kind, event.name, event.uid) == ("VirtualMachineInstance", "web01", VMI_UID)
    assert reasons.unavailable("kubevirt", UNAVAILABLE.why).text in event.note
    assert event.note.startswith("kubevirt-webhook (scheduling): ")
    assert event.note.endswith(" [scheduler-unavailable]")


def test_the_code_of_a_warning_is_that_of_what_it_says() -> None:
    """`memory-missing` was announced as `no-defaults`, which is what the policy decided beside it."""
    beside = Decision((Reason("no-defaults", "there are none"),), warnings=(Reason("memory-missing", "no memory"),))
    event = said(CHANGED, VMS, beside, mode="enforce")
    assert event
    assert event.code == "memory-missing"
    assert event.note.endswith("no memory [memory-missing]")


@pytest.mark.control("events-tell-too-much")
@pytest.mark.parametrize("change", [{"dryRun": True}, {"namespace": ""}])
def test_nothing_is_told_of_dry_runs_and_of_what_is_in_no_namespace(change: Json) -> None:
    assert said(review(vm(), **change), VMS, DENIED) is None


def test_a_refused_eviction_is_told_of_the_pod_unless_its_own_options_say_dry_run() -> None:
    facts = evictions.facts(nodes=[]) | opted_in(names.EVICTION)
    body = evictions.review()
    told = event_of(EVICTIONS, evaluate(body, facts, EVICTIONS)[0])
    assert told
    assert (told.reason, told.code) == ("Denied", "no-eligible-node")
    unread = facts | {evictions.MINE: Unavailable("no answer")}
    told = event_of(EVICTIONS, evaluate(body, unread, EVICTIONS)[0])
    assert told
    assert (told.reason, told.code) == ("NotEvaluated", "lookup-failed")
    assert (told.api_version, told.kind, told.name) == ("v1", "Pod", evictions.POD)
    body["request"]["object"]["deleteOptions"] = {"dryRun": ["All"]}
    assert event_of(EVICTIONS, evaluate(body, facts, EVICTIONS)[0]) is None


def test_only_what_users_should_know_is_announced_and_only_while_that_is_on(case: RecorderCase) -> None:
    on = [True]
    announcer = EventWriter(case.api, "replica-1", lambda: on[0])
    endpoint = msgspec.structs.replace(VMS, handler=always(DENIED))
    verdict = evaluate(review(vm()), known(), endpoint)[0]
    announcer.on_evaluated(endpoint, verdict, 0.1)
    assert len(announcer._waiting) == 1
    announcer.on_evaluated(PODS, evaluate(review(launcher_pod()))[0], 0.1)
    on[0] = False
    announcer.on_evaluated(endpoint, verdict, 0.1)
    assert (len(announcer._waiting), announcer.results["repeated"]) == (1, 0)
