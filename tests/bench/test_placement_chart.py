"""The benchmark's chart: complete, within its bounds, and readable."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from bench.placement import chart
from bench.placement.cases import BOTH, DEFAULT
from bench.placement.figures import PlacementFigures
from bench.placement.report import chart_of
from bench.placement.rows import PlacementRow
from bench.placement.table import Cell

SVG = "{http://www.w3.org/2000/svg}"
ROW = PlacementRow("row", 100)
# Every second node lists the image, and those come first in the chart.
SKEWED = PlacementFigures((10, 0) * 10, (0.0,) * 20, (0.0,) * 20)
EVEN = PlacementFigures((5,) * 20, (0.0,) * 20, (0.0,) * 20)


@pytest.fixture
def root() -> ET.Element:
    return ET.fromstring(chart.svg(chart_of(ROW, [Cell(ROW, DEFAULT, (SKEWED,)), Cell(ROW, BOTH, (EVEN,))])))


def bars(root: ET.Element, series: int) -> list[float]:
    """The heights of a series' bars; its mark in the legend is square and has no title."""
    found = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == f"series-{series}"]
    return [float(rect.get("height", "")) for rect in found if rect.find(f"{SVG}title") is not None]


def test_the_chart_is_well_formed_and_complete(root: ET.Element) -> None:
    heights = bars(root, 0)

    assert [round(height / heights[0] * 10) for height in heights] == [10] * 10 + [0] * 10
    assert [round(height / heights[0] * 10) for height in bars(root, 1)] == [5] * 20
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "Where 100 VMs went, on 20 nodes" in texts
    assert "10 nodes list the launcher\u2019s image" in texts
    assert "10 nodes list 50 larger images instead" in texts
    assert {ROW.title, "VMs on the node", "even: 5"} <= set(texts)


def test_the_chart_speaks_to_those_who_cant_see_it(root: ET.Element) -> None:
    named = {element.get("id"): element.text for element in root if element.get("id")}

    assert [*named] == str(root.get("aria-labelledby")).split()
    assert "node by node 10, 10, 10," in str(named["placement-desc"])


def test_the_chart_has_a_dark_side(root: ET.Element) -> None:
    style = next(root.iter(f"{SVG}style")).text

    assert style is not None
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for name in (".back", ".panel", ".series-0", ".series-1", ".count"):
        assert f"{name} {{" in light
        assert f"{name} {{" in dark


@pytest.mark.parametrize("nodes", [2, 3, 20, 60, 500])
def test_bars_stay_in_the_picture(nodes: int) -> None:
    counts = [*range(nodes)]
    groups = [chart.BarGroup("left", nodes // 2), chart.BarGroup("right <&>", nodes - nodes // 2)]
    drawn = chart.svg(
        chart.Chart("title", "desc", "x", "y", groups, [chart.Series(name, name, counts) for name in "ab"], even=1)
    )

    root = ET.fromstring(drawn)

    last = 0.0
    for rect in root.iter(f"{SVG}rect"):
        x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
        assert min(x, y, width, height) >= 0
        assert x + width <= 880
        assert y + height <= 440
        last = max(last, x + width) if rect.get("class") == "series-1" else last
    assert last > 600
    assert len(bars(root, 0)) == len(bars(root, 1)) == nodes


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0, [0, 1]), (1, [0, 1]), (5, [0, 1, 2, 3, 4, 5]), (10, [0, 2, 4, 6, 8, 10]), (12, [0, 5, 10, 15])],
)
def test_ticks_are_few_round_numbers(most: int, expected: list[int]) -> None:
    assert chart.ticks(most) == expected


def test_ticks_reach_the_top() -> None:
    for most in range(1, 3000):
        found = chart.ticks(most)
        assert found[-1] >= most
        assert len(found) <= 6
