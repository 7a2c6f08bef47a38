"""Command line of the benchmark: ``python -m bench.start``."""

from __future__ import annotations

import argparse
import compileall
import os
import sys
import tempfile
from pathlib import Path

import certs
import webhook
from bench.options import at_least
from bench.reliability.errors import ReliabilityError
from bench.reviews import certificate, host
from bench.start.measure import Start, help_seconds, start

_TURNS = ("longest turn ms", "its CPU ms", "listed again ms", "its CPU ms")
_HEADER = ("nodes", "namespaces", "ready s", "CPU s", "idle MB", "peak MB", *_TURNS)


def main() -> int:
    """Measure and report; the exit code is 1 where the server did not start."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.start", description="Measure the start and the idle memory of a replica in a pod."
    )
    parser.add_argument("--nodes", type=at_least(1), default=5000, help="nodes of the large cluster (5000)")
    parser.add_argument("--namespaces", type=at_least(1), default=5000, help="namespaces of the large cluster (5000)")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="starts over each cluster (3)")
    options = parser.parse_args()
    try:
        _measure(options.nodes, options.namespaces, options.rounds)
    except (ReliabilityError, OSError) as error:
        print(f"bench.start: {error}", file=sys.stderr)
        return 1
    return 0


def _measure(nodes: int, namespaces: int, rounds: int) -> None:
    cores = host.cores()
    # As in the image, whose modules are compiled: a start that compiles them takes longer, and more memory.
    for package in (webhook, certs):
        compileall.compile_dir(package.__path__[0], quiet=2)
    wall, cpu = help_seconds(3 * rounds)
    print(f"--help: {wall * 1000:.0f} ms, {cpu * 1000:.0f} ms of CPU\n")
    print(f"| {' | '.join(_HEADER)} |", f"|{' ---: |' * len(_HEADER)}", sep="\n")
    with tempfile.TemporaryDirectory() as directory:
        pair = certificate.make(Path(directory))
        for _ in range(rounds):
            for size in ((3, 3), (nodes, namespaces)):
                print(_row(*size, start(*size, pair, cores, Path(directory))), flush=True)
    print(f"\n{host.describe()}; Python {sys.version.split()[0]}; load {os.getloadavg()[0]:.1f}; {cores}")


def _row(nodes: int, namespaces: int, shown: Start) -> str:
    figures = (f"{shown.ready:.2f}", f"{shown.cpu:.2f}", *(f"{each:.0f}" for each in shown[2:]))
    return f"| {' | '.join((str(nodes), str(namespaces), *figures))} |"


if __name__ == "__main__":
    sys.exit(main())
