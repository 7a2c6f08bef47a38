"""The control plane of the benchmark, with Go's own defaults for its garbage collector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.placement.plane import BenchPlane
from tests.e2e.support.processes import Process

# Tests save CPU time in their first seconds and pay for it in memory; here both are measured.
ENVIRONMENT: Final[Mapping[str, str]] = {"GOGC": "100"}


class CreationPlane(BenchPlane):
    """A control plane as one runs it, and the process of its API server."""

    @property
    def apiserver_pid(self) -> int:
        """The process id of the API server."""
        return self._apiserver.pid

    def process(self, name: str, command: Sequence[str]) -> Process:
        """A server beside the control plane, not started."""
        return self._process(name, command)

    def _process(self, name: str, command: Sequence[str]) -> Process:
        return Process(name, command, self.directory / "logs" / f"{name}.log", ENVIRONMENT)
