"""The benchmark's pure parts: what it counts, draws and says. That it runs at all is for a control plane to show."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.placement import chart, launcher
from bench.placement.__main__ import main
from bench.placement.cluster import LAUNCHER_BYTES, LAUNCHER_IMAGE, REPORTED_IMAGES, Layout, _others
from bench.placement.report import Report, sparkline
from bench.placement.rounds import Outcome, Plan
from bench.placement.spread import Spread, middle
from webhook.settings.file import load

SKEWED = Spread((10, 9, 11, 0, 0, 0))
EVEN = Spread((5, 5, 6, 4, 5, 5))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def report() -> Report:
    spreads = {"default-scheduler": [Spread((15, 15, 0, 0, 0, 0)), SKEWED, EVEN], "kubevirt": [EVEN, EVEN, EVEN]}
    return Report(Plan(pods=30, nodes=6, rounds=3), Outcome("v1.36.3", spreads))


# -- what is counted ---------------------------------------------------------------------------------------------------


def test_a_spread_counts_every_node_in_order() -> None:
    spread = Spread.of(["a", "b", "c"], ["c", "a", "c"])

    assert spread.counts == (1, 0, 2)
    assert (spread.total, spread.mean, spread.fewest, spread.most, spread.empty) == (3, 1, 0, 2, 1)


def test_the_deviation_is_that_of_all_nodes() -> None:
    assert Spread((10,) * 10 + (0,) * 10).deviation == 5
    assert Spread((5,) * 20).deviation == 0
    assert math.isclose(Spread((4, 6)).deviation, 1)


def test_a_pod_elsewhere_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="a pod is on other, which is none of the 2 nodes"):
        Spread.of(["a", "b"], ["a", "other"])


def test_the_middle_round_has_the_median_deviation() -> None:
    assert middle([SKEWED]) == 0
    assert middle([SKEWED, EVEN]) == 1
    assert middle([Spread((15, 15, 0, 0, 0, 0)), EVEN, SKEWED]) == 2
    assert middle([EVEN, EVEN, EVEN]) == 1


# -- what is made ------------------------------------------------------------------------------------------------------


def test_half_of_the_nodes_list_the_image() -> None:
    assert Layout(3).names == ("node-1", "node-2", "node-3")
    assert Layout(3).listing == ("node-1",)
    assert Layout(20).listing[-1] == "node-10"
    assert Layout(20).full[0] == "node-11"
    assert list(Layout(20).names) == sorted(Layout(20).names)


def test_the_other_images_leave_no_room_for_the_launchers() -> None:
    others = list(_others())

    assert len(others) == REPORTED_IMAGES
    assert min(image["sizeBytes"] for image in others) > LAUNCHER_BYTES
    assert LAUNCHER_IMAGE not in {name for image in others for name in image["names"]}


def test_a_launcher_asks_for_what_a_recorded_one_asks_for() -> None:
    capture = Path(__file__).parents[1] / "data" / "captures" / "pod-create-launcher.json"
    recorded = json.loads(capture.read_text())["request"]["object"]["spec"]
    vmi = {**launcher.machine("vm"), "metadata": {"name": "vm", "uid": "1"}}

    made = launcher.pod(vmi)

    for kind in ("containers", "initContainers"):
        ours, theirs = made["spec"][kind][0], recorded[kind][0]
        assert {**ours, "image": ""} == {key: theirs[key] for key in ours} | {"image": ""}
        assert ours["image"] == LAUNCHER_IMAGE
    assert made["spec"]["nodeSelector"] == recorded["nodeSelector"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "1"


def test_the_settings_are_valid() -> None:
    settings = load(Path(launcher.__file__).with_name("settings.yaml"))

    assert settings.scheduling.scheduler_name == "kubevirt"
    assert list(settings.scheduling.schedulers) == ["kubevirt"]


# -- what is said ------------------------------------------------------------------------------------------------------


def test_markdown(report: Report) -> None:
    header, _, default, ours, _, legend = report.markdown().splitlines()

    assert header == "| Scheduler | Std. deviation | Fewest | Most | Empty nodes |"
    assert default == "| default-scheduler | 5.0 | 0 | 11 | 3 of 6 |"
    assert ours == "| **kubevirt, through the webhook** | **0.6** | **4** | **6** | **0 of 6** |"
    assert "30 on 6 equal nodes of 16 CPUs and 64 GiB: 3 nodes list the launcher's image (600 MB)" in legend
    assert legend.endswith("the median of 3 rounds (standard deviations in all: 0.6 to 7.1 and 0.6).")


def test_one_round_has_no_median() -> None:
    outcome = Outcome("v1.36.3", {"default-scheduler": [SKEWED], "kubevirt": [EVEN]})

    assert "one round only, so no median." in Report(Plan(30, 6, 1), outcome).markdown()


def test_for_a_terminal(report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    report.print()

    printed = capsys.readouterr().out
    assert "kubevirt, through the webhook              0.6        4      6        0 of 6" in printed
    assert "default-scheduler              █▇█···" in printed


def test_a_sparkline_tells_empty_from_little() -> None:
    assert sparkline([0, 1, 50, 100], 100) == "·▁▄█"


def test_json_has_every_round(report: Report, tmp_path: Path) -> None:
    file = tmp_path / "placement.json"

    report.write_json(file)

    document = json.loads(file.read_text())
    assert document["plan"] == {"pods": 30, "nodes": 6, "rounds": 3}
    assert [node["lists_image"] for node in document["nodes"]] == [True] * 3 + [False] * 3
    assert [(one["round"], one["scheduler"]) for one in document["rounds"]] == [
        (number, name) for number in (1, 2, 3) for name in ("default-scheduler", "kubevirt")
    ]
    assert document["median"]["default-scheduler"] == {
        "round": 2,
        "standard_deviation": 5.033,
        "fewest": 0,
        "most": 11,
        "empty_nodes": 3,
        "pods": {"node-1": 10, "node-2": 9, "node-3": 11, "node-4": 0, "node-5": 0, "node-6": 0},
    }


# -- what is drawn -----------------------------------------------------------------------------------------------------


def bars(root: ET.Element, series: int) -> list[float]:
    """The heights of a series' bars; its mark in the legend is square and has no title."""
    found = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == f"series-{series}"]
    return [float(rect.get("height", "")) for rect in found if rect.find(f"{SVG}title") is not None]


