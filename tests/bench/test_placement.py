"""The benchmark's pure parts: rows, cases, figures and reports. That it runs at all is for a control plane to show."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench.placement import launcher, profiles, webhook
from bench.placement.__main__ import _parser, main, plan_of
from bench.placement.cases import BOTH, CASES, DEFAULT, MAIN
from bench.placement.constraint import Constraint, constrain
from bench.placement.cost import Cost, CostPlan, read_metrics
from bench.placement.errors import PlacementError
from bench.placement.figures import PlacementFigures, count_figures, middle
from bench.placement.nodes import (
    LAUNCHER_BYTES,
    LAUNCHER_IMAGE,
    MIDDLE_NODE,
    REPORTED_IMAGES,
    UNEVEN_SHARES,
    NodeImageList,
    NodeLoad,
    make_nodes,
    other_images,
)
from bench.placement.report import PlacementReport
from bench.placement.rows import ROWS, PlacementRow
from bench.placement.sizes import GIB, INSTANCE_TYPES, MIB, MIXED, MIXTURE, RECORDED, PlacementSize, draw_sizes
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


def test_the_deviation_is_that_of_all_nodes() -> None:
    assert figures(*[10] * 10, *[0] * 10).deviation == 5
    assert figures(*[5] * 20).deviation == 0
    assert math.isclose(figures(4, 6).deviation, 1)
    assert math.isclose(figures(4, 6).memory_deviation, 2)


def test_a_vm_elsewhere_is_a_mistake() -> None:
    nodes = make_nodes(((2, MIDDLE_NODE),), NodeLoad.EMPTY, NodeImageList.ALL)

    with pytest.raises(ValueError, match="vm is on other, which is none of the 2 nodes"):
        count_figures(nodes, {"vm": "other"}, {"vm": RECORDED})


def test_the_middle_round_has_the_median_deviation() -> None:
    assert middle([SKEWED]) == 0
    assert middle([SKEWED, EVEN]) == 1
    assert middle([figures(15, 15, 0, 0, 0, 0), EVEN, SKEWED]) == 2
    assert middle([EVEN, EVEN, EVEN]) == 1


def test_metrics_with_labels_are_left_out() -> None:
    text = '# HELP a b\nprocess_cpu_seconds_total 1.5\nother{profile="x"} 3\nsome_sum 2e-05\n'

    assert read_metrics(text) == {"process_cpu_seconds_total": 1.5, "some_sum": 2e-05}


# -- generated objects -------------------------------------------------------------------------------------------------


def test_half_of_the_nodes_list_the_image() -> None:
    nodes = make_nodes(((20, MIDDLE_NODE),), NodeLoad.EMPTY, NodeImageList.HALF)

    assert sum(node.lists_image for node in nodes) == 10
    assert [node.name for node in nodes] == sorted(node.name for node in nodes)
    assert all(node.lists_image for node in make_nodes(((3, MIDDLE_NODE),), NodeLoad.EMPTY, NodeImageList.ALL))


def test_an_uneven_load_is_the_same_on_nodes_with_and_without_the_image() -> None:
    nodes = make_nodes(((40, MIDDLE_NODE),), NodeLoad.UNEVEN, NodeImageList.HALF)

    for lists_image in (True, False):
        shares = {node.load_millis / 64_000 for node in nodes if node.lists_image is lists_image}
        assert shares == set(UNEVEN_SHARES)
    assert [node.load_pod() is None for node in nodes] == [node.load_millis == 0 for node in nodes]


def test_a_daemon_set_requests_the_same_on_every_node() -> None:
    for node in make_nodes(((2, MIDDLE_NODE),), NodeLoad.DAEMON_SETS, NodeImageList.ALL):
        assert (node.load_millis, node.load_bytes) == (1500, 2 * GIB)


def test_the_other_images_leave_no_room_for_the_launchers() -> None:
    others = list(other_images())

    assert len(others) == REPORTED_IMAGES
    assert min(image["sizeBytes"] for image in others) > LAUNCHER_BYTES
    assert LAUNCHER_IMAGE not in {name for image in others for name in image["names"]}


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


def test_instance_types_request_what_kubevirt_requests() -> None:
    # By GetMemoryOverhead: 260 MiB, 8 MiB for each virtual CPU, 1/512 of the guest; and the sidecar's 35 MB.
    assert INSTANCE_TYPES["u1.nano"].cpu_millis == 105
    assert INSTANCE_TYPES["u1.nano"].memory_bytes == (512 + 260 + 8 + 1) * MIB + 35_000_000
    assert INSTANCE_TYPES["u1.8xlarge"].cpu_millis == 3205
    assert INSTANCE_TYPES["u1.8xlarge"].memory_bytes == (131072 + 260 + 256 + 256) * MIB + 35_000_000
    assert MIXTURE.keys() == INSTANCE_TYPES.keys()
    assert sum(MIXTURE.values()) == 100


def test_drawn_sizes_are_the_same_for_the_same_seed() -> None:
    assert draw_sizes(MIXED, 300, 1) == draw_sizes(MIXED, 300, 1)
    assert draw_sizes(MIXED, 300, 1) != draw_sizes(MIXED, 300, 2)
    assert set(draw_sizes("u1.medium", 2, 1)) == {INSTANCE_TYPES["u1.medium"]}


def test_every_constraint_is_a_preference() -> None:
    for constraint in Constraint:
        pod = launcher.pod({**launcher.machine("vm"), "metadata": {"name": "vm", "uid": "1"}})
        constrain(pod, constraint, 7)

        spreads = pod["spec"].get("topologySpreadConstraints", [])
        assert all((one["whenUnsatisfiable"], one["maxSkew"]) == ("ScheduleAnyway", 7) for one in spreads)
        assert len(spreads) == {Constraint.BOTH: 2, Constraint.HOSTNAME: 1, Constraint.ZONE: 1}.get(constraint, 0)
        affinity = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
        assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity


def test_what_the_product_can_write_it_writes_itself() -> None:
    by_key = {case.key: case for case in CASES}

    assert {key for key, case in by_key.items() if case.through_webhook} == {
        *("webhook", "constraint", "both", "zone", "zone-hostname"),
        *(f"{profile['schedulerName']}+constraint" for profile in profiles.candidates()),
    }
    assert [by_key[key].spread for key in ("webhook", "both", "zone-hostname", "both-skew-10", "anti-affinity")] == [
        *("off", "hostname", "both", "off", "off")
    ]
    # The shipped profile is chosen by kubevirt-webhook, any other by the VMs' owners.
    assert webhook.owners_scheduler(BOTH) == ""
    assert webhook.owners_scheduler(by_key["constraint"]) == profiles.STOCK


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


def test_a_migration_target_keeps_both_terms() -> None:
    pod = launcher.pod({**launcher.machine("vm"), "metadata": {"name": "vm", "uid": "1"}})

    constrain(pod, Constraint.ANTI_AFFINITY)
    launcher.keep_off_source(pod, "1")

    assert len(pod["spec"]["affinity"]["podAntiAffinity"]) == 2


def test_keys_are_unique_and_quick_rows_can_be_charted() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)
    assert len({row.title for row in ROWS}) == len(ROWS)
    assert len({case.key for case in CASES}) == len(CASES)
    assert plan_of(_parser().parse_args([])).rows == [row for row in ROWS if row.quick]


def test_zones_have_all_nodes() -> None:
    for row in ROWS:
        nodes = row.make_nodes()
        assert not row.zones or sum(row.zones) == len(nodes) == sum(bool(node.zone) for node in nodes)


def test_the_settings_choose_the_shipped_profile() -> None:
    settings = load(webhook.SETTINGS)

    assert settings.scheduling.scheduler_name == profiles.SHIPPED
    assert list(settings.scheduling.schedulers) == [profiles.SHIPPED]


def test_the_shipped_profile_disables_what_it_weights_anew() -> None:
    profile = profiles.shipped()
    score = profile["plugins"]["score"]
    disabled = {plugin["name"] for plugin in score["disabled"]}

    assert profile["schedulerName"] == profiles.SHIPPED
    assert disabled - {plugin["name"] for plugin in score["enabled"]} == {
        "ImageLocality",
        "NodeResourcesBalancedAllocation",
    }
    assert {plugin["name"] for plugin in score["enabled"]} <= disabled
    # What keeps a migration's target off its source, and the descheduler's soft taints, must not be disabled.
    assert {"InterPodAffinity", "TaintToleration"} <= {plugin["name"] for plugin in score["enabled"]}


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


def test_one_round_has_no_median() -> None:
    outcome = PlacementOutcome("v1.36.3", [Cell(ROW, DEFAULT, (SKEWED,))])

    assert "; one round." in PlacementReport(PlacementPlan([ROW], [DEFAULT], 1), outcome).markdown()


def test_a_cell_that_failed_leaves_the_others(tmp_path: Path) -> None:
    outcome = PlacementOutcome("v1.36.3", [Cell(ROW, DEFAULT, (SKEWED,))], failures=["row, both: not bound"])
    report = PlacementReport(PlacementPlan([ROW], [DEFAULT, BOTH], 1), outcome)
    file = tmp_path / "placement.json"

    report.write_json(file)

    assert not report.is_complete
    assert "| 5.0; 5.0, 10.1; 3 empty | failed |" in report.markdown()
    document = json.loads(file.read_text())
    assert (list(document["rows"][0]["cases"]), document["failures"]) == (["default"], ["row, both: not bound"])
    with pytest.raises(PlacementError, match="no chart"):
        report.svg(ROW, (DEFAULT, BOTH))


def test_every_size_fits_into_some_node() -> None:
    largest = max(INSTANCE_TYPES.values(), key=lambda size: size.memory_bytes)

    for row in ROWS:
        if row.sizes == MIXED:
            free = max(node.size.memory_bytes - node.load_bytes for node in row.make_nodes())
            assert free >= largest.memory_bytes, row.key


def test_for_a_terminal(
    report: PlacementReport, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")

    report.print()

    printed = capsys.readouterr().out
    assert "5.0; 5.0, 10.1; 3 empty" in printed
    assert "no constraint" in printed


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


def test_all_rows_come_with_the_cost() -> None:
    everything = plan_of(_parser().parse_args(["--all"]))
    chosen = plan_of(_parser().parse_args(["--rows", "64cpu-100,churn-100", "--cases", "webhook", "--rounds", "2"]))
    cost = plan_of(_parser().parse_args(["--cost-only", "--cost", "10", "20", "5"]))

    assert (everything.rows, everything.cases, everything.cost) == (ROWS, MAIN, CostPlan())
    assert [row.key for row in chosen.rows] == ["64cpu-100", "churn-100"]
    assert ([case.key for case in chosen.cases], chosen.rounds, chosen.cost) == (["webhook"], 2, None)
    assert (cost.rows, cost.cost) == ([], CostPlan(10, 20, 5))


def test_the_list_names_every_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench.placement", "--list"])

    assert main() == 0

    printed = capsys.readouterr().out.split()
    assert {row.key for row in ROWS} | {case.key for case in CASES} <= set(printed)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rounds", "0"], "argument --rounds: '0' is no whole number from 1 on"),
        (["--rows", "64cpu-100,other"], "argument --rows: 'other' is unknown; --list shows all rows and cases"),
        (["--cases", "other"], "argument --cases: 'other' is unknown; --list shows all rows and cases"),
        (["--json", "nowhere/figures.json"], "argument --json: nowhere/figures.json can't be written"),
        (
            ["--rows", "64cpu-100", "--svg", "chart.svg"],
            "--svg draws the row 64cpu-daemonsets-100 in the cases default and both: choose these too",
        ),
    ],
)
def test_mistakes_are_reported_before_anything_starts(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.placement", *arguments])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {sentence}\n")
