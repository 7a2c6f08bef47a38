"""The benchmark's pure parts; that it runs at all is for a control plane to show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.placement import launcher, profiles, webhook
from bench.placement.cases import BOTH, DEFAULT
from bench.placement.cost import Cost
from bench.placement.errors import PlacementError
from bench.placement.figures import PlacementFigures
from bench.placement.report import PlacementReport
from bench.placement.rows import PlacementRow
from bench.placement.table import Cell, PlacementOutcome, PlacementPlan
from webhook.settings.file import load

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "pod-create-launcher.json"
ROW = PlacementRow("row", 30, namespaces=20, devices=110)


def figures(*counts: int) -> PlacementFigures:
    return PlacementFigures(counts, tuple(float(count) for count in counts), tuple(2.0 * count for count in counts))


def test_a_launcher_asks_for_what_a_recorded_one_asks_for() -> None:
    recorded = json.loads(CAPTURE.read_text())["request"]["object"]["spec"]
    made = launcher.pod({**launcher.machine("vm"), "metadata": {"name": "vm", "uid": "1"}})

    for kind in ("containers", "initContainers"):
        ours, theirs = made["spec"][kind][0], recorded[kind][0]
        for what in ours["resources"].values():
            what.pop("devices.kubevirt.io/kvm", None)  # it was recorded on a node without KVM
        assert {**ours, "image": ""} == {key: theirs[key] for key in ours} | {"image": ""}
    assert made["spec"]["nodeSelector"] == recorded["nodeSelector"]
    made["metadata"]["namespace"] = "tenant-001"
    made["spec"]["schedulerName"] = "default-scheduler"
    with pytest.raises(PlacementError, match="did not write"):
        webhook.check_injected([made], BOTH)
    assert list(load(webhook.SETTINGS).scheduling.schedulers) == [profiles.SHIPPED]


def test_the_report_has_every_round(tmp_path: Path) -> None:
    even = figures(5, 5, 6, 4, 5, 5)
    rounds = {DEFAULT: (figures(15, 15, 0, 0, 0, 0), figures(10, 9, 11, 0, 0, 0), even), BOTH: (even,) * 3}
    cells = [Cell(ROW, case, measured) for case, measured in rounds.items()]
    costs = [Cost("default", "no constraint", 1.25, 2.5, 99.6, 1)]
    report = PlacementReport(PlacementPlan([ROW], [*rounds], 3), PlacementOutcome("v1.36.3", cells, costs))
    report.write_json(tmp_path / "placement.json")

    assert (
        "| 20 nodes of 64 CPUs, empty; 30 small VMs; 20 namespaces; virtualMachineInstancesPerNode: 110 "
        "| 5.0; 5.0, 10.1; 3 empty | 0.6; 0.6, 1.2 |"
    ) in report.markdown().splitlines()
    (row,) = json.loads((tmp_path / "placement.json").read_text())["rows"]
    assert [one["empty_nodes"] for one in row["cases"]["default"]["rounds"]] == [4, 3, 0]
