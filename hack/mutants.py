"""``python -m hack.mutants [WORD...]``: break KubeVirt's rules one by one, and name those that no test misses.

Words choose the mutants whose file or rule holds one of them. Each is applied in a temporary copy of the source. First
the vectors are run over it, KubeVirt's own answers; where they notice nothing, the port's unit tests. The exit status
is 1 if fewer than nine of ten are noticed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import MUTANTS, ROOT, Mutant

# Fast and telling ones first; without those that draw objects at random, which take longest and tell no rule.
STAGES = {
    "vectors": ["tests/vectors/test_instancetypes.py"],
    "unit tests": [
        "tests/kubevirt",
        "tests/k8s/test_quantity.py",
        "--ignore=tests/kubevirt/go_json/test_malformed.py",
    ],
    "tests of releases": [
        "tests/kubevirt/releases",
        "tests/forecast/test_drain.py",
        "tests/placement/test_target_pods.py",
        "tests/policies/common/test_migration_targets.py",
    ],
}
# All tests: what those above import is a list of names that would miss the next one.
_COPIED = ("webhook", "certs", "tests")
_WORKERS = 2
_SECONDS = 300
_EXPECTED_SHARE = 0.9


class MutantCopy:
    """A copy of the source, for one mutant after the other."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for part in _COPIED:
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        # The plugins of the project's own settings cost more time than these tests.
        (root / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\npythonpath = .\n")
        self._changes = itertools.count(int(time.time()))

    def noticed_by(self, mutant: Mutant | None) -> str:
        """The first stage that fails; empty if none does."""
        if mutant is None:
            return self._failing()
        file = self._root / mutant.file
        before = file.read_text()
        self._write(file, mutant.apply(self._root))
        try:
            return self._failing()
        finally:
            self._write(file, before)

    def _write(self, file: Path, source: str) -> None:
        """Write a source so that what was compiled before doesn't count: Python goes by its second and its size."""
        file.write_text(source)
        changed = next(self._changes)
        os.utime(file, (changed, changed))

    def _failing(self) -> str:
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(self._root)}
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0"]
        for name, files in STAGES.items():
            command = [sys.executable, "-m", "pytest", *options, *files]
            try:
                done = subprocess.run(
                    command, cwd=self._root, env=environment, capture_output=True, timeout=_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                return name
            if done.returncode:
                return name
        return ""


def chosen(words: Sequence[str]) -> list[Mutant]:
    """The mutants that have one of some words; all, without words."""
    return [
        mutant for mutant in MUTANTS if not words or any(word in mutant.file or word in mutant.rule for word in words)
    ]


def main(words: Sequence[str]) -> int:
    """Run the command; its exit status."""
    mutants = chosen(words)
    if not mutants:
        print(f"no mutant has {' or '.join(words)} in its file or rule", file=sys.stderr)
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        idle: SimpleQueue[MutantCopy] = SimpleQueue()
        for number in range(_WORKERS):
            idle.put(MutantCopy(Path(directory, str(number))))

        def noticed_by(mutant: Mutant | None) -> str:
            copy = idle.get()
            try:
                return copy.noticed_by(mutant)
            finally:
                idle.put(copy)

        if stage := noticed_by(None):
            print(f"the {stage} fail without any mutant", file=sys.stderr)
            return 2
        with ThreadPoolExecutor(_WORKERS) as pool:
            counts: Counter[str] = Counter()
            for mutant, stage in zip(mutants, pool.map(noticed_by, mutants), strict=True):
                counts[stage] += 1
                if not stage:
                    print(f"survived: {mutant.rule} ({mutant.file})", flush=True)
    killed = len(mutants) - counts[""]
    by = ", ".join(f"{counts[stage]} by the {stage}" for stage in STAGES)
    print(f"{killed} of {len(mutants)} killed: {by}; {counts['']} survived; {time.monotonic() - began:.0f} s")
    return 0 if killed >= _EXPECTED_SHARE * len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
