"""Command line of the benchmark: ``python -m bench.commands``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.commands.inputs import ROOT, write_cluster, write_directory, write_file
from bench.options import at_least

_CLUSTER = ("--cluster-from", str(ROOT / "examples" / "cluster"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each command; the exit code is 1 where one ends otherwise than it should."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        files = write_directory(directory / "vms", options.vms)
        one = write_file(directory / "vms.yaml", options.vms)
        cluster = write_cluster(directory / "cluster", options.nodes, options.vms)
        reviews = {
            f"review, {options.vms:,} files": ("review", "--quiet", str(files), *_CLUSTER),
            f"review, {options.vms:,} VMs in a file": ("review", "--quiet", str(one), *_CLUSTER),
        }
        commands = {
            **({} if options.forecasts else reviews),
            **{
                f"{' '.join(words)}, {options.nodes:,} nodes, {options.vms:,} VMs": (
                    *words,
                    *("-o", "json", "--cluster-from", str(cluster)),
                )
                for words in (("explain", "drain", "--rolling"), ("explain", "update"))
            },
        }
        for label, words in commands.items():
            seconds, cpu, memory = min(_measure(words) for _ in range(options.rounds))
            print(f"{label}: {seconds:.1f} s, {cpu:.1f} s of CPU, {memory:.0f} MB at most", flush=True)
    return 0


def _measure(words: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, seconds of CPU of all its processes, and the most memory (MB) that one of them had.

    Raises:
        SystemExit: the command fails.
    """
    command = [sys.executable, "-m", "webhook", *words]
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            what = f"{' '.join(words)} ended with status {process.returncode}: {errors.read().decode()}"
            raise SystemExit(f"bench.commands: {what}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.commands",
        description="Measure how long commands take on large inputs; the best of some rounds.",
    )
    parser.add_argument("--vms", metavar="N", type=at_least(1), default=10_000, help="VMs (default: 10000)")
    parser.add_argument("--nodes", metavar="N", type=at_least(2), default=5000, help="nodes (default: 5000)")
    parser.add_argument("--forecasts", action="store_true", help="measure `explain drain` and `explain update` alone")
    parser.add_argument("--rounds", metavar="N", type=at_least(1), default=3, help="rounds (default: 3)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
