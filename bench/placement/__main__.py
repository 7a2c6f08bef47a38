"""Command line of the benchmark: ``python -m bench.placement``."""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final, NoReturn

from bench.options import at_least, writable
from bench.placement.errors import MissingToolError, PlacementError
from bench.placement.report import Report
from bench.placement.rounds import Plan, measure
from hack.controlplane import build
from tests.e2e.kube import ApiError
from tests.e2e.objects import NODE_ALLOCATABLE
from tests.e2e.processes import StartError

_PODS_ON_A_NODE: Final = int(NODE_ALLOCATABLE["pods"])


def main() -> int:
    """Measure and report; the exit code is 2 where the machine lacks something, 1 where something failed."""
    parser = _parser()
    options = parser.parse_args()
    if options.pods > options.nodes * _PODS_ON_A_NODE:
        parser.error(f"{options.nodes} nodes hold {options.nodes * _PODS_ON_A_NODE} pods: choose fewer with --pods")
    # As Ctrl-C does, so that no server outlives the benchmark.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        report = _measured(Plan(options.pods, options.nodes, options.rounds))
        if options.json:
            report.write_json(options.json)
        if options.svg:
            options.svg.write_text(report.svg())
    except PlacementError as error:
        return _failed(str(error), error.exit_code)
    except (StartError, ApiError, OSError, http.client.HTTPException) as error:
        return _failed(str(error), 1)
    except AssertionError as error:  # how the harness says what it has waited for in vain
        return _failed(str(error), 1)
    except KeyboardInterrupt:
        return _failed("interrupted, nothing to report", 130)
    if options.markdown:
        print(report.markdown(), end="")
    else:
        report.print()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.placement",
        description="Count where a real kube-scheduler puts launcher pods, by its default profile and by ours.",
        epilog="The first run builds the control plane, which takes a few minutes more.",
    )
    parser.add_argument("--pods", metavar="N", type=at_least(1), default=100, help="launcher pods (default: 100)")
    parser.add_argument("--nodes", metavar="N", type=at_least(2), default=20, help="nodes (default: 20)")
    parser.add_argument("--rounds", metavar="N", type=at_least(1), default=3, help="rounds (default: 3)")
    parser.add_argument("--svg", metavar="FILE", type=writable, help="also draw the middle round into FILE")
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")
    parser.add_argument("--json", metavar="FILE", type=writable, help="also write all figures to FILE")
    return parser


def _measured(plan: Plan) -> Report:
    try:
        binaries = build.ensure(os.environ)
    except build.UnavailableError as reason:
        raise MissingToolError(str(reason)) from None
    except build.BuildError as error:
        raise PlacementError(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="bench-placement-") as directory:
        return Report(plan, measure(plan, binaries, Path(directory), _say))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _failed(why: str, exit_code: int) -> int:
    _say(f"bench.placement: {why}")
    return exit_code


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    sys.exit(main())
