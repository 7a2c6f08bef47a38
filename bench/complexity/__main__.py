"""Command line of the benchmark: ``python -m bench.complexity``."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.complexity.rounds import ComplexityFigures, ComplexityPlan, measure
from bench.options import at_least
from bench.reviews import host

LIMIT_MS = 250


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; the exit code is 1 where a review took longer than `LIMIT_MS`."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.complexity",
        description="Review the largest objects that etcd takes, in every shape, beside everyday reviews.",
    )
    parser.add_argument("--bytes", metavar="N", type=at_least(1000), default=1_500_000, help="of each object")
    parser.add_argument("--only", metavar="WORD", default="", help="only reviews with this word in their name")
    parser.add_argument("--all", action="store_true", help="each list by itself too, some 1,800 shapes")
    options = parser.parse_args(arguments)
    figures = asyncio.run(measure(ComplexityPlan(options.bytes, options.only, options.all)))
    if not figures:
        print(f"bench.complexity: no review has {options.only} in its name", file=sys.stderr)
        return 2
    _print(figures, options.bytes)
    return int(max(each.milliseconds for each in figures) > LIMIT_MS)


def _print(figures: Sequence[ComplexityFigures], size: int) -> None:
    table = Table(box=SIMPLE_HEAD)
    for title in ("Review", "slowest shape", "items", "CPU ms", "answer", "beside: p50 ms", "max ms"):
        table.add_column(title, justify="right" if title.endswith("ms") or title == "items" else "left")
    for name, group in groupby(figures, key=lambda each: each.review):
        worst = max(group, key=lambda each: each.milliseconds)
        table.add_row(
            name,
            worst.shape,
            str(worst.items),
            f"{worst.milliseconds:.0f}",
            worst.answer,
            f"{worst.beside_p50:.1f}",
            f"{worst.beside_max:.0f}",
        )
    console = Console(highlight=False, width=120)
    console.print(table)
    console.print(f"{host.describe()}; Python {platform.python_version()}")
    console.print(
        f"{len(figures)} shapes of {size} bytes each: of every review the slowest, and the everyday reviews that"
        " arrived while it was at work, from their arrival to their answers."
    )


if __name__ == "__main__":
    sys.exit(main())
