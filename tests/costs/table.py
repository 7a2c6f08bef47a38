"""The committed figures, and how they are written again: ``python -m tests.costs.table``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import uvloop

from tests.costs.calls import counted
from tests.costs.modules import imported

TABLE: Final = Path(__file__).with_name("table.json")
# Calls that may come and go with a version of a library or of Python.
TOLERANCE: Final = 0.03
AGAIN: Final = "python -m tests.costs.table"


def committed() -> dict[str, Any]:
    """The table: the calls of a review at each endpoint, and the modules that serve imports."""
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table


def calls() -> dict[str, dict[str, int]]:
    """The current counts of each endpoint, by function."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return {path: dict(sorted(each.items())) for path, each in runner.run(counted()).items()}


def is_more(now: int, then: int) -> bool:
    """Whether a count has grown by more than the tolerance."""
    return now > then * (1 + TOLERANCE)


def main() -> None:
    """Write the table."""
    sums = {path: sum(each.values()) for path, each in calls().items()}
    modules = sum(imported().values())
    TABLE.write_text(json.dumps({"calls": sums, "modules": modules}, indent=1) + "\n")
    for path, each in sums.items():
        print(f"{each:5}  {path}")
    print(f"{modules:5}  modules that serve imports")


if __name__ == "__main__":
    main()
