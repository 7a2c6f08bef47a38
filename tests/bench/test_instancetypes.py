"""That the benchmark runs, does the work both ways, and says so where one of them doesn't."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from bench.instancetypes import measure
from bench.instancetypes.__main__ import main
from bench.instancetypes.cases import InstancetypesCase, cases
from bench.instancetypes.measure import InstancetypesFigures, Ways
from bench.reviews.errors import BenchError


@pytest.fixture
def ways() -> Iterator[Ways]:
    made = Ways()
    yield made
    made.close()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.plural)
def test_both_ways_come_to_the_same_object(case: InstancetypesCase, ways: Ways) -> None:
    figures = measure.measure(case, ways, rounds=2, reviews=1)

    assert len(figures.ours) == len(figures.usual) == 2


def test_another_object_is_no_figure(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    vm, vmi = cases()
    other = msgspec.json.decode(vmi.body)
    other["request"]["object"]["spec"]["hostname"] = "other"
    changed = InstancetypesCase(vmi.name, vmi.plural, vmi.object, msgspec.json.encode(other), vmi.goal)
    monkeypatch.setattr(ways, "usual", lambda *_: b'{"response": {"allowed": true}}')

    with pytest.raises(BenchError, match="the usual way leaves the object alone, so nothing was measured"):
        measure.measure(vm, ways, rounds=1, reviews=1)
    monkeypatch.undo()
    smaller = vmi.object["spec"]["domain"]["devices"]["disks"][:1]
    other["request"]["object"]["spec"]["domain"]["devices"]["disks"] = smaller
    other["request"]["object"]["spec"]["volumes"] = vmi.object["spec"]["volumes"][:1]
    fewer = InstancetypesCase(vmi.name, vmi.plural, vmi.object, msgspec.json.encode(other), vmi.goal)
    both = ways.ours(changed, 1), ways.usual(fewer, 1)
    monkeypatch.setattr(ways, "ours", lambda *_: both[0])
    monkeypatch.setattr(ways, "usual", lambda *_: both[1])
    with pytest.raises(BenchError, match="the two ways don't come to the same object"):
        measure.measure(vmi, ways, rounds=1, reviews=1)


def test_ratios_are_of_rounds() -> None:
    figures = InstancetypesFigures("VM", 90.0, ours=(100.0, 200.0, 100.0), usual=(300.0, 400.0, 500.0))

    assert figures.ratios == (2.0, 3.0, 5.0)
    assert figures.row() == ("VM", "100", "90", "400", "3.0", "2.0-5.0")


def test_a_quick_run_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0

    printed = capsys.readouterr().out
    assert all(case.name in printed for case in cases())
    assert "x ours" in printed
