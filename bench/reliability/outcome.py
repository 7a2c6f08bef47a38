"""What a run showed, and how it is printed."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from bench.reliability.client import Felt


@dataclass(frozen=True)
class ReliabilityOutcome:
    """One row.

    Attributes:
        attack: in words, with its figures.
        felt: by the reviews beside it.
        memory: of the server at its peak, in MiB; None where several servers took turns.
        seen: what else is to be reported.
    """

    name: str
    attack: str
    felt: Felt
    memory: int | None = None
    seen: str = ""

    @property
    def row(self) -> tuple[str, ...]:
        felt = self.felt
        times = "/".join(f"{felt.quantile(part):.1f}" for part in (0.5, 0.99, 1))
        failed = f"{felt.failures.total():,}"
        if felt.failures:
            failed += " (" + ", ".join(f"{count} {why}" for why, count in felt.failures.most_common(4)) + ")"
        memory = "" if self.memory is None else f"{self.memory}"
        return self.name, self.attack, f"{felt.count:,}", failed, times, memory, self.seen


HEADER = ("Run", "Attack", "Reviews beside", "Failed", "p50/p99/max ms", "Peak MiB", "Seen")


def table(outcomes: Sequence[ReliabilityOutcome]) -> str:
    """All of them in Markdown."""
    rows = [HEADER, ("---",) * len(HEADER), *(outcome.row for outcome in outcomes)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def machine() -> str:
    """Where this was run, in a sentence."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end, {platform.system()}, {python}"
