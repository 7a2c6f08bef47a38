"""What the rounds showed, for people, READMEs and programs."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path
from typing import Final

from bench.index.rounds import IndexOutcome, IndexPlan

_HEADER: Final = ("Operation", "Index ms", "Beside it ms", "Ratio", "Aim ms", "Beside it")


class IndexReport:
    """What one run showed."""

    def __init__(self, plan: IndexPlan, outcome: IndexOutcome) -> None:
        self._plan = plan
        self._outcome = outcome

    def print(self) -> None:
        """For people at a terminal."""
        rows = [_HEADER, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, *figures, beside in rows:
            cells = (cell.rjust(width) for cell, width in zip(figures, widths[1:-1], strict=True))
            print("  ".join((name.ljust(widths[0]), *cells, beside)))
        print(self._legend())

    def markdown(self) -> str:
        """For the README."""
        rule = ["---", *["---:"] * (len(_HEADER) - 2), "---"]
        return (
            "\n".join([*(f"| {' | '.join(row)} |" for row in (_HEADER, rule, *self._rows())), "", self._legend()])
            + "\n"
        )

    def write_json(self, path: Path) -> None:
        """For programs."""
        document = {
            "plan": dataclasses.asdict(self._plan),
            "labels": self._outcome.labels,
            "figures": [
                dataclasses.asdict(figure) | {"ratio": figure.ratio, "met": figure.met}
                for figure in self._outcome.figures
            ],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")

    def _rows(self) -> list[list[str]]:
        return [
            [
                figure.name,
                f"{figure.index:.3f}",
                f"{figure.other:.1f}",
                f"1/{figure.ratio:,.0f}",
                "" if figure.aim is None else f"{figure.aim:g} {'met' if figure.met else 'NOT met'}",
                figure.beside,
            ]
            for figure in self._outcome.figures
        ]

    def _legend(self) -> str:
        size = f"{self._plan.nodes:,} nodes with {self._outcome.labels:.0f} labels on average"
        python = f"{platform.python_implementation()} {platform.python_version()}"
        turns = f"median of {self._plan.rounds} rounds in which both take turns"
        return f"{size}, CPU time of one core, {turns}; {python}. Both gave the same answers."
