"""Durations as Go writes them."""

from __future__ import annotations

import re
from typing import Final

# Its parts are looked for only where all of it is one: a search takes the square of the digits' number.
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_SECONDS: Final = 2**63 / 1e9


def parse_duration(text: str) -> float | None:
    """Seconds of a duration, for example ``1m30s`` (Go, time.ParseDuration); None: it is not a valid one."""
    if not _DURATION.fullmatch(text):
        return None
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds >= _MOST_SECONDS:
        return None
    return -seconds if text.startswith("-") else seconds
