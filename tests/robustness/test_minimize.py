"""What is shown of a violation still shows it, and all of it is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.e2e.support.objects import obj

from .checker import RULE_OF, Violation, check
from .history import Change, Fault, History, Sample, SettingsWritten
from .minimize import minimize, shortest
from .model import Model
from .test_checker import (
    BROKEN,
    CURRENT,
    JUST_NOW,
    LONG_AGO,
    MOVES,
    NOW,
    ONLY_LARGE,
    ONLY_SMALL,
    SETTINGS,
    allowed_small,
    change,
    demanding,
    denied_by_preference,
    limited,
    namespace,
    overwritten,
    samples,
)


@given(st.sets(st.integers(0, 40)), st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=1, max_size=4))
def test_of_any_events_what_is_left_is_needed(more: set[int], reasons: list[set[int]]) -> None:
    """It shows where one of some sets of events is there as a whole."""

    def shows(events: Sequence[int]) -> bool:
        return any(reason <= set(events) for reason in reasons)

    left = shortest(sorted(more | reasons[0]), shows)
    assert set(left) in reasons
    assert not any(shows([other for other in left if other != each]) for each in left)


OLD = NOW - CURRENT - 60
VIOLATED = {
    "unexplained": allowed_small(
        namespace(LONG_AGO, "instancetypes", **ONLY_SMALL), namespace(OLD, "instancetypes", **ONLY_LARGE)
    ),
    "unexplained by a store": denied_by_preference(demanding(LONG_AGO, 8), demanding(JUST_NOW, 1)),
    "not-allowed": allowed_small(namespace(OLD, "instancetypes", **ONLY_LARGE)),
    "default-lost": overwritten({"instancetype": {"kind": "VirtualMachineInstancetype", "name": "small"}}, {}),
    "over-the-limit": limited(*MOVES),
    "not-ready-without-cause": replace(allowed_small(namespace(LONG_AGO)), samples=samples(True, False, False)),
}
# What else there is in a history, and has nothing to do with it.
NOISE: Sequence[Change | Fault | SettingsWritten | Sample] = (
    *(namespace(at, "scheduling", name=f"other-{at:.0f}") for at in (LONG_AGO, OLD, JUST_NOW)),
    *(change(obj("VirtualMachine", f"vm-{number}", namespace="demo", spec={}), JUST_NOW) for number in range(3)),
    *(Fault("late watch", NOW - begun, NOW - begun + 10) for begun in (300, 100)),
    SettingsWritten(NOW - 3_000, NOW - 3_000, SETTINGS.replace("}}}", '}}, "migration": {"maxUnfinished": 1}}')),
    SettingsWritten(NOW + 100, NOW + 100, SETTINGS),
    *(Sample(NOW - 500 + number, "1", True, "") for number in range(3)),
)


@pytest.mark.parametrize("name", VIOLATED)
@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(0, len(NOISE) - 1)))
def test_what_is_shown_still_violates_and_less_does_not(name: str, chosen: set[int]) -> None:
    whole = _with([NOISE[each] for each in sorted(chosen)], VIOLATED[name])
    violation = next(each for each in check(whole).violations if each.rule == name.partition(" ")[0])

    part, least = minimize(whole, violation)

    assert (least.rule, least.at, set(least.possible)) == (violation.rule, violation.at, set(violation.possible))
    assert _shows(part, least)
    for fewer in _with_one_less(part):
        assert not _shows(fewer, least)
    assert len(least.history) <= len(violation.history) + 3  # objects that nothing of the request names
    # All of it is printed.
    assert len(least.history) >= len(part.changes) + len(part.faults) + len(part.settings) + len(part.requests)


def test_a_denial_by_a_store_is_shown_with_what_was_true() -> None:
    whole = denied_by_preference(demanding(LONG_AGO, 8), demanding(JUST_NOW, 1))
    (violation,) = check(whole).violations
    part, least = minimize(replace(whole, faults=BROKEN), violation)
    assert [
        each.value["spec"]["requirements"] for each in part.changes if each.value and each.id.name == "demanding"
    ] == [{"cpu": {"guest": 1}}]
    assert any("allowed" in each for each in least.possible)


def _with(noise: Sequence[object], of: History) -> History:
    def added(kind: type, those: list) -> list:  # type: ignore[type-arg]
        return those + [each for each in noise if isinstance(each, kind)]

    return replace(
        of,
        changes=sorted(added(Change, of.changes), key=lambda each: each.after),
        faults=added(Fault, of.faults),
        settings=sorted(added(SettingsWritten, of.settings), key=lambda each: each.by),
        samples=added(Sample, of.samples),
    )


def _with_one_less(of: History) -> Sequence[History]:
    names = ("changes", "faults", "settings", "samples", "requests")
    return [
        replace(of, **{name: those[:number] + those[number + 1 :]})
        for name in names
        for those in (getattr(of, name),)
        for number in range(len(those))
    ]


def _shows(part: History, wanted: Violation) -> bool:
    return any(
        each.rule == wanted.rule and each.at == wanted.at and set(each.possible) == set(wanted.possible)
        for each in RULE_OF[wanted.rule](part, Model(part), Counter())
    )
