"""The committed figures, and how they are written again: ``python -m tests.costs.table``."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import uvloop

from tests.costs.calls import counted

TABLE: Final = Path(__file__).with_name("table.json")
# Calls that may come and go with a version of a library or of Python.
TOLERANCE: Final = 0.03
AGAIN: Final = "python -m tests.costs.table"


def committed() -> dict[str, Any]:
    """The table: the calls of a review at each endpoint, and the modules that serve imports."""
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table


def calls() -> dict[str, dict[str, int]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return {path: dict(sorted(each.items())) for path, each in runner.run(counted()).items()}


def is_more(now: int, then: int) -> bool:
    """Whether a count has grown by more than the tolerance."""
    return now > then * (1 + TOLERANCE)


# With what `serve` imports later on, as soon as it knows that it serves a cluster.
_SERVE: Final = (
    *("webhook.cli.main", "webhook.cli.serve", "uvloop", "webhook.server.runtime.serve", "webhook.cluster.live"),
    *("webhook.k8s.client.transport", "webhook.server.background.drift"),
    *("webhook.server.background.events", "webhook.server.background.fidelity"),
)
_PROGRAM: Final = f"""
import json, sys
before = set(sys.modules)
import {", ".join(_SERVE)}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported() -> dict[str, int]:
    """How many modules beside Python's own, by the package that they belong to."""
    said = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True, timeout=120)
    counts: dict[str, int] = {}
    for name in json.loads(said.stdout):
        package = name.partition(".")[0]
        if package not in sys.stdlib_module_names:
            counts[package] = counts.get(package, 0) + 1
    return dict(sorted(counts.items()))


def main() -> None:
    sums = {path: sum(each.values()) for path, each in calls().items()}
    modules = sum(imported().values())
    TABLE.write_text(json.dumps({"calls": sums, "modules": modules}, indent=1) + "\n")
    for path, each in sums.items():
        print(f"{each:5}  {path}")
    print(f"{modules:5}  modules that serve imports")


if __name__ == "__main__":
    main()
