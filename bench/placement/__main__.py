"""Command line of the benchmark: ``python -m bench.placement``."""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from bench.options import at_least, writable
from bench.placement.cases import BOTH, CASES, DEFAULT, MAIN, PlacementCase
from bench.placement.cost import CostPlan
from bench.placement.errors import PlacementError, PlacementToolError
from bench.placement.report import PlacementReport
from bench.placement.rows import ROWS, PlacementRow
from bench.placement.table import PlacementPlan, measure
from hack.controlplane import build, bundles
from tests.e2e.support.kube import KubeError
from tests.e2e.support.processes import StartError

_CHARTED: Final = "64cpu-daemonsets-100"
T = TypeVar("T", PlacementRow, PlacementCase)


def main() -> int:
    """Measure and report; the exit code is 2 where the machine lacks something, 1 where something failed."""
    parser = _parser()
    options = parser.parse_args()
    if options.list:
        _list_all()
        return 0
    plan = plan_of(options)
    if options.svg and not _can_chart(plan):
        parser.error(f"--svg draws the row {_CHARTED} in the cases {DEFAULT.key} and {BOTH.key}: choose these too")
    # As Ctrl-C does, so that no server outlives the benchmark.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        report = _measured(plan)
        if options.json:
            report.write_json(options.json)
        if options.svg:
            charted = next(row for row in plan.rows if row.key == _CHARTED)
            options.svg.write_text(report.svg(charted, (DEFAULT, BOTH)))
    except PlacementError as error:
        return _failed(str(error), error.exit_code)
    except (StartError, KubeError, OSError, http.client.HTTPException) as error:
        return _failed(str(error), 1)
    except AssertionError as error:  # how the harness says what it has waited for in vain
        return _failed(str(error), 1)
    except KeyboardInterrupt:
        return _failed("interrupted, nothing to report", 130)
    if options.markdown:
        print(report.markdown(), end="")
    else:
        report.print()
    return 0 if report.is_complete else 1


def plan_of(options: argparse.Namespace) -> PlacementPlan:
    """What the command line asks for."""
    rows: Sequence[PlacementRow] = options.rows or [row for row in ROWS if row.quick]
    if options.all:
        rows = ROWS
    if options.cost_only:
        rows = []
    cost = CostPlan(*options.cost) if options.cost else CostPlan() if options.all or options.cost_only else None
    return PlacementPlan(rows, options.cases or MAIN, options.rounds, cost)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.placement",
        description="Count where a real kube-scheduler puts VMs, and what that costs it.",
        epilog="The first run builds the control plane, which takes a few minutes more.",
    )
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--rows", metavar="KEY,…", type=_keys(ROWS), help="clusters and VMs (default: a few that take five minutes)"
    )
    rows.add_argument("--all", action="store_true", help="all rows, and the cost on a large cluster")
    rows.add_argument("--cost-only", action="store_true", help="no rows, only the cost on a large cluster")
    parser.add_argument(
        "--cases", metavar="KEY,…", type=_keys(CASES), help=f"columns (default: {','.join(case.key for case in MAIN)})"
    )
    parser.add_argument("--rounds", metavar="N", type=at_least(1), default=1, help="rounds of each cell (default: 1)")
    parser.add_argument(
        "--cost",
        metavar=("NODES", "PODS", "SCHEDULED"),
        nargs=3,
        type=at_least(1),
        help="also measure the cost, on a cluster of this size "
        f"({CostPlan().nodes} {CostPlan().pods} {CostPlan().attempts} with --all and --cost-only)",
    )
    parser.add_argument("--list", action="store_true", help="list all rows and cases, measure nothing")
    parser.add_argument("--svg", metavar="FILE", type=writable, help=f"also draw the row {_CHARTED} into FILE")
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")
    parser.add_argument("--json", metavar="FILE", type=writable, help="also write all figures to FILE")
    return parser


def _keys(known: Sequence[T]) -> Callable[[str], list[T]]:
    """Some of the rows or cases, in the order given."""
    by_key = {one.key: one for one in known}

    def chosen(text: str) -> list[T]:
        keys = text.split(",")
        if unknown := [key for key in keys if key not in by_key]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; --list shows all rows and cases")
        return [by_key[key] for key in keys]

    return chosen


def _list_all() -> None:
    for heading, known in (("rows", ROWS), ("cases", CASES)):
        print(f"{heading}:")
        for one in known:
            print(f"  {one.key:34} {one.title}")


def _can_chart(plan: PlacementPlan) -> bool:
    return _CHARTED in {row.key for row in plan.rows} and {DEFAULT.key, BOTH.key} <= {case.key for case in plan.cases}


def _measured(plan: PlacementPlan) -> PlacementReport:
    try:
        binaries = build.ensure(os.environ)
    except build.UnavailableError as reason:
        raise PlacementToolError(str(reason)) from None
    except bundles.BuildError as error:
        raise PlacementError(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="bench-placement-") as directory:
        return PlacementReport(plan, measure(plan, binaries, Path(directory), _say))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _failed(why: str, exit_code: int) -> int:
    _say(f"bench.placement: {why}")
    return exit_code


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    sys.exit(main())
