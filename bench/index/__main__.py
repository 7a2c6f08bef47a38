"""Command line of the benchmark: ``python -m bench.index``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.index.report import IndexReport
from bench.index.rounds import DisagreementError, IndexPlan, measure
from bench.options import at_least, writable


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; the exit code is 1 where the answers differ or the file can't be written."""
    options = _parser().parse_args(arguments)
    plan = IndexPlan(options.nodes, options.rounds)
    try:
        report = IndexReport(plan, measure(plan))
        if options.json:
            report.write_json(options.json)
    except (DisagreementError, OSError) as error:
        print(f"bench.index: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench.index: interrupted, nothing to report", file=sys.stderr)
        return 130
    if options.markdown:
        print(report.markdown(), end="")
    else:
        report.print()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.index",
        description="Compare what one review of a migration costs over the index of all nodes and node by node.",
    )
    parser.add_argument("--nodes", metavar="N", type=at_least(10), default=5000, help="nodes (default: 5000)")
    parser.add_argument("--rounds", metavar="N", type=at_least(1), default=5, help="rounds (default: 5)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")
    parser.add_argument("--json", metavar="FILE", type=writable, help="also write all figures to FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
