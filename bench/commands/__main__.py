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
        commands = {
            f"review, {options.vms:,} files": ("review", "--quiet", str(files), *_CLUSTER),
            f"review, {options.vms:,} VMs in a file": ("review", "--quiet", str(one), *_CLUSTER),
            **{
                f"{' '.join(words)}, {options.nodes:,} nodes, {options.vms:,} VMs": (
                    *words,
                    *("-o", "json", "--cluster-from", str(cluster)),
                )
                for words in (("explain", "drain", "--rolling"), ("explain", "update"))
            },
        }
        for label, words in commands.items():
            best = min(_measure(words) for _ in range(options.rounds))
            print(f"{label}: {best[0]:.1f} s, {best[1]:.1f} s of CPU")
    return 0


def _measure(words: Sequence[str]) -> tuple[float, float]:
    """Seconds, and seconds of CPU of all its processes.

    Raises:
        SystemExit: the command fails.
    """
    before, start = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "webhook", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - start, os.times()
    if done.returncode:
        raise SystemExit(f"bench.commands: {' '.join(words)} ended with status {done.returncode}: {done.stderr}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.commands",
        description="Measure how long commands take on large inputs; the best of some rounds.",
    )
    parser.add_argument("--vms", metavar="N", type=at_least(1), default=10_000, help="VMs (default: 10000)")
    parser.add_argument("--nodes", metavar="N", type=at_least(2), default=5000, help="nodes (default: 5000)")
    parser.add_argument("--rounds", metavar="N", type=at_least(1), default=3, help="rounds (default: 3)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
