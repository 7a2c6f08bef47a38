"""What was measured, as a table, a chart, and for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.layers.cases import CASES
from bench.layers.cost import AttemptCost
from bench.layers.measure import LayersFigures, LayersSize
from hack import svg

_TITLES: Final = {case.key: case.title for case in CASES}
_HEADINGS: Final = (
    "scheduler",
    "pulled",
    "need not be pulled",
    "VMs per node, standard deviation",
    "fewest and most VMs",
    "memory, standard deviation",
    "memory on the fullest node",
)
_WIDTH: Final = 860
_LEFT: Final = 390
_BAR: Final = 150
_ROW: Final = 34


def markdown(figures: Mapping[str, LayersFigures], costs: Sequence[AttemptCost]) -> str:
    """Tables for a page."""
    lines = []
    if figures:
        lines += [
            f"| {' | '.join(_HEADINGS)} |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {_TITLES[key]} | {each.pulled / 1024:.1f} GiB | {each.present_share:.0f} % | {each.deviation:.1f} | "
            f"{min(each.counts)} to {max(each.counts)} | {each.memory_deviation:.1f} pp | {max(each.memory):.0f} % |"
            for key, each in figures.items()
        ]
        lines.append("")
    if costs:
        lines += [
            "| nodes in the request | bytes of the request | median | p99 | median if no node has changed |",
            "|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {cost.nodes:,} | {cost.request:,} | {cost.median:.3f} ms | {cost.p99:.3f} ms | "
            f"{cost.unchanged:.3f} ms |"
            for cost in costs
        ]
    return "\n".join(lines) + "\n"


def chart(figures: Mapping[str, LayersFigures], size: LayersSize) -> str:
    """The bytes pulled and the spread of each case, as SVG."""
    most = max(each.pulled for each in figures.values())
    widest = max(each.memory_deviation for each in figures.values())
    second = _LEFT + _BAR + 100
    parts = [
        svg.text(20, 30, f"{size.vms} VMs with {size.images} images on {size.nodes} nodes", size=15),
        svg.text(_LEFT, 62, "GiB pulled", css="quiet"),
        svg.text(second, 62, "unevenness of memory, pp", css="quiet"),
    ]
    for number, (key, each) in enumerate(figures.items()):
        y = 76 + number * _ROW
        css = "accent" if key.startswith("layers") else "box"
        parts += [
            svg.text(20, y + 17, _TITLES[key], size=12),
            svg.rectangle(_LEFT, y, max(1.0, _BAR * each.pulled / most), _ROW - 10, css),
            svg.text(_LEFT + _BAR * each.pulled / most + 8, y + 17, f"{each.pulled / 1024:.0f}"),
            svg.rectangle(second, y, max(1.0, _BAR * each.memory_deviation / max(widest, 1.0)), _ROW - 10, css),
            svg.text(
                second + _BAR * each.memory_deviation / max(widest, 1.0) + 8, y + 17, f"{each.memory_deviation:.1f}"
            ),
        ]
    title = "What nodes pull, and how evenly memory is requested, for each way of scoring images"
    return svg.document(_WIDTH, 90 + len(figures) * _ROW, title, parts)


def write_json(path: Path, figures: Mapping[str, LayersFigures], costs: Sequence[AttemptCost]) -> None:
    """Everything, for programs."""
    document = {
        "cases": {key: dataclasses.asdict(each) for key, each in figures.items()},
        "cost": [dataclasses.asdict(cost) for cost in costs],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
