"""The benchmark's pure parts: rows, cases, figures and reports. That it runs at all is for a control plane to show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.placement import launcher, profiles, webhook
from bench.placement.__main__ import main
from bench.placement.cases import BOTH, CASES, DEFAULT
from bench.placement.cost import Cost
from bench.placement.errors import PlacementError
from bench.placement.figures import PlacementFigures, count_figures
from bench.placement.nodes import LAUNCHER_IMAGE, MIDDLE_NODE, NodeImageList, NodeLoad, make_nodes
from bench.placement.report import PlacementReport
from bench.placement.rows import ROWS, PlacementRow
from bench.placement.sizes import GIB, PlacementSize
from bench.placement.table import Cell, PlacementOutcome, PlacementPlan
from webhook import names
from webhook.policies.scheduling.spread import constraints
from webhook.settings.file import load

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "pod-create-launcher.json"


def figures(*counts: int) -> PlacementFigures:
    return PlacementFigures(counts, tuple(float(count) for count in counts), tuple(2.0 * count for count in counts))


SKEWED = figures(10, 9, 11, 0, 0, 0)
EVEN = figures(5, 5, 6, 4, 5, 5)


# -- counts ------------------------------------------------------------------------------------------------------------


def test_figures_count_every_node_in_order() -> None:
    nodes = make_nodes(((3, MIDDLE_NODE),), NodeLoad.HALF, NodeImageList.ALL)
    size = PlacementSize("half a percent of the CPU, a quarter of the memory", 320, 64 * GIB)
    hosts = [node.name for node in nodes]

    counted = count_figures(nodes, {"a": hosts[2], "b": hosts[0], "c": hosts[2]}, dict.fromkeys("abc", size))

    assert counted.counts == (1, 0, 2)
    assert counted.cpu == (50.5, 50, 51)
    assert counted.memory == (75, 50, 100)
    assert (counted.fewest, counted.most, counted.empty) == (0, 2, 1)


# -- generated objects -------------------------------------------------------------------------------------------------


def test_a_launcher_asks_for_what_a_recorded_one_asks_for() -> None:
    recorded = json.loads(CAPTURE.read_text())["request"]["object"]["spec"]
    vmi = {**launcher.machine("vm"), "metadata": {"name": "vm", "uid": "1"}}

    made = launcher.pod(vmi)

    for kind in ("containers", "initContainers"):
        ours, theirs = made["spec"][kind][0], recorded[kind][0]
        for what in ours["resources"].values():
            what.pop("devices.kubevirt.io/kvm", None)  # it was recorded on a node without KVM
        assert {**ours, "image": ""} == {key: theirs[key] for key in ours} | {"image": ""}
        assert ours["image"] == LAUNCHER_IMAGE
    assert made["spec"]["nodeSelector"] == recorded["nodeSelector"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "1"


def test_pods_that_the_webhook_did_not_change_are_a_mistake() -> None:
    pod = launcher.pod({**launcher.machine("vm"), "metadata": {"name": "vm", "uid": "1"}})
    pod["metadata"]["namespace"] = "tenant-001"
    pod["spec"] |= {"schedulerName": profiles.SHIPPED, "topologySpreadConstraints": constraints("hostname")}
    marks = {names.INJECTED_SCHEDULER_ANNOTATION: profiles.SHIPPED, names.INJECTED_SPREAD_ANNOTATION: "hostname"}
    pod["metadata"]["annotations"].update(marks)

    webhook.check_injected([pod], BOTH)
    for mark in marks:
        annotations = {key: value for key, value in pod["metadata"]["annotations"].items() if key != mark}
        other = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
        with pytest.raises(PlacementError, match=r"pod tenant-001/.*kubevirt-webhook did not write them"):
            webhook.check_injected([pod, other], BOTH)
    del pod["spec"]["topologySpreadConstraints"]
    with pytest.raises(PlacementError, match="did not write"):
        webhook.check_injected([pod], BOTH)


def test_the_settings_choose_the_shipped_profile() -> None:
    settings = load(webhook.SETTINGS)

    assert settings.scheduling.scheduler_name == profiles.SHIPPED
    assert list(settings.scheduling.schedulers) == [profiles.SHIPPED]


# -- output ------------------------------------------------------------------------------------------------------------

ROW = PlacementRow("row", 30, namespaces=20, devices=110)


@pytest.fixture
def report() -> PlacementReport:
    rounds = {DEFAULT: (figures(15, 15, 0, 0, 0, 0), SKEWED, EVEN), BOTH: (EVEN, EVEN, EVEN)}
    cells = [Cell(ROW, case, measured) for case, measured in rounds.items()]
    costs = [Cost("default", "no constraint", 1.25, 2.5, 99.6)]
    return PlacementReport(PlacementPlan([ROW], [DEFAULT, BOTH], 3), PlacementOutcome("v1.36.3", cells, costs))


def test_markdown(report: PlacementReport) -> None:
    header, _, row, _, cost_header, _, cost, _, legend = report.markdown().splitlines()

    assert header == "|  | default-scheduler | profile and constraint |"
    assert row == (
        "| 20 nodes of 64 CPUs, empty; 30 small VMs; 20 namespaces; virtualMachineInstancesPerNode: 110 "
        "| 5.0; 5.0, 10.1; 3 empty | 0.6; 0.6, 1.2 |"
    )
    assert cost_header.count("|") == cost.count("|")
    assert cost == "| no constraint | 1.2 ms | 2.5 ms | 100 |"
    assert legend.startswith("Kubernetes v1.36.3; the median of 3 rounds.")


def test_json_has_every_round(report: PlacementReport, tmp_path: Path) -> None:
    file = tmp_path / "placement.json"

    report.write_json(file)

    document = json.loads(file.read_text())
    (row,) = document["rows"]
    assert row["key"] == "row"
    assert row["cases"]["default"]["vms"] == [10, 9, 11, 0, 0, 0]
    assert row["cases"]["default"]["vms_standard_deviation"] == 5.033
    assert [one["empty_nodes"] for one in row["cases"]["default"]["rounds"]] == [4, 3, 0]
    assert document["cost"][0]["cpu_milliseconds"] == 2.5


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_list_names_every_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench.placement", "--list"])

    assert main() == 0

    printed = capsys.readouterr().out.split()
    assert {row.key for row in ROWS} | {case.key for case in CASES} <= set(printed)
