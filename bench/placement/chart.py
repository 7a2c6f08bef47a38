"""A bar chart as SVG: counts on nodes in groups, several series beside each other.

It stands in READMEs, where the viewer's color scheme is not known: background and text change together, so that
neither scheme makes one unreadable on the other. Colours are of Okabe and Ito's palette, which people with any kind of
color blindness can distinguish, and every bar carries its number.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WIDTH: Final = 880.0
_HEIGHT: Final = 440.0
_LEFT: Final = 60.0
_RIGHT: Final = 76.0
_TOP: Final = 160.0
_BOTTOM: Final = 60.0
_HEADING: Final = 50.0  # between a panel's top and its highest bar
_MARGIN: Final = 24.0
_GAP: Final = 20.0  # between groups
_LINE: Final = 21.0  # of the legend
_TICKS: Final = 6
# Of what a node has for its bars.
_FILLED: Final = 0.84
_WIDEST_BAR: Final = 60.0
# Below these a label would run into its neighbour.
_NUMBERED_BAR: Final = 13.0
_NAMED_NODE: Final = 9.0  # for each digit

# Plain values, overridden for dark: viewers that know neither variables nor media queries show the light one.
_STYLE: Final = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2328; }
.title { font-size: 18px; font-weight: 600; }
.legend { font-size: 14px; }
.group { font-size: 13px; font-weight: 600; }
.number { font-size: 11px; font-variant-numeric: tabular-nums; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.back { fill: #ffffff; stroke: #d1d9e0; }
.panel { fill: #f6f8fa; }
.grid { stroke: #dce1e6; }
.axis { stroke: #59636e; }
.even { stroke: #59636e; stroke-dasharray: 5 4; }
.muted { fill: #59636e; }
.count { stroke: #f6f8fa; stroke-width: 2.5px; paint-order: stroke; }
.series-0 { fill: #d55e00; }
.series-1 { fill: #0072b2; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .back { fill: #0d1117; stroke: #3d444d; }
  .panel { fill: #171d25; }
  .grid { stroke: #303740; }
  .axis, .even { stroke: #a2abb5; }
  .muted { fill: #a2abb5; }
  .count { stroke: #171d25; }
  .series-0 { fill: #e69f00; }
  .series-1 { fill: #56b4e9; }
}
"""


