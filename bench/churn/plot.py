"""The picture of a run: one panel for each promise, one above the other, over the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.churn.samples import ChurnOutcome
from hack.svg import document, rectangle, text
from webhook.k8s.client.reflector import CURRENT_SECONDS

_WIDTH: Final = 860
_LEFT: Final = 70
_RIGHT: Final = 24
_TOP: Final = 64
_PANEL: Final = 92
_GAP: Final = 44
_FOOT: Final = 46
_COLORS: Final = ("#0072b2", "#d55e00")
_TICKS: Final = 3

Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """One series, with its name."""

    name: str
    points: Points


class Panel(NamedTuple):
    """Series with one scale, which begins at zero; ``limit`` is a line that none may pass."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    limit: float | None = None


def plot(outcome: ChurnOutcome) -> str:
    """The SVG of a run."""
    samples = outcome.samples
    panels = (
        Panel("memory (RSS)", "MiB", (Line("", [(each.at, each.resident) for each in samples]),)),
        Panel(
            "open files and tasks",
            "",
            (
                Line("file descriptors", [(each.at, each.descriptors) for each in samples]),
                Line("tasks", [(each.at, each.tasks) for each in samples]),
            ),
        ),
        Panel(
            "reviewed requests, by minutes, at the client",
            "ms",
            (Line("p50", outcome.times(0.5)), Line("p99", outcome.times(0.99))),
        ),
        Panel(
            f"oldest store; from {CURRENT_SECONDS:.0f} s on none decides",
            "s",
            (Line("", [(each.at, each.staleness) for each in samples]),),
            CURRENT_SECONDS,
        ),
    )
    height = _TOP + len(panels) * (_PANEL + _GAP) + _FOOT - _GAP + 8
    end = max((sample.at for sample in samples), default=1.0)
    plan = outcome.plan
    title = f"One replica for {end / 60:.0f} minutes: {plan['nodes']:,.0f} nodes, {plan['vms']:,.0f} VMs"
    parts = [
        text(20, 30, title, size=15),
        text(20, 49, "▼ the CA is rotated   ▽ settings are written   gray: warm-up, not counted", css="quiet", size=12),
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _TOP + 18 + number * (_PANEL + _GAP), end, outcome)
    base = _TOP + 18 + len(panels) * (_PANEL + _GAP) - _GAP
    step = _step(end / 60, 8)
    for minute in range(0, math.floor(end / 60) + 1, max(1, math.ceil(step))):
        parts.append(text(_x(minute * 60, end), base + 18, f"{minute} min", size=11, anchor="middle", css="quiet"))
    return document(_WIDTH, height, f"{title}; memory, files, tasks, times and staleness stay as they are", parts)


def _panel(panel: Panel, top: float, end: float, outcome: ChurnOutcome) -> list[str]:
    # Staleness is infinite while a store is not proved to be of etcd's present: there the line ends.
    most = max([value for line in panel.lines for _, value in line.points if math.isfinite(value)], default=1.0)
    step = _step(max(most, panel.limit or 0.0, 1.0), _TICKS)
    scale = step * math.ceil(max(most, panel.limit or 0.0) / step) or 1.0

    def y(value: float) -> float:
        return top + _PANEL - _PANEL * value / scale

    warm = _x(min(outcome.warm_up, end), end) - _LEFT
    parts = [
        text(_LEFT, top - 8, panel.title, size=12),
        rectangle(_LEFT, top, warm, _PANEL) if warm > 0 else "",
    ]
    for number in range(round(scale / step) + 1):
        value = number * step
        label = f"{value:g} {panel.unit}".strip()
        parts.append(text(_LEFT - 8, y(value) + 4, label, size=11, anchor="end", css="quiet"))
        parts.append(_stroke([(_LEFT, y(value)), (_WIDTH - _RIGHT, y(value))], "#8b949e", 0.4))
    if panel.limit is not None:
        parts.append(
            _stroke([(_LEFT, y(panel.limit)), (_WIDTH - _RIGHT, y(panel.limit))], "#d55e00", 1.2, dashes="6 4")
        )
    for at, what in outcome.marks:
        sign = "▼" if "CA" in what else "▽"
        parts.append(text(_x(at, end), top + 4, sign, size=9, anchor="middle", css="quiet"))
    for number, line in enumerate(panel.lines):
        points = [(_x(at, end), y(value)) for at, value in line.points if math.isfinite(value)]
        parts.append(_stroke(points, _COLORS[number % len(_COLORS)], 1.4))
        if line.name:
            x = _WIDTH - _RIGHT - 150 * (len(panel.lines) - 1 - number)
            parts.append(_stroke([(x - 128, top - 12), (x - 112, top - 12)], _COLORS[number % len(_COLORS)], 2.5))
            parts.append(text(x - 106, top - 8, line.name, size=12))
    return [part for part in parts if part]


def _x(at: float, end: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / end


def _step(most: float, count: int) -> float:
    """A round number of which about so many make the whole."""
    power = 10.0 ** math.floor(math.log10(most / count))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * count >= most)


def _stroke(points: Points, color: str, width: float, *, dashes: str = "") -> str:
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{where}" fill="none" stroke="{color}" stroke-width="{width:g}"{dashed}/>'
