"""What the rounds showed, for people, READMEs and programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.placement.cases import CASES, OPTED_IN, Case
from bench.placement.chart import Chart, Group, Series, svg
from bench.placement.cluster import LAUNCHER_BYTES, NODE_SIZE, REPORTED_IMAGES, Layout
from bench.placement.rounds import Outcome, Plan
from bench.placement.spread import Spread, middle

_HEADER: Final = ("Scheduler", "Std. deviation", "Fewest", "Most", "Empty nodes")
# More, a character for each, don't fit into a line of a terminal.
_DRAWN_NODES: Final = 40
_LEVELS: Final = "▁▂▃▄▅▆▇█"


class Report:
    """What one run showed. Its figures are those of each case's middle round."""

    def __init__(self, plan: Plan, outcome: Outcome) -> None:
        self._plan = plan
        self._outcome = outcome
        self._layout = Layout(plan.nodes)
        self._middle = {case.key: middle(outcome.spreads[case.key]) for case in CASES}

    def print(self) -> None:
        """For people at a terminal."""
        table = Table(_HEADER[0], box=SIMPLE_HEAD)
        for name in _HEADER[1:]:
            table.add_column(name, justify="right")
        for case in CASES:
            table.add_row(case.title, *self._figures(case), style="bold" if case is OPTED_IN else "")
        console = Console()
        console.print(table)
        if self._plan.nodes <= _DRAWN_NODES:
            width = max(len(case.title) for case in CASES)
            most = max(self._spread(case).most for case in CASES)
            for case in CASES:
                console.print(f"  {case.title:{width}}  {sparkline(self._spread(case).counts, most)}", highlight=False)
            console.print()
        console.print(self._legend(), highlight=False)

    def markdown(self) -> str:
        """For the README."""
        rule = ["---", *["---:"] * (len(_HEADER) - 1)]
        rows = [[case.title, *self._figures(case)] for case in CASES]
        rows[-1] = [f"**{cell}**" for cell in rows[-1]]
        return "\n".join([*(f"| {' | '.join(row)} |" for row in (_HEADER, rule, *rows)), "", self._legend()]) + "\n"

    def svg(self) -> str:
        """For the README, too."""
        return svg(self.chart())

    def chart(self) -> Chart:
        """Pods on each node, both cases beside each other."""
        listing, full = len(self._layout.listing), len(self._layout.full)
        series = [
            Series(case.title, f"{case.title}: {self._summary(case)}", self._spread(case).counts) for case in CASES
        ]
        groups = [
            Group(f"{_nodes(listing)} the launcher\u2019s image", listing),
            Group(f"{_nodes(full)} {REPORTED_IMAGES} larger images instead", full),
        ]
        mean = self._spread(OPTED_IN).mean
        return Chart(
            title=f"Where {self._plan.pods} launcher pods went, on {self._plan.nodes} equal nodes",
            description=" ".join(
                [
                    f"Bar chart of launcher pods on each node; an even spread would be {round(mean, 1):g} on each.",
                    *(f"{one.legend}; node by node {', '.join(map(str, one.counts))}." for one in series),
                    f"{groups[0].heading}; {groups[1].heading}.",
                ]
            ),
            x_label=f"Nodes, each of {NODE_SIZE}",
            y_label="Launcher pods on the node",
            groups=groups,
            series=series,
            even=mean,
        )

    def write_json(self, path: Path) -> None:
        """For programs: everything, each round node by node."""
        document = {
            "kubernetes": self._outcome.kubernetes,
            "plan": dataclasses.asdict(self._plan),
            "nodes": [{"name": name, "lists_image": name in self._layout.listing} for name in self._layout.names],
            "median": {case.key: self._values(case, self._middle[case.key]) for case in CASES},
            "rounds": [
                {"scheduler": case.key, **self._values(case, index)}
                for index in range(self._plan.rounds)
                for case in CASES
            ],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")

    def _values(self, case: Case, index: int) -> dict[str, object]:
        spread = self._outcome.spreads[case.key][index]
        return {
            "round": index + 1,
            "standard_deviation": round(spread.deviation, 3),
            "fewest": spread.fewest,
            "most": spread.most,
            "empty_nodes": spread.empty,
            "pods": dict(zip(self._layout.names, spread.counts, strict=True)),
        }

    def _spread(self, case: Case) -> Spread:
        return self._outcome.spreads[case.key][self._middle[case.key]]

    def _figures(self, case: Case) -> list[str]:
        spread = self._spread(case)
        return [
            f"{spread.deviation:.1f}",
            str(spread.fewest),
            str(spread.most),
            f"{spread.empty} of {self._plan.nodes}",
        ]

    def _summary(self, case: Case) -> str:
        spread = self._spread(case)
        empty = {0: "no node empty", 1: "one node empty"}.get(spread.empty, f"{spread.empty} nodes empty")
        even = spread.fewest == spread.most
        pods = f"{spread.most} on every node" if even else f"{spread.fewest} to {spread.most} on a node"
        return f"{pods}, standard deviation {spread.deviation:.1f}, {empty}"

    def _legend(self) -> str:
        plan, listing, full = self._plan, len(self._layout.listing), len(self._layout.full)
        return (
            f"Launcher pods on a node, of {plan.pods} on {plan.nodes} equal nodes of {NODE_SIZE}: "
            f"{_nodes(listing)} the launcher's image ({LAUNCHER_BYTES / 1e6:.0f} MB), "
            f"{_nodes(full)} {REPORTED_IMAGES} larger ones instead. "
            f"Kubernetes {self._outcome.kubernetes}; {self._rounds()}."
        )

    def _rounds(self) -> str:
        if self._plan.rounds == 1:
            return "one round only, so no median"
        ranges = [_range([spread.deviation for spread in self._outcome.spreads[case.key]]) for case in CASES]
        return f"the median of {self._plan.rounds} rounds (standard deviations in all: {' and '.join(ranges)})"


def sparkline(counts: Sequence[int], most: int) -> str:
    """A character for each node, as high as it is full; a dot for an empty one."""
    levels = len(_LEVELS)
    return "".join(_LEVELS[min(levels, -(-count * levels // most)) - 1] if count else "·" for count in counts)


def _nodes(count: int) -> str:
    return "one node lists" if count == 1 else f"{count} nodes list"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"
