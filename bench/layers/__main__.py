"""Command line of the benchmark: ``python -m bench.layers``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.layers.cases import CASES, LayersCase
from bench.layers.cost import measure_cost
from bench.layers.measure import LayersFigures, LayersSize, measure
from bench.layers.report import chart, markdown, write_json
from bench.options import at_least, writable
from bench.placement.errors import PlacementError
from hack.controlplane import build, bundles
from hack.debian import MissingError
from tests.e2e.support.kube import KubeError
from tests.e2e.support.processes import StartError
from tests.e2e.support.registry import find_registry


def main() -> int:
    """Measure and report; the exit code is 2 where the machine lacks something, 1 where something failed."""
    options = _parser().parse_args()
    size = LayersSize(options.vms, options.images, options.nodes)
    try:
        figures = {} if options.cost_only else _measured(size, options.cases)
    except (MissingError, build.UnavailableError) as error:
        return _failed(str(error), 2)
    except (PlacementError, StartError, KubeError, OSError, AssertionError, bundles.BuildError) as error:
        return _failed(str(error), 1)
    costs = [measure_cost(nodes, options.requests) for nodes in (20, 5000)]
    print(markdown(figures, costs), end="")
    if options.json:
        write_json(options.json, figures, costs)
    if options.svg and figures:
        options.svg.write_text(chart(figures, size))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.layers",
        description="Count what nodes pull where a real kube-scheduler places VMs, and time the scores.",
    )
    parser.add_argument("--vms", metavar="N", type=at_least(1), default=300)
    parser.add_argument("--images", metavar="N", type=at_least(1), default=40)
    parser.add_argument("--nodes", metavar="N", type=at_least(1), default=20)
    parser.add_argument("--cases", metavar="KEY,…", type=_cases, default=CASES, help=", ".join(c.key for c in CASES))
    parser.add_argument("--requests", metavar="N", type=at_least(100), default=1000, help="for the cost (1000)")
    parser.add_argument("--cost-only", action="store_true", help="only the cost of an answer, without a scheduler")
    parser.add_argument("--svg", metavar="FILE", type=writable, help="also draw a chart into FILE")
    parser.add_argument("--json", metavar="FILE", type=writable, help="also write all figures to FILE")
    return parser


def _cases(text: str) -> Sequence[LayersCase]:
    known = {case.key: case for case in CASES}
    try:
        return [known[key] for key in text.split(",")]
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"{error} is unknown; use {', '.join(known)}") from None


def _measured(size: LayersSize, cases: Sequence[LayersCase]) -> dict[str, LayersFigures]:
    registry = find_registry()
    binaries = build.ensure(os.environ)
    with tempfile.TemporaryDirectory(prefix="bench-layers-") as directory:
        return measure(binaries, registry, Path(directory), size, cases, _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _failed(why: str, code: int) -> int:
    _say(f"bench.layers: {why}")
    return code


if __name__ == "__main__":
    sys.exit(main())
