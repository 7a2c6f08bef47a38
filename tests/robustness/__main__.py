"""``python -m tests.robustness``: see README.md beside this file."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from webhook.errors import InputError

from .history import History
from .mutations import MUTATIONS
from .run import KINDS, Plan, judge, record


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.robustness", description="Checks histories of a real cluster."
    )
    parser.add_argument("--seconds", type=float, help="of faults (default: 300, with a mutation 150)")
    parser.add_argument("--seed", type=int, help="of all that is chosen at random (default: another one each time)")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument(
        "--mutation", default="", choices=["", *MUTATIONS], help="a fix to take back, which must be found"
    )
    parser.add_argument("--fault", action="append", default=[], choices=sorted(KINDS), help="faults that come first")
    parser.add_argument("--only", action="store_true", help="inject no other faults than these")
    parser.add_argument("--kubevirt", action="store_true", help="with the controllers of a real KubeVirt")
    parser.add_argument("--current-seconds", type=float, help="the age up to which replicas let a store decide")
    parser.add_argument("--directory", type=Path, help="where logs and history.jsonl are kept (default: a new one)")
    parser.add_argument("--check", type=Path, metavar="FILE", help="check a history.jsonl again, without a cluster")
    given = parser.parse_args(arguments)
    if given.check:
        try:
            history = History.load(given.check)
        except InputError as error:
            print(f"Error: {error}", file=sys.stderr)
            return 2
        return judge(history, given.mutation)[1]
    # With a fault that must be found, a run is as short as it can be: a store is old sooner.
    seconds = given.seconds or (150 if given.mutation else 300)
    current = given.current_seconds or (30 if given.mutation else None)
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    directory = given.directory or Path(tempfile.mkdtemp(prefix="robustness-"))
    plan = Plan(
        seed,
        seconds,
        given.replicas,
        given.clients,
        mutation=given.mutation,
        current_seconds=current,
        faults=tuple(given.fault),
        only=given.only,
        kubevirt=given.kubevirt,
    )
    print(f"seed {seed}, {seconds:.0f} s; everything lies in {directory}", flush=True)
    built = [_built(*which) for which in ((), *((("--kubevirt",),) if given.kubevirt else ()))]
    began = time.time()
    history = record(plan, directory, *built)
    print(f"  recorded in {time.time() - began:.0f} s", flush=True)
    return judge(history, given.mutation)[1]


def _built(*which: str) -> Path:
    """The directory of binaries, which are built where they are missing."""
    build = [sys.executable, "-m", "hack.controlplane.build", *which]
    built = subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True)
    return Path(built.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
