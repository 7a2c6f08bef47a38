from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from tests.cli.runner import run
from webhook.policies.scheduling.spread import constraints
from webhook.review.spread_explanation import SCHEMA

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text("scheduling: {spread: hostname}\n")
    return file


def explain(*arguments: str | Path) -> Result:
    return run("explain", "spread", *arguments, "--cluster-from", EXAMPLES)


def test_a_vm_whose_pods_get_constraints(settings: Path) -> None:
    result = explain("shop/web", "--config", settings)

    assert result.exit_code == 0
    assert result.output == (
        "the next launcher pods of shop/web get constraints: the owner set no topologySpreadConstraints "
        "(spread-injected)\n"
        "  topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, maxSkew: 1\n"
    )


def test_by_the_built_in_settings_there_are_none() -> None:
    result = explain("web", "-n", "shop")

    assert result.exit_code == 1
    assert "get no constraints" in result.output
    assert result.output.endswith("(disabled)\n")


@pytest.mark.parametrize(("mode", "shown"), [("warn", "would get constraints, but the namespace says warn")])
def test_other_modes(mode: str, shown: str, settings: Path, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    shutil.copytree(EXAMPLES, directory)
    text = (directory / "namespaces.yaml").read_text()
    (directory / "namespaces.yaml").write_text(text.replace("/scheduling: enforce", f"/scheduling: {mode}"))

    result = run("explain", "spread", "shop/web", "--config", settings, "--cluster-from", directory)

    assert result.exit_code == 1
    assert shown in result.output


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_for_programs(output: str, settings: Path) -> None:
    result = explain("shop/web", "--config", settings, "-o", output)

    answer = json.loads(result.output) if output == "json" else yaml.safe_load(result.output)
    assert answer == {
        "schema": SCHEMA,
        "namespace": "shop",
        "name": "web",
        "kind": "VirtualMachineInstance",
        "mode": "enforce",
        "code": "spread-injected",
        "reason": "the owner set no topologySpreadConstraints",
        "injected": constraints("hostname"),
        "present": [],
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shop/none"], "there is no VirtualMachine shop/none"),
        (["shop/web", "-n", "lab"], "drop one"),
        (["shop/UPPER"], "is no name of a VM"),
    ],
)
def test_mistakes(arguments: list[str], sentence: str) -> None:
    result = explain(*arguments)

    assert result.exit_code == 2
    assert sentence in result.output + result.stderr
