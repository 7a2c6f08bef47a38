"""What the page keeps of decisions: which ones, how many, and how much of each.

And of health over time: what is kept of it, and how it is drawn.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.review.memory import MemoryCluster
from tests.server.page.conftest import record
from webhook.admission.audit import AuditedObject, Record
from webhook.admission.decision import Change, Reason
from webhook.facts import Key, SchedulerHealth, SchedulerKey
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.server.page import health
from webhook.server.page import recorder as counts
from webhook.server.page.health import HealthCondition, HealthHistory, HealthSpan, HealthSubject, health_rows
from webhook.server.page.recorder import MAX_NAME, DayCounts, DecisionLog, DecisionRecorder, shown_decision


def test_the_latest_come_first_and_the_oldest_go() -> None:
    log = DecisionLog(capacity=3, namespace_capacity=3)
    for name in "abcd":
        log.add(record(name=name))
    assert [each.record.object.name for each in log.latest()] == ["d", "c", "b"]
    assert [each.record.object.name for each in log.latest(lambda each: each.record.object.name != "c")] == ["d", "b"]
    assert log.get(1) is None
    found = log.get(4)
    assert found and (found.record.object.name, found.policy) == ("d", "scheduling")


@pytest.mark.control("page-memory")
def test_one_namespace_cannot_push_out_the_others() -> None:
    log = DecisionLog(capacity=8, namespace_capacity=2)
    log.add(record(namespace="quiet", name="asked-about"))
    for number in range(100):
        log.add(record(namespace="loud", name=str(number)))
    assert [each.record.object.name for each in log.latest()] == ["99", "98", "asked-about"]


@pytest.mark.control("page-memory")
@given(st.lists(st.sampled_from("abc"), max_size=60), st.integers(1, 8), st.integers(1, 8))
def test_there_are_never_more_than_there_may_be(namespaces: list[str], capacity: int, of_one: int) -> None:
    log = DecisionLog(capacity, of_one)
    for namespace in namespaces:
        log.add(record(namespace=namespace))
        shown = [each.record.object.namespace for each in log.latest()]
        assert len(shown) == len(log) <= capacity
        assert all(shown.count(each) <= of_one for each in "abc")
        assert shown[0] == namespace
    # Nothing is remembered of namespaces that have no decision any more.
    assert set(log._by_namespace) == {each.record.object.namespace for each in log.latest()}


@pytest.mark.control("page-memory")
@pytest.mark.parametrize("long", ["x" * 2_000_000, "x" * 64 * 1024])
def test_a_decision_is_bounded_whatever_the_object_is(long: str) -> None:
    changes = [Change((long, long), {long: long}, [long], "scheduler-injected") for _ in range(200)]
    reasons = [Reason("scheduler-injected", long) for _ in range(200)]
    shown = shown_decision(1, record(namespace=long, name=long, reasons=reasons, changes=changes, user=long, uid=long))
    assert len(msgspec.json.encode(shown)) < counts.MAX_CHARACTERS + 16_000
    assert (len(shown.record.object.name), len(shown.record.user)) == (MAX_NAME, MAX_NAME)
    assert len(shown.record.changes) + shown.left_out == 200


@pytest.mark.control("page-shows-everything")
def test_changes_are_those_of_the_audit_record() -> None:
    changes = [Change(("spec", "schedulerName"), "a", "b", "c"), Change(("spec", "x"), None, {"k": [1]}, "c")]
    one, other = shown_decision(1, record(changes=changes)).record.changes
    assert (one.path, one.old, one.new) == (("spec.schedulerName",), "a", "b")
    assert (other.old, other.new) == (None, '{"k":[1]}')


def counted(*records: Record) -> DayCounts:
    found = DayCounts()
    for each in records:
        found.add(each)
    return found


def test_decisions_are_counted_by_what_was_decided() -> None:
    decisions = [record(decision=decision) for decision in ("patched", "denied", "patched", "skipped")]
    found = counted(*decisions, record(dry_run=True))
    assert found.of("demo", "scheduling") == {"patched": 2, "denied": 1, "skipped": 1}
    assert found.of("demo", "migration") == found.of("other", "scheduling") == {}
    assert found.total == {"patched": 2, "denied": 1, "skipped": 1}
    assert list(counted(record(decision="skipped")).namespaces()) == [], "not worth a row"


REVIEWED_VM = AuditedObject("VirtualMachine", "demo", "web01")
DEFAULTS_PATH, SIZES_PATH, SCHEDULER_PATH = (
    "/mutate/instancetypes/virtualmachines/enforce",
    "/validate/instancetypes/virtualmachines/enforce",
    "/mutate/scheduling/virtualmachines/enforce",
)


def of_vm(endpoint: str, decision: str, second: int = 0) -> Record:
    return record(
        object=REVIEWED_VM, endpoint=endpoint, decision=decision, time=f"2026-02-01T00:00:{second:02}.000000Z"
    )


@pytest.mark.parametrize(
    ("decisions", "total"),
    [
        # An object counts once, whatever the number of webhooks.
        ([(DEFAULTS_PATH, "patched"), (SCHEDULER_PATH, "patched"), (SIZES_PATH, "allowed")], {"patched": 1}),
        ([(DEFAULTS_PATH, "patched"), (SCHEDULER_PATH, "patched"), (SIZES_PATH, "denied")], {"denied": 1}),
        ([(DEFAULTS_PATH, "skipped"), (SCHEDULER_PATH, "allowed")], {"allowed": 1}),
        # The same webhook again is the next request.
        ([(SIZES_PATH, "denied"), (SIZES_PATH, "denied"), (SIZES_PATH, "allowed")], {"denied": 2, "allowed": 1}),
        ([(SIZES_PATH, "denied"), (DEFAULTS_PATH, "patched", 30)], {"denied": 1, "patched": 1}),
    ],
)
def test_a_request_counts_once_and_as_denied_if_one_policy_denied_it(decisions: Any, total: dict[str, int]) -> None:
    found = counted(*(of_vm(*each) for each in decisions))
    assert {label: number for label, number in found.total.items() if number} == total


def test_what_is_remembered_of_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_MAX_REQUESTS", 3)
    found = counted(*(record(name=f"vm{number}") for number in range(10)), record(name="x" * 2_000_000))
    assert (found.total["patched"], len(found._requests)) == (11, 3)


def test_a_new_day_begins_at_zero() -> None:
    found = counted(record(time="2026-01-31T23:59:59.999999Z"), record(time="2026-02-01T00:00:00.000000Z", name="b"))
    assert (found.day, found.total) == ("2026-02-01", {"patched": 1})


@pytest.mark.control("page-memory")
def test_invented_namespaces_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MAX_NAMESPACES", 3)
    found = counted(*(record(namespace=f"n{number}") for number in range(10)))
    assert sorted(found.namespaces()) == [counts.OTHERS, "n0", "n1", "n2"]
    assert found.of(counts.OTHERS, "scheduling")["patched"] == 7
    assert [len(name) for name in counted(record(namespace="x" * 2_000_000)).namespaces()] == [MAX_NAME]


def test_records_are_kept_unless_they_were_skipped_and_a_bug_reaches_no_review(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = DecisionRecorder()
    records = [record(), record(decision="skipped"), *[record(endpoint="/no/such/endpoint")] * 3]
    for each in records:
        recorder.write(each)
    assert [each.record.decision for each in recorder.log.latest()] == ["patched"]
    assert recorder.counts.total == {"patched": 1, "skipped": 1}
    assert (recorder.failed, len(caplog.records)) == (3, 1)


SCHEDULER = HealthSubject("scheduler", "kubevirt")
UP, DOWN = HealthCondition("good", "available", "it runs"), HealthCondition("bad", "unavailable", "it does not")


class WatchedHealth:
    """A history whose time and state the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.found = {SCHEDULER: UP}
        self.history = HealthHistory(lambda: self.found, lambda: self.now)

    def at(self, now: float, condition: HealthCondition) -> None:
        self.now, self.found = now, {SCHEDULER: condition}
        self.history.sample()


