"""Command line of the benchmark: ``python -m bench.index``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.index.report import Report
from bench.index.rounds import DisagreementError, Plan, measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; the exit code is 1 where the answers differ or the file can't be written."""
    options = _parser().parse_args(arguments)
    plan = Plan(options.nodes, options.rounds)
    try:
        report = Report(plan, measure(plan))
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
    parser.add_argument("--nodes", metavar="N", type=_at_least(10), default=5000, help="nodes (default: 5000)")
    parser.add_argument("--rounds", metavar="N", type=_at_least(1), default=5, help="rounds (default: 5)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")
    parser.add_argument("--json", metavar="FILE", type=_writable, help="also write all figures to FILE")
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return number


def _writable(name: str) -> Path:
    path = Path(name)
    if not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise argparse.ArgumentTypeError(f"{name} can't be written")
    return path


if __name__ == "__main__":
    sys.exit(main())
