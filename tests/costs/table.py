"""The committed figures, and how they are written anew: ``python -m tests.costs.table``."""

from __future__ import annotations

import asyncio
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import uvloop

from tests.costs.calls import counted
from tests.costs.modules import imported

TABLE: Final = Path(__file__).with_name("table.json")
# Calls that may come and go with a version of a library.
TOLERANCE: Final = 0.03
AGAIN: Final = "python -m tests.costs.table"


def committed() -> dict[str, Any]:
    """The table."""
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table


def version() -> str:
    """Of Python, as far as it decides what counts as a call."""
    return ".".join(platform.python_version_tuple()[:2])


def calls() -> dict[str, dict[str, int]]:
    """The current counts."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return {path: dict(sorted(each.items())) for path, each in runner.run(counted()).items()}


def growth(now: Mapping[str, int], then: Mapping[str, int]) -> str:
    """The increased counts, one a line, the most first; empty where the sum is within the tolerance."""
    before, after = sum(then.values()), sum(now.values())
    if after <= before * (1 + TOLERANCE):
        return ""
    more = {name: times - then.get(name, 0) for name, times in now.items() if times > then.get(name, 0)}
    lines = [f"  +{times} {name}" for name, times in sorted(more.items(), key=lambda each: -each[1])]
    return "\n".join((f"{after} instead of {before}:", *lines))


def shrunk(now: Mapping[str, int], then: Mapping[str, int]) -> bool:
    """Whether the sum is so much smaller that the table would let it grow again unnoticed."""
    return sum(now.values()) < sum(then.values()) * (1 - TOLERANCE)


def main() -> None:
    """Write the table."""
    table: dict[str, Any] = {"python": version(), "calls": calls(), "modules": imported()}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")
    for path, each in table["calls"].items():
        print(f"{sum(each.values()):5}  {path}")
    print(f"{sum(table['modules'].values()):5}  modules that serve imports")


if __name__ == "__main__":
    main()
