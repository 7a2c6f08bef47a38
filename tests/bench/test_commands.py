"""Commands on large inputs: what they compute grows with the input, and no faster."""

from __future__ import annotations

from pathlib import Path

from bench.commands.inputs import write_cluster, write_directory, write_file
from webhook.admission.step_budget import StepBudget
from webhook.cli.explain import from_files
from webhook.cli.inputs import PART_BYTES, batches, find
from webhook.forecast import drain as planner


def test_many_files_are_work_for_many_processes(tmp_path: Path) -> None:
    for path in (write_directory(tmp_path / "vms", 3000), write_file(tmp_path / "vms.yaml", 3000)):
        groups = list(batches(find([str(path)], None, [])))

        assert len(groups) >= 4
        assert max(sum(part.size for part in group) for group in groups) < 2 * PART_BYTES


def test_a_rolling_drain_takes_steps_by_its_size(tmp_path: Path) -> None:
    def steps(nodes: int) -> int:
        budget = StepBudget(planner.MAX_STEPS)
        directory = write_cluster(tmp_path / str(nodes), nodes, 2 * nodes)
        assert budget.run(planner._plan, from_files(directory), (), True, None).blocks == 0
        return budget.spent

    large = steps(50)
    # At a hundred times as many of both it would stay below the limit.
    assert large < 3 * steps(25)
    assert large * 100 < planner.MAX_STEPS
