"""Command line of the benchmark: ``python -m bench.instancetypes``."""

from __future__ import annotations

import argparse
import platform
import sys
from contextlib import closing
from importlib.metadata import version

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.instancetypes.cases import cases
from bench.instancetypes.measure import InstancetypesFigures, Ways, measure
from bench.reviews import host
from bench.reviews.errors import BenchError

_FULL = (7, 1000)
_QUICK = (1, 20)


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; the exit code is 1 where there is nothing to report."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.instancetypes",
        description="Compare what a review of the instancetypes policy costs with the same work done the usual way.",
    )
    parser.add_argument("--quick", action="store_true", help="a short round: shows that all works, not how fast it is")
    rounds, reviews = _QUICK if parser.parse_args(arguments).quick else _FULL
    try:
        with closing(Ways()) as ways:
            figures = [measure(case, ways, rounds, reviews) for case in cases()]
    except BenchError as error:
        print(f"bench.instancetypes: {error}", file=sys.stderr)
        return error.exit_code
    _print(figures, rounds, reviews)
    return 0


def _print(figures: list[InstancetypesFigures], rounds: int, reviews: int) -> None:
    table = Table(box=SIMPLE_HEAD)
    for title in ("Review", "ours, CPU µs", "goal", "usual, CPU µs", "x ours", "range"):
        table.add_column(title, justify="left" if title == "Review" else "right", no_wrap=True)
    for one in figures:
        table.add_row(*one.row())
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    libraries = ", ".join(f"{name} {version(name)}" for name in ("msgspec", "pydantic", "jsonpatch"))
    console.print(f"{host.describe()}; Python {platform.python_version()}, {libraries}")
    console.print(
        f"Medians of {rounds} interleaved rounds of {reviews} reviews each; from a review's bytes to its answer's."
    )


if __name__ == "__main__":
    sys.exit(main())
