"""A process whose wall clock is wrong, and nothing else of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.support.processes import ROOT

from .clocks import set_clock

# Says, for each line that it reads, what its clocks say.
PROGRAM = """
import sys, time
from pathlib import Path
from tests.robustness.clocks import shift
right = shift(Path(sys.argv[1]))
for _ in sys.stdin:
    print(time.time(), time.time_ns() / 1e9, right(), time.monotonic(), flush=True)
"""


def test_the_wall_clock_jumps_and_the_monotonic_one_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    set_clock(file, 0.0)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, file], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        for offset in (0.0, 240.0, -3600.0, 0.0):
            set_clock(file, offset)
            began = time.time(), time.monotonic()
            process.stdin.write("\n")
            process.stdin.flush()
            wall, wall_ns, right, monotonic = map(float, process.stdout.readline().split())
            ended = time.time(), time.monotonic()
            assert began[0] + offset <= wall <= ended[0] + offset
            assert abs(wall_ns - wall) < ended[0] - began[0]
            assert began[0] <= right <= ended[0]
            assert began[1] <= monotonic <= ended[1]
        process.stdin.close()
