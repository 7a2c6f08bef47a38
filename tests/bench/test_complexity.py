from __future__ import annotations

import asyncio

import pytest

from bench.complexity.__main__ import main
from bench.complexity.rounds import ComplexityPlan, measure


def test_every_object_of_a_review_is_made_large() -> None:
    figures = asyncio.run(measure(ComplexityPlan(20_000, "launcher pod", each=True)))

    assert {each.review for each in figures} == {"launcher pod", "launcher pod, falling back"}
    assert {"object: all", "user: all", "namespace: all", "vmi: all", "object: metadata.labels"} <= {
        each.shape for each in figures
    }
    assert all(each.items > 10 and each.answer for each in figures)


def test_a_table_and_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "VM, pinned", "--bytes", "2000"]) == 0
    assert "VM, pinned to a revision" in capsys.readouterr().out

    assert main(["--only", "nothing"]) == 2