def test_a_state_lasts_until_the_next_one() -> None:
    watched = WatchedHealth()
    for now, condition in ((0, UP), (5, HealthCondition("good", "available", "it still runs")), (10, DOWN), (15, UP)):
        watched.at(now, condition)
    spans = watched.history.spans()[SCHEDULER]
    assert [(span.begin, span.end, span.condition.word) for span in spans] == [
        (0, 10, "available"),
        (10, 15, "unavailable"),
        (15, None, "available"),
    ]
    # The evidence is the latest of its span.
    assert spans[0].condition.why == "it still runs"


@pytest.mark.control("page-memory")
def test_one_that_flaps_does_not_fill_the_memory() -> None:
    watched = WatchedHealth()
    for now in range(10 * health.MAX_SPANS):
        watched.at(now, UP if now % 2 else HealthCondition("bad", "unavailable", "x" * 100_000))
    spans = watched.history.spans()[SCHEDULER]
    assert len(spans) == health.MAX_SPANS
    assert all(len(span.condition.why) <= 500 for span in spans)
    watched.found = {}
    watched.history.sample()
    assert watched.history.spans() == {}, "it is not declared any more"


def test_the_declared_schedulers_are_looked_at() -> None:
    settings = builders.settings()
    name, *others = settings.of(SchedulingSettings).schedulers
    known: dict[Key[Any], object] = {SchedulerKey(name): SchedulerHealth("unavailable", "its Lease expired")}
    found = health.schedulers(MemoryCluster({**known, **{SchedulerKey(other): None for other in others}}), settings)
    assert found[HealthSubject("scheduler", name)] == HealthCondition("bad", "unavailable", "its Lease expired")
    assert {found[HealthSubject("scheduler", other)].state for other in others} == {"unknown"}


