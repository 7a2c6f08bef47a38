"""`python -m tests.fuzz`: mutate the corpus for so many seconds; exit 1 with the first input that breaks a promise.

The fuzzer keeps inputs that lead to something new, and writes down the one that breaks a promise.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import COUNTED, TARGETS, reviews

CORPUS = Path(__file__).parent / "corpus"
# Larger ones find nothing that smaller ones don't, and take the time of hundreds.
MAX_INPUT = 400_000
# The fuzzer keeps as many inputs that made something new as memory has room for.
MAX_POOL = 20_000
# Reviews pass twenty endpoints.
_SHARES: Mapping[str, int] = {"reviews": 6, "settings": 1, "documents": 1, "texts": 2}


class Fuzzer:
    """One run.

    Args:
        corpus: a directory for each target, with a file for each input.
        seed: of all chance in it.
        targets: which to run.

    Attributes:
        pool: inputs that are mutated, by target.
        count: inputs that were tried.
        seen: what they led to.
    """

    def __init__(self, corpus: Path, seed: int, targets: Iterable[str]) -> None:
        self._corpus = corpus
        self._chance = random.Random(seed)
        self._mutator = Mutator(self._chance)
        self._targets = [target for target in targets for _ in range(_SHARES[target])]
        self.pool: list[tuple[str, bytes]] = [
            (target, file.read_bytes()) for target in sorted(set(targets)) for file in inputs(corpus, target)
        ]
        self.count = 0
        self.seen: set[tuple[str, str]] = set()

    def run(self, seconds: float) -> str | None:
        """Try inputs for so long; what broke, where it is now, and how to try it again."""
        until = time.monotonic() + seconds
        for target, data in list(self.pool):
            if failure := self.tried(target, data):
                return failure
        while time.monotonic() < until:
            if failure := self.step():
                return failure
        return None

    def step(self) -> str | None:
        target = self._chance.choice(self._targets)
        seeds = [data for name, data in self.pool if name == target]
        data = self._mutated(target, self._chance.choice(seeds))
        if len(data) > MAX_INPUT:
            return None
        return self.tried(target, data)

    def tried(self, target: str, data: bytes) -> str | None:
        """Try an input; it is kept where it leads to something new, and written down where it breaks a promise."""
        self.count += 1
        try:
            if target == "reviews" and self._chance.random() < COUNTED:
                outcome = reviews(data, counted=True)
            else:
                outcome = TARGETS[target](data)
        except (Exception, RecursionError) as error:
            return self._written(target, data, error)
        if (target, outcome) not in self.seen:
            self.seen.add((target, outcome))
            if len(self.pool) < MAX_POOL and len(data) < MAX_INPUT // 10:
                self.pool.append((target, data))
        return None

    def _mutated(self, target: str, seed: bytes) -> bytes:
        if target == "reviews":
            return self._mutator.body(seed)
        if self._chance.random() < 0.2:
            return self._mutator.noise(seed)
        return self._mutator.text(seed.decode(errors="replace")).encode(errors="surrogatepass")

    def _written(self, target: str, data: bytes, error: BaseException) -> str:
        file = self._corpus / target / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        why = "".join(traceback.format_exception(error)[-4:])
        return f"{why}\nThe input is {file} ({len(data)} bytes): {data[:500]!r}\nTry it: python -m tests.fuzz {file}"


def inputs(corpus: Path, target: str) -> list[Path]:
    """The files of a target, in an order that stays."""
    return sorted(file for file in (corpus / target).glob("*") if file.is_file())


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