@dataclass(frozen=True, slots=True)
class Series:
    """One bar for each node; ``legend`` says what they are."""

    name: str
    legend: str
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class BarGroup:
    """Nodes that stand together, under a heading."""

    heading: str
    size: int


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn.

    Attributes:
        description: the same for people who can't see it.
        groups: of the nodes, in the order of the counts.
        series: one or two.
        even: where a dashed line shows what an even spread would be.
    """

    title: str
    description: str
    x_label: str
    y_label: str
    groups: Sequence[BarGroup]
    series: Sequence[Series]
    even: float


def svg(chart: Chart) -> str:
    """The chart as an SVG document."""
    return _Drawing(chart).document()


def ticks(most: int) -> list[int]:
    """Round numbers from 0 to at least ``most``, few enough to be read."""
    step = 1
    while most > step * (_TICKS - 1):
        # 1, 2, 5, 10, 20, 50, ...
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return list(range(0, most + step, step)) if most else [0, 1]


class _Drawing:
    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._ticks = ticks(max(max(series.counts) for series in chart.series))
        self._nodes = sum(group.size for group in chart.groups)
        self._node_width = (_WIDTH - _LEFT - _RIGHT - _GAP * (len(chart.groups) - 1)) / self._nodes
        self._root = ET.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {_WIDTH:g} {_HEIGHT:g}",
                "width": f"{_WIDTH:g}",
                "height": f"{_HEIGHT:g}",
                "role": "img",
                "aria-labelledby": "placement-title placement-desc",
            },
        )

    def document(self) -> str:
        self._add("title", self._chart.title, id="placement-title")
        self._add("desc", self._chart.description, id="placement-desc")
        self._add("style", _STYLE)
        self._rect(0.5, 0.5, _WIDTH - 1, _HEIGHT - 1, "back", radius=8)
        self._draw_head()
        self._draw_panels()
        self._draw_axes()
        for index in range(len(self._chart.series)):
            self._draw_bars(index)
        ET.indent(self._root)
        return ET.tostring(self._root, encoding="unicode") + "\n"

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _draw_head(self) -> None:
        self._text(_MARGIN, 36, self._chart.title, "title")
        for index, series in enumerate(self._chart.series):
            base = 64 + index * _LINE
            self._rect(_MARGIN, base - 11, 13, 13, f"series-{index}", radius=2)
            self._text(_MARGIN + 21, base, series.legend, "legend")

    def _draw_panels(self) -> None:
        first = 0
        for group in self._chart.groups:
            left, width = self._x(first), group.size * self._node_width
            self._rect(left, _TOP - _HEADING, width, _HEIGHT - _BOTTOM - _TOP + _HEADING, "panel", radius=4)
            self._text(left + width / 2, _TOP - _HEADING + 21, group.heading, "group middle")
            for tick in self._ticks:
                self._line(left, left + width, self._y(tick), "grid" if tick else "axis")
            self._line(left, left + width, self._y(self._chart.even), "even")
            first += group.size

    def _draw_axes(self) -> None:
        right = _WIDTH - _RIGHT
        for tick in self._ticks:
            self._text(_LEFT - 8, self._y(tick) + 4, str(tick), "number muted end")
        self._text(right + 7, self._y(self._chart.even) + 4, f"even: {_round(self._chart.even)}", "number muted")
        label = self._text(0, 0, self._chart.y_label, "muted middle")
        label.set("transform", f"translate({_MARGIN:g} {_round((self._y(0) + _TOP) / 2)}) rotate(-90)")
        self._text((_LEFT + right) / 2, _HEIGHT - 18, self._chart.x_label, "muted middle")
        name_width = _NAMED_NODE * len(str(self._nodes))
        steps = (step for step in (1, 2, 5, 10, 20, 50, 100) if step * self._node_width >= name_width)
        every = next(steps, self._nodes)
        for index in range(self._nodes):
            if index % every == 0:
                x = self._x(index) + self._node_width / 2
                self._text(x, self._y(0) + 17, str(index + 1), "number muted middle")

    def _draw_bars(self, index: int) -> None:
        series = self._chart.series[index]
        bars = len(self._chart.series)
        width = min(self._node_width * _FILLED / bars, _WIDEST_BAR)
        gap = min(1.0, width / 5)
        offset = (self._node_width - bars * width) / 2 + index * width
        for node, count in enumerate(series.counts):
            x, y = self._x(node) + offset, self._y(count)
            bar = self._rect(x + gap / 2, y, width - gap, self._y(0) - y, f"series-{index}", radius=1)
            tooltip = ET.SubElement(bar, "title")
            tooltip.text = f"node {node + 1}, {series.name}: {count}"
            if width >= _NUMBERED_BAR:
                self._text(x + width / 2, y - 4, str(count), f"number count series-{index} middle")

    # -- scales --------------------------------------------------------------------------------------------------------

    def _x(self, node: int) -> float:
        """The left edge of a node."""
        last, gaps = 0, -1
        for group in self._chart.groups:
            gaps += node >= last
            last += group.size
        return _LEFT + node * self._node_width + gaps * _GAP

    def _y(self, count: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return _HEIGHT - _BOTTOM - height * count / self._ticks[-1]

    # -- elements ------------------------------------------------------------------------------------------------------

    def _add(self, tag: str, text: str = "", **attributes: str) -> ET.Element:
        element = ET.SubElement(self._root, tag, attributes)
        element.text = text or None
        return element

    def _rect(self, x: float, y: float, width: float, height: float, style: str, radius: float) -> ET.Element:
        box = {"x": _round(x), "y": _round(y), "width": _round(width), "height": _round(height), "rx": _round(radius)}
        return self._add("rect", **box, **{"class": style})

    def _line(self, x1: float, x2: float, y: float, style: str) -> None:
        self._add("line", x1=_round(x1), x2=_round(x2), y1=_round(y), y2=_round(y), **{"class": style})

    def _text(self, x: float, y: float, text: str, style: str) -> ET.Element:
        return self._add("text", text, x=_round(x), y=_round(y), **{"class": style})


def _round(value: float) -> str:
    return f"{round(value, 1):g}"
