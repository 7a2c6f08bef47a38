"""The table: every chosen row in every chosen case, as often as requested, on one control plane."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.placement import webhook
from bench.placement.bindings import Bindings
from bench.placement.cases import PlacementCase
from bench.placement.cluster import PlacementCluster
from bench.placement.cost import Cost, CostPlan, measure_cost
from bench.placement.errors import PlacementError
from bench.placement.figures import PlacementFigures, middle
from bench.placement.placement import Placement, PlacementClients
from bench.placement.plane import BenchPlane
from bench.placement.rows import PlacementRow


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """What is measured.

    Attributes:
        cost: the large cluster, or None to leave it out.
    """

    rows: Sequence[PlacementRow]
    cases: Sequence[PlacementCase]
    rounds: int
    cost: CostPlan | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """The rounds of one row in one case; what is shown of them is the middle one."""

    row: PlacementRow
    case: PlacementCase
    rounds: tuple[PlacementFigures, ...]

    @property
    def shown(self) -> PlacementFigures:
        """The round with the median standard deviation."""
        return self.rounds[middle(self.rounds)]


@dataclass(frozen=True, slots=True)
class PlacementOutcome:
    """What was measured, of which version of Kubernetes; a cell that failed leaves a sentence, and the others count."""

    kubernetes: str
    cells: Sequence[Cell]
    costs: Sequence[Cost] = ()
    failures: Sequence[str] = ()

    def cell(self, row: PlacementRow, case: PlacementCase) -> Cell | None:
        """One cell; None if it failed."""
        return next((cell for cell in self.cells if (cell.row.key, cell.case.key) == (row.key, case.key)), None)


def measure(plan: PlacementPlan, binaries: Path, directory: Path, say: Callable[[str], None]) -> PlacementOutcome:
    """Run everything on a control plane of its own.

    Args:
        binaries: those of the control plane.
        directory: for its data and logs.
        say: is called with the progress.

    Raises:
        PlacementError: a pod was not bound, or not placed as its case says.
        StartError: a server did not start.
        ApiError: the API server denied a request.
    """
    with BenchPlane(directory, binaries) as plane, contextlib.ExitStack() as stack:
        plane.start_profiles()
        if any(case.through_webhook for case in plan.cases):
            stack.enter_context(webhook.serving(plane))
        clients = PlacementClients(stack.enter_context(plane.client()), stack.enter_context(plane.controller_client()))
        version = plane.admin.request("GET", "/version")["gitVersion"]
        failures: list[str] = []
        cells = _measure_cells(plan, clients, say, failures) if plan.rows else []
        costs = measure_cost(plane, clients.admin, plan.cost, say) if plan.cost else []
        return PlacementOutcome(version, cells, costs, failures)


def _measure_cells(
    plan: PlacementPlan, clients: PlacementClients, say: Callable[[str], None], failures: list[str]
) -> list[Cell]:
    cluster = PlacementCluster(clients.admin)
    bindings = Bindings(clients.admin)
    cells: list[Cell] = []
    for row in plan.rows:
        nodes = row.make_nodes()
        cluster.rebuild(nodes, row.devices)
        for case in plan.cases:
            try:
                rounds = [Placement(row, case, cluster, clients, bindings).run(nodes) for _ in range(plan.rounds)]
            except PlacementError as error:
                failures.append(f"{row.key}, {case.key}: {error}")
                say(failures[-1])
                continue
            cells.append(Cell(row, case, tuple(rounds)))
            shown = cells[-1].shown
            say(f"{row.key}, {case.key}: {shown.summary}; {shown.shares_summary}")
    return cells
