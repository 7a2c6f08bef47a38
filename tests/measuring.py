"""Which tests' coverage is measured: of those that mirror the source, and of KubeVirt's recorded answers, the ones that
draw no inputs.

Measuring doubles what a test costs, and more so for those that run a rule thousands of times. Nor would the figure be
worth more: what drawn inputs, attacks, and a whole cluster happen to reach differs from run to run, and a line that
only they reach is one whose promise no test states. So the others run at full speed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
# The variable through which coverage measures the Python programs that a test starts.
OF_CHILDREN = "COVERAGE_PROCESS_CONFIG"
# The modules whose programs run code that no test of this process reaches: `serve` and `demo`, from start to end.
WITH_CHILDREN = frozenset({TESTS / "cli" / "test_serve.py", TESTS / "cli" / "test_demo.py"})


def is_measured(item: pytest.Item) -> bool:
    """Whether a test mirrors the source, has the same inputs each time, and is no repetition of the others."""
    return mirrors_source(item.path) and not any(map(item.get_closest_marker, ("hypothesis", "repeats")))


def mirrors_source(path: Path) -> bool:
    """Whether a test's file is of the source: those in tests/x are of webhook/x, and vectors of webhook/kubevirt."""
    if not path.is_relative_to(TESTS):
        return False
    first = path.relative_to(TESTS).parts[0].removeprefix("test_")
    return first in {"certs", "vectors"} or (ROOT / "webhook" / first).exists()


def measuring(item: pytest.Item) -> contextlib.AbstractContextManager[None]:
    """The context in which a test runs."""
    if not is_measured(item):
        return unmeasured()
    return contextlib.nullcontext() if item.path in WITH_CHILDREN else _childless()


@contextlib.contextmanager
def _childless() -> Iterator[None]:
    """The programs that are started are not measured."""
    of_children = os.environ.pop(OF_CHILDREN, None)
    try:
        yield
    finally:
        if of_children is not None:
            os.environ[OF_CHILDREN] = of_children


@contextlib.contextmanager
def collecting() -> Iterator[None]:
    """The source is imported measured, and the tests are not: which test imports a module first is a matter of luck."""
    if _current() and os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":  # one worker for all
        for package in ("webhook", "certs"):
            for file in sorted((ROOT / package).rglob("*.py")):
                if file.name != "__main__.py":
                    name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
                    importlib.import_module(name.removesuffix(".__init__"))
    with unmeasured():
        yield


@contextlib.contextmanager
def unmeasured() -> Iterator[None]:
    """Neither this process nor the programs that it starts are measured; nothing to do where they were not anyway."""
    current = _current()
    if current is None:
        yield
        return
    current.stop()
    os.environ.pop(OF_CHILDREN, None)
    try:
        yield
    finally:
        current.start()  # sets the variable again


def _current() -> Any:
    coverage = sys.modules.get("coverage")
    return coverage.Coverage.current() if coverage else None
