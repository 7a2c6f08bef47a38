"""``python -m tests.vectors instancetypes FILE.jsonl.gz``: the first failures as diffs, then ``N passed, M failed``.

In a diff, ``-`` is KubeVirt's answer and ``+`` is ours. The exit status is 1 if a case fails, 2 if the file is none.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.vectors.cases import Case, read
from tests.vectors.compare import differences
from tests.vectors.stages import STAGES, answers
from webhook.errors import InputError

_SHOWN = 10
_LINES = 30


def failures(case: Case) -> dict[str, list[str]]:
    """The stages of a case in which we differ from KubeVirt, and how."""
    found = {stage: differences(stage, case.expected[stage], ours) for stage, ours in answers(case)}
    return {stage: lines for stage, lines in found.items() if lines}


def run(path: Path) -> bool:
    """Run a file; whether all cases passed."""
    passed = failed = 0
    stages: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for case in read(path):
        found = failures(case)
        stages.update(case.expected.keys())
        wrong.update(found.keys())
        failed, passed = failed + bool(found), passed + (not found)
        if found and failed <= _SHOWN:
            _show(case, found)
    for stage in STAGES:
        if stages[stage]:
            print(f"{stage}: {stages[stage] - wrong[stage]} of {stages[stage]}")
    print(f"{passed} passed, {failed} failed")
    return not failed


def _show(case: Case, found: dict[str, list[str]]) -> None:
    for stage, lines in found.items():
        print(f"{case.id}, {stage}:")
        for line in lines[:_LINES]:
            print(f"  {line}")
        if len(lines) > _LINES:
            print(f"  and {len(lines) - _LINES} more lines")


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit status."""
    if len(arguments) != 2 or arguments[0] != "instancetypes":
        print("usage: python -m tests.vectors instancetypes FILE.jsonl.gz", file=sys.stderr)
        return 2
    try:
        return 0 if run(Path(arguments[1])) else 1
    except InputError as mistake:
        print(mistake, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
