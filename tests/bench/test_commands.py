"""Commands on large inputs: what they compute grows with the input, and no faster."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import pytest

from bench.commands.inputs import write_cluster, write_directory, write_file
from tests.cli.examples import EXAMPLES
from tests.cli.runner import run
from webhook.admission.step_budget import StepBudget
from webhook.cli.explain import from_files
from webhook.cli.inputs import PART_BYTES, batches, find
from webhook.forecast import drain as planner


def calls(words: list[str]) -> int:
    """How many functions a command calls."""
    profile = cProfile.Profile()
    assert profile.runcall(run, *words).exit_code == 0
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("write", [write_directory, write_file])
def test_a_review_costs_the_same_for_each_vm(write: object, tmp_path: Path) -> None:
    assert callable(write)
    few, many = write(tmp_path / "few", 20), write(tmp_path / "many", 120)
    options = ["--cluster-from", str(EXAMPLES / "cluster"), "--jobs", "1", "--quiet"]
    # The review itself, and with the check of the object's fields.
    for more, most in (["--no-validate"], 2500), ([], 2800):
        calls(["review", str(few), *options, *more])
        for_each = (calls(["review", str(many), *options, *more]) - calls(["review", str(few), *options, *more])) / 100

        assert for_each < most


def test_many_files_are_work_for_many_processes(tmp_path: Path) -> None:
    for path in (write_directory(tmp_path / "vms", 3000), write_file(tmp_path / "vms.yaml", 3000)):
        groups = list(batches(find([str(path)], None, [])))

        assert len(groups) >= 4
        assert max(sum(part.size for part in group) for group in groups) < 2 * PART_BYTES


def steps(directory: Path) -> int:
    """The steps of the plan of a rolling drain of all nodes."""
    budget = StepBudget(planner.MAX_STEPS)
    plan = budget.run(planner._plan, from_files(directory), (), True, None)
    assert plan.blocks == 0
    return budget.spent


def test_a_rolling_drain_takes_steps_by_its_size(tmp_path: Path) -> None:
    small = steps(write_cluster(tmp_path / "small", 25, 50))
    large = steps(write_cluster(tmp_path / "large", 50, 100))

    # At a hundred times as many of both it would stay below the limit.
    assert large < 3 * small
    assert large * 100 < planner.MAX_STEPS
