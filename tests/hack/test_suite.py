"""Which failed tests `make test` runs once more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hack.suite import alone


@pytest.mark.parametrize(("failures", "again"), [(0, 0), (1, 1), (5, 5), (6, 0)])
def test_a_few_failed_tests_run_once_more(failures: int, again: int, tmp_path: Path) -> None:
    failed = [f"tests/e2e/test_a.py::a[{number}]" for number in range(failures)]
    last_failed = tmp_path / "lastfailed"
    last_failed.write_text(json.dumps(dict.fromkeys(failed, True)))

    assert alone(last_failed) == failed[:again]


def test_nothing_runs_once_more_where_pytest_wrote_no_list(tmp_path: Path) -> None:
    assert alone(tmp_path / "lastfailed") == []
