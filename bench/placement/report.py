"""What the table shows, for people at a terminal, for pages and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.placement.cases import PlacementCase
from bench.placement.chart import BarGroup, Chart, Series, svg
from bench.placement.cost import Cost
from bench.placement.errors import PlacementError
from bench.placement.figures import PlacementFigures
from bench.placement.nodes import LAUNCHER_BYTES, REPORTED_IMAGES
from bench.placement.rows import PlacementRow
from bench.placement.table import Cell, PlacementOutcome, PlacementPlan

_LEGEND: Final = (
    "Each cell: the standard deviation of VMs per node, that of the requested CPU and that of the requested memory per "
    "node (percentage points of the node), and the number of nodes without a VM where there are any."
)
_COST_HEADER: Final = (
    *("Pods that are scheduled", "Choosing a node", "CPU of the scheduler", "Pods per second"),
    "Most of them on a node",
)


class PlacementReport:
    """What one run showed. The figures of a cell are those of its middle round."""

    def __init__(self, plan: PlacementPlan, outcome: PlacementOutcome) -> None:
        self._plan = plan
        self._outcome = outcome

    def print(self) -> None:
        """For people at a terminal."""
        console = Console()
        for header, lines in self._tables():
            table = Table(header[0], box=SIMPLE_HEAD)
            for name in header[1:]:
                table.add_column(name, justify="right")
            for line in lines:
                table.add_row(*line)
            console.print(table)
        console.print(self._legend(), highlight=False)

    def markdown(self) -> str:
        """For a page."""
        blocks = []
        for header, lines in self._tables():
            rule = ["---", *["---:"] * (len(header) - 1)]
            blocks.append("\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *lines)))
        return "\n\n".join([*blocks, self._legend()]) + "\n"

    def write_json(self, path: Path) -> None:
        """For programs: everything, each round node by node."""
        document = {
            "kubernetes": self._outcome.kubernetes,
            "rows": [{"key": row.key, "title": row.title, "cases": self._cases(row)} for row in self._plan.rows],
            "failures": list(self._outcome.failures),
            "cost": [
                {
                    "key": cost.key,
                    "title": cost.title,
                    "algorithm_milliseconds": round(cost.algorithm_milliseconds, 3),
                    "cpu_milliseconds": round(cost.cpu_milliseconds, 3),
                    "pods_per_second": round(cost.pods_per_second, 1),
                    "most_on_a_node": cost.most,
                }
                for cost in self._outcome.costs
            ],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")

    def svg(self, row: PlacementRow, cases: tuple[PlacementCase, PlacementCase]) -> str:
        """The VMs on each node of one row, two cases beside each other.

        Raises:
            PlacementError: the row could not be measured in these cases.
        """
        cells = [cell for case in cases if (cell := self._outcome.cell(row, case))]
        if len(cells) < len(cases):
            raise PlacementError(f"the row {row.key} has no figures, so no chart was drawn")
        return svg(chart_of(row, cells))

    @property
    def is_complete(self) -> bool:
        """Whether every cell has figures."""
        return not self._outcome.failures

    def _tables(self) -> list[tuple[Sequence[str], list[list[str]]]]:
        tables: list[tuple[Sequence[str], list[list[str]]]] = []
        if self._outcome.cells:
            header = ["", *(case.title for case in self._plan.cases)]
            lines = [
                [row.title, *(_cell(self._outcome.cell(row, case)) for case in self._plan.cases)]
                for row in self._plan.rows
            ]
            tables.append((header, lines))
        if self._outcome.costs:
            tables.append((_COST_HEADER, [_cost(cost) for cost in self._outcome.costs]))
        return tables

    def _legend(self) -> str:
        rounds = "one round" if self._plan.rounds == 1 else f"the median of {self._plan.rounds} rounds"
        return (
            f"Kubernetes {self._outcome.kubernetes}; {rounds}. {_LEGEND} Unless a row says otherwise, half of the "
            f"nodes list the launcher's image ({LAUNCHER_BYTES / 1e6:.0f} MB), the others {REPORTED_IMAGES} larger "
            "ones."
        )

    def _cases(self, row: PlacementRow) -> dict[str, object]:
        return {
            case.key: {**_values(cell.shown), "rounds": [_values(figures) for figures in cell.rounds]}
            for case in self._plan.cases
            if (cell := self._outcome.cell(row, case))
        }


def chart_of(row: PlacementRow, cells: Sequence[Cell]) -> Chart:
    """The VMs on each node; those that list the launcher's image stand together."""
    nodes = row.make_nodes()
    order = sorted(range(len(nodes)), key=lambda index: not nodes[index].lists_image)
    listing = sum(node.lists_image for node in nodes)
    groups = [
        BarGroup(heading, size)
        for heading, size in (
            (f"{_nodes(listing)} the launcher\u2019s image", listing),
            (f"{_nodes(len(nodes) - listing)} {REPORTED_IMAGES} larger images instead", len(nodes) - listing),
        )
        if size
    ]
    series = [
        Series(cell.case.title, f"{cell.case.title}: {cell.shown.summary}", [cell.shown.counts[i] for i in order])
        for cell in cells
    ]
    mean = row.vms / len(nodes)
    return Chart(
        title=f"Where {row.vms} VMs went, on {len(nodes)} nodes",
        description=" ".join(
            [
                f"Bar chart of VMs on each node; an even spread would be {round(mean, 1):g} on each.",
                *(f"{one.legend}; node by node {', '.join(map(str, one.counts))}." for one in series),
                *(f"{group.heading}." for group in groups),
            ]
        ),
        x_label=row.title,
        y_label="VMs on the node",
        groups=groups,
        series=series,
        even=mean,
    )


def _values(figures: PlacementFigures) -> dict[str, object]:
    return {
        "vms_standard_deviation": round(figures.deviation, 3),
        "cpu_standard_deviation": round(figures.cpu_deviation, 3),
        "memory_standard_deviation": round(figures.memory_deviation, 3),
        "fewest": figures.fewest,
        "most": figures.most,
        "empty_nodes": figures.empty,
        "vms": figures.counts,
        "fullest_memory_percent": round(max(figures.memory), 1),
    }


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "failed"
    figures = cell.shown
    empty = f"; {figures.empty} empty" if figures.empty else ""
    return f"{figures.deviation:.1f}; {figures.cpu_deviation:.1f}, {figures.memory_deviation:.1f}{empty}"


def _cost(cost: Cost) -> list[str]:
    return [
        cost.title,
        f"{cost.algorithm_milliseconds:.1f} ms",
        f"{cost.cpu_milliseconds:.1f} ms",
        f"{cost.pods_per_second:.0f}",
        f"{cost.most}",
    ]


def _nodes(count: int) -> str:
    return "one node lists" if count == 1 else f"{count} nodes list"