def test_the_chart_is_well_formed_and_complete(report: Report) -> None:
    root = ET.fromstring(report.svg())

    heights = bars(root, 0)
    assert [round(height / heights[0] * 10) for height in heights] == list(SKEWED.counts)
    assert [round(height / heights[0] * 10) for height in bars(root, 1)] == list(EVEN.counts)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "Where 30 launcher pods went, on 6 equal nodes" in texts
    assert "3 nodes list the launcher\u2019s image" in texts
    assert "3 nodes list 50 larger images instead" in texts
    assert "kubevirt, through the webhook: 4 to 6 on a node, standard deviation 0.6, no node empty" in texts
    assert {"Nodes, each of 16 CPUs and 64 GiB", "Launcher pods on the node", "even: 5"} <= set(texts)


def test_the_chart_speaks_to_those_who_cant_see_it(report: Report) -> None:
    root = ET.fromstring(report.svg())

    named = {element.get("id"): element.text for element in root if element.get("id")}
    assert [*named] == str(root.get("aria-labelledby")).split()
    assert "node by node 10, 9, 11, 0, 0, 0" in str(named["placement-desc"])


def test_the_chart_has_a_dark_side(report: Report) -> None:
    style = next(ET.fromstring(report.svg()).iter(f"{SVG}style")).text

    assert style is not None
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for name in (".back", ".panel", ".series-0", ".series-1", ".count"):
        assert f"{name} {{" in light
        assert f"{name} {{" in dark


@pytest.mark.parametrize("nodes", [2, 3, 20, 60, 500])
def test_bars_stay_in_the_picture(nodes: int) -> None:
    counts = [*range(nodes)]
    groups = [chart.Group("left", nodes // 2), chart.Group("right <&>", nodes - nodes // 2)]
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


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--pods", "0"], "argument --pods: '0' is no whole number from 1 on"),
        (["--nodes", "one"], "argument --nodes: 'one' is no whole number from 2 on"),
        (["--pods", "221", "--nodes", "2"], "2 nodes hold 220 pods: choose fewer with --pods"),
        (["--svg", "nowhere/chart.svg"], "argument --svg: nowhere/chart.svg can't be written"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.placement", *arguments])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {sentence}\n")
