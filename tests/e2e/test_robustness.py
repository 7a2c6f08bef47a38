"""A minute of a cluster in which things break, and the check of all that was decided in it (tests/robustness)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.robustness.checker import check
from tests.robustness.history import Call, History
from tests.robustness.run import Plan, record

# The shorter age of stores makes lists and GETs of what takes minutes otherwise.
PLAN = Plan(
    seed=1,
    seconds=25,
    clients=3,
    current_seconds=30,
    faults=("late watch", "killed replica", "failing answers", "compacted etcd", "cut watches", "stopped API server"),
    only=True,
)
# Decisions of a run that does anything at all.
SOME = 50


def test_all_that_was_decided_was_allowed(binaries: Path, tmp_path: Path) -> None:
    history = record(PLAN, tmp_path, binaries)

    report = check(history)

    assert [str(violation) for violation in report.violations] == []
    assert report.counts["calls explained"] > SOME
    assert report.counts["calls with too many possible states"] < SOME / 10
    assert {fault.what for fault in history.faults} >= {"late watch", "killed replica", "compacted etcd"}
    # The checker does not take everything for possible: of what was recorded, one decision that was another is found.
    assert {violation.rule for violation in check(_with_another_decision(history)).violations} == {"unexplained"}


def _with_another_decision(history: History) -> History:
    request = next(request for request in history.requests if any(map(_is_patched, request.calls)))
    calls = [replace(call, decision="allowed", patch=None) if _is_patched(call) else call for call in request.calls]
    return replace(history, requests=[replace(request, calls=tuple(calls))])


def _is_patched(call: Call) -> bool:
    return call.decision == "patched"
