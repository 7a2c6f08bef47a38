"""``python -m tests.vectors KIND FILE.jsonl.gz``: the first failures as diffs, then ``N passed, M failed``.

The kinds are ``instancetypes``, which KubeVirt has answered, ``placement``, which kube-scheduler's helpers have, and
``targets``: the target pods that KubeVirt makes, with the nodes that these helpers find for them.
In a diff, ``-`` is their answer and ``+`` is the webhook's. The exit status is 1 if a case fails, 2 if the file is
invalid.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.vectors import placement
from tests.vectors.cases import VectorCase, read
from tests.vectors.stages import STAGES, answers, differences
from webhook.errors import InputError

_SHOWN = 10
_LINES = 30


def failures(case: VectorCase) -> dict[str, list[str]]:
    """The stages of a case in which the webhook differs from KubeVirt, and how."""
    found = {stage: differences(stage, case.expected[stage], ours) for stage, ours in answers(case)}
    return {stage: lines for stage, lines in found.items() if lines}


# The type of the answers in a file, the stages of a case in which the webhook differs and how, and the order of stages.
KINDS: Mapping[str, tuple[type, Callable[[VectorCase], dict[str, list[str]]], Sequence[str]]] = {
    "instancetypes": (dict, failures, STAGES),
    "placement": (list, placement.failures, placement.STAGES),
    "targets": (list, placement.target_failures, placement.TARGET_STAGES),
}


def run(kind: str, path: Path) -> bool:
    """Run a file; whether all cases passed."""
    answer, find_failures, order = KINDS[kind]
    passed = failed = 0
    stages: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for case in read(path, answer):
        found = find_failures(case)
        stages.update(case.expected.keys())
        wrong.update(found.keys())
        failed, passed = failed + bool(found), passed + (not found)
        if found and failed <= _SHOWN:
            _show(case, found)
    for stage in order:
        if stages[stage]:
            print(f"{stage}: {stages[stage] - wrong[stage]} of {stages[stage]}")
    print(f"{passed} passed, {failed} failed")
    return not failed


def _show(case: VectorCase, found: dict[str, list[str]]) -> None:
    for stage, lines in found.items():
        print(f"{case.id}, {stage}:")
        for line in lines[:_LINES]:
            print(f"  {line}")
        if len(lines) > _LINES:
            print(f"  and {len(lines) - _LINES} more lines")


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit status."""
    if len(arguments) != 2 or arguments[0] not in KINDS:
        print(f"usage: python -m tests.vectors {{{','.join(KINDS)}}} FILE.jsonl.gz", file=sys.stderr)
        return 2
    try:
        return 0 if run(arguments[0], Path(arguments[1])) else 1
    except InputError as mistake:
        print(mistake, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
