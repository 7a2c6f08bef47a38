from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.runner import run
from tests.cli.test_explain_migration import api_server
from tests.forecast import clusters
from webhook.cli.drain_text import duration
from webhook.forecast.report import SCHEMA, DrainPlan
from webhook.forecast.snapshot import BUDGETS, RUNNING_PODS
from webhook.k8s.client.resources import NAMESPACES, NODES
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.placement.machines import CLAIMS, MIGRATIONS, VMIS, VOLUMES
from webhook.placement.target_pods import RUNTIME_CLASSES

EXAMPLES = Path(__file__).parents[2] / "examples" / "drain"


def explain(*arguments: str | Path) -> Result:
    return run("explain", "drain", *arguments, "--cluster-from", EXAMPLES)


@pytest.mark.parametrize("arguments", [["node-1"], ["node-2"], ["node-1", "node-2"], ["--rolling"]], ids=" ".join)
def test_what_a_drain_does(arguments: list[str], golden: Callable[[str], None]) -> None:
    result = explain(*arguments)

    assert result.exit_code == (0 if arguments == ["node-2"] else 1)
    assert max(map(len, result.output.splitlines())) <= 100
    golden(result.output)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_for_programs(output: str) -> None:
    result = explain("node-1", "-o", output)
    read: Any = json.loads(result.output) if output == "json" else yaml.safe_load(result.output)
    found = msgspec.convert(read, DrainPlan)

    assert result.exit_code == 1
    assert (found.schema, found.moves, found.shuts_down, found.blocks) == (SCHEMA, 3, 1, 2)
    assert read["limits"] | {"perCluster": 5, "perNode": 2} == read["limits"]


def test_bandwidth_changes_the_time_only() -> None:
    slow, fast = (
        msgspec.convert(json.loads(explain("node-1", "-o", "json", "--bandwidth", text).output), DrainPlan)
        for text in ("16Mi", "1Gi")
    )

    assert slow.seconds > fast.seconds
    assert slow.at_most_seconds == fast.at_most_seconds
    assert [step.vms for step in slow.steps] == [step.vms for step in fast.steps]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["node-9"],
        ["node-1", "node-1"],
        ["node-1", "--bandwidth", "fast"],
        ["node-1", "--bandwidth", "0"],
        ["node-1", "--kubeconfig", "x"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_sentence(arguments: list[str], golden: Callable[[str], None]) -> None:
    result = explain(*arguments)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    golden(result.stderr)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=10), st.text(max_size=10), st.booleans())
def test_whatever_is_asked_is_answered(name: str, bandwidth: str, rolling: bool) -> None:
    result = explain(f"--bandwidth={bandwidth}", *(["--rolling"] if rolling else []), "--", name)

    assert result.exit_code in (0, 1, 2)
    assert not result.stderr or result.stderr.startswith(("Error: ", "Usage: "))


def test_what_tenants_wrote_is_shown_not_obeyed(tmp_path: Path) -> None:
    condition = {"type": "LiveMigratable", "status": "False", "reason": "No", "message": "\x1b[31mred\nblue"}
    vmi, pod = clusters.vm("web", "a", condition=condition, evictionStrategy="LiveMigrate")
    objects = [
        {"apiVersion": "v1", "kind": "Node", **clusters.node("a")},
        {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", **vmi},
        {"apiVersion": "v1", "kind": "Pod", **pod},
    ]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
    output = run("explain", "drain", "a", "--cluster-from", tmp_path).output

    assert "\x1b" not in output
    assert r"\x1b[31mred blue" in " ".join(output.split()), "a line feed begins no line"
    assert "no KubeVirt object" in " ".join(output.split())


def test_a_value_of_a_wrong_type_in_a_file(tmp_path: Path) -> None:
    vmi, _ = clusters.vm("web", "a", volumes="none")
    (tmp_path / "a.yaml").write_text(
        yaml.safe_dump({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", **vmi})
    )
    result = run("explain", "drain", "a", "--cluster-from", tmp_path)

    assert result.exit_code == 2
    assert result.stderr.startswith("Error: VirtualMachineInstance shop/web: ")


def test_a_running_cluster(tmp_path: Path) -> None:
    vmi, pod = clusters.vm("web", "a", evictionStrategy="LiveMigrate")
    with api_server() as server:
        for resource in (NODES, RUNNING_PODS, VMIS, KUBEVIRTS, MIGRATIONS, NAMESPACES, BUDGETS, CLAIMS, VOLUMES):
            server.serve(resource)
        server.serve(RUNTIME_CLASSES)
        for name in ("node-a1", "node-a2", "node-b1"):
            server.remove(NODES, name)
        for one in (clusters.node("a"), clusters.node("b")):
            server.put(NODES, one["metadata"]["name"], **one)
        server.put(VMIS, "web", "shop", **vmi)
        server.put(RUNNING_PODS, "p", "shop", **pod)
        config = server.kubeconfig(tmp_path / "config")
        can = run("explain", "drain", "a", "--kubeconfig", config, "-o", "json")
        verbs = {asked.verb for asked in server.asked}
        server.fail(BUDGETS.path(), 403)
        partly = run("explain", "drain", "a", "--kubeconfig", config, "-o", "json")
        server.fail(NODES.path(), 403)
        cannot = run("explain", "drain", "a", "--kubeconfig", config)

    assert can.exit_code == 0
    assert json.loads(can.output)["steps"][0]["vms"][0]["to"] == "b"
    assert verbs == {"get"}, "nothing is watched or written"
    assert any("PodDisruptionBudgets" in gap for gap in json.loads(partly.output)["gaps"])
    assert (cannot.exit_code, cannot.stdout) == (3, "")
    assert "grant list on nodes" in cannot.stderr


def test_nothing_answers(tmp_path: Path) -> None:
    with api_server() as server:
        config = server.kubeconfig(tmp_path / "config")
    result = run("explain", "drain", "a", "--kubeconfig", config)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (61, "2m"), (3600, "1h"), (5400, "1h 30m")]
)
def test_times_for_people(seconds: int, text: str) -> None:
    assert duration(seconds) == text
