"""Command line: ``python -m bench.reliability [NAME…]``."""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from bench.reliability import floods, memory, rollouts, together
from bench.reliability.errors import ReliabilityError, ReliabilityToolError
from bench.reliability.outcome import ReliabilityOutcome, machine, table
from hack.controlplane import build, bundles
from tests.e2e.support.kube import KubeError
from tests.e2e.support.processes import StartError

NAMES = (*floods.FLOODS, *memory.MEMORY, *rollouts.ROLLOUTS, *together.TOGETHER)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report; the exit code is 2 where the machine lacks something, 1 where something failed."""
    options = _parser().parse_args(arguments)
    # As Ctrl-C does, so that no server outlives the run.
    signal.signal(signal.SIGTERM, _terminated)
    outcomes = []
    try:
        for name in options.names or NAMES:
            print(f"bench.reliability: {name}", file=sys.stderr, flush=True)
            outcomes.append(_run(name, options.scale))
    except ReliabilityError as error:
        return _failed(str(error), error.exit_code)
    except (StartError, KubeError, OSError, AssertionError, http.client.HTTPException) as error:
        return _failed(str(error), 1)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    print(table(outcomes))
    print(f"\n{machine()}")
    return int(any(outcome.felt.failures for outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reliability",
        description="Attack the real server, and count what the reviews beside the attack feel.",
        epilog="The exit code is 1 if one of them failed.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *NAMES], help=f"of {', '.join(NAMES)}")
    parser.add_argument("--scale", type=_part, default=1.0, metavar="PART", help="of the full size (default: 1)")
    return parser


def _part(text: str) -> float:
    try:
        part = float(text)
    except ValueError:
        part = 0.0
    if not 0 < part <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0 and up to 1")
    return part


def _run(name: str, scale: float) -> ReliabilityOutcome:
    if name in floods.FLOODS:
        return floods.run(name, scale)
    if name in memory.MEMORY:
        return memory.run(name, scale)
    try:
        binaries = build.ensure(os.environ)
    except build.UnavailableError as reason:
        raise ReliabilityToolError(str(reason)) from None
    except bundles.BuildError as error:
        raise ReliabilityError(str(error)) from None
    return {**rollouts.ROLLOUTS, **together.TOGETHER}[name](binaries, scale)


def _failed(why: str, exit_code: int) -> int:
    print(f"bench.reliability: {why}", file=sys.stderr)
    return exit_code


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    sys.exit(main())
