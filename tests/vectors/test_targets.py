from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.vectors.cases import VectorCase, read
from tests.vectors.targets import failures

FILE = Path(__file__).parents[1] / "data" / "targets.jsonl.gz"


@cache
def cases() -> list[VectorCase]:
    return list(read(FILE, list))


def test_kubevirts_own_target_pods() -> None:
    wrong = {case.id: found for case in cases() if (found := failures(case))}
    assert len(cases()) > 100
    assert not wrong


def test_they_leave_some_nodes_and_not_others() -> None:
    left = [(len(case.expected["kubevirt"]), len(case.given["nodes"])) for case in cases()]
    assert sum(0 < some < every for some, every in left) > len(left) // 2


@pytest.mark.parametrize("part", ["vmi", "migration", "targetPod"])
def test_a_difference_is_seen(part: str) -> None:
    """The cases notice it if any part of one is taken from another."""
    given = [case.given for case in cases()]
    mixed = [
        VectorCase(case.id, case.given | {part: other[part]}, case.expected)
        for case, other in zip(cases()[::2], given[1::2], strict=False)
        if bool(case.given.get("sourcePods")) == bool(other.get("sourcePods"))
    ]
    assert sum(bool(failures(case)) for case in mixed) > len(mixed) // 4
