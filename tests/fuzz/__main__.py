"""`python -m tests.fuzz`: mutate the corpus for so many seconds; exit 1 with the first input that breaks a promise."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.fuzzer import CORPUS, Fuzzer
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (default: an hour)")
    parser.add_argument("--seed", type=int, default=None, help="of the first one; printed with every run")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append", help="only these (default: all)")
    parser.add_argument("files", nargs="*", type=Path, help="try these inputs instead, each at its target")
    given = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if given.seed is None else given.seed
    fuzzer = Fuzzer(CORPUS, seed, given.target or sorted(TARGETS))
    if given.files:
        failures = [fuzzer.tried(path.parent.name, path.read_bytes()) for path in given.files]
        print("\n".join(filter(None, failures)) or f"fuzz: {len(given.files)} inputs, no promise broken")
        return int(any(failures))
    print(f"fuzz: seed {seed}, {len(fuzzer.pool)} inputs to begin with", flush=True)
    failure = fuzzer.run(given.seconds)
    print(f"fuzz: {fuzzer.count} inputs, {len(fuzzer.seen)} outcomes, {'a promise broken' if failure else 'all held'}")
    if failure:
        print(failure)
    return int(failure is not None)


if __name__ == "__main__":
    sys.exit(main())
