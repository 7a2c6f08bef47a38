"""The published figures: what runs write into the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.cluster.report import ClusterReport
from bench.reviews.published import replaced
from bench.reviews.servers import ROOT

COMMAND: Final = "make bench-cluster"
README: Final = "README.md"
PAGE: Final = "docs/cost.md"


def write(report: ClusterReport, root: Path = ROOT) -> list[str]:
    """Write the tables of runs into the pages.

    Returns:
        The pages.
    """
    tables = {README: report.summary(), PAGE: report.markdown()}
    for page, table in tables.items():
        path = root / page
        path.write_text(replaced(path.read_text(), table, COMMAND))
    return [*tables]