def test_certificates_and_bundles() -> None:
    expiry = {"serving": 10.0, "ca": 1_000_000.0, "soon": 1000.0}
    found = health.certificates(expiry, {"kubevirt-webhook": 1.0, "zz-kubevirt-webhook": 0.0}, now=100.0)
    assert {(subject.kind, subject.name): condition.state for subject, condition in found.items()} == {
        ("certificate", "serving"): "bad",
        ("certificate", "ca"): "good",
        ("certificate", "soon"): "unknown",
        ("caBundle", "kubevirt-webhook"): "good",
        ("caBundle", "zz-kubevirt-webhook"): "bad",
    }


DAY = 86_400.0


def test_a_short_outage_is_seen() -> None:
    spans = (HealthSpan(0, 40_000, UP), HealthSpan(40_000, 40_005, DOWN), HealthSpan(40_005, None, UP))
    (row,) = health_rows({SCHEDULER: spans}, 0, DAY)
    assert [bar.state for bar in row.bars] == ["good", "bad", "good"]
    assert all(bar.width >= 2 for bar in row.bars)
    assert [word for _, word, _ in row.changes] == ["available", "unavailable", "available"]
    assert (row.condition.state, row.condition.word) == ("good", "available")


def test_what_was_before_the_window_is_not_drawn() -> None:
    (row,) = health_rows({SCHEDULER: (HealthSpan(0, 10, DOWN), HealthSpan(10, None, UP))}, 0, 5 * DAY)
    assert [(bar.state, bar.x, bar.width) for bar in row.bars] == [("good", 0, health.WIDTH)]


@given(st.lists(st.floats(0, 3 * DAY), min_size=1, max_size=30, unique=True), st.floats(3 * DAY, 4 * DAY))
def test_bars_stay_in_their_place(begins: list[float], now: float) -> None:
    begins.sort()
    ends: list[float | None] = [*begins[1:], None]
    spans = tuple(HealthSpan(begin, end, UP) for begin, end in zip(begins, ends, strict=True))
    (row,) = health_rows({SCHEDULER: spans}, begins[0], now)
    assert all(
        0 <= bar.x < health.WIDTH and bar.width >= 2 and bar.x + bar.width <= health.WIDTH + 1 for bar in row.bars
    )


def test_the_window_grows_to_a_day_and_another_day_is_named() -> None:
    assert (health.window(0, 10), health.window(0, 2 * DAY)) == (600, DAY)
    assert (health.moment(3600, 7200), health.moment(3600, 2 * DAY)) == ("01:00:00", "Jan 01 01:00:00")
