from __future__ import annotations

import json
import shutil
from collections.abc import Callable
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


def test_a_vm_whose_pods_get_constraints(settings: Path, golden: Callable[[str], None]) -> None:
    result = explain("shop/web", "--config", settings)

    assert result.exit_code == 0
    assert "(spread-injected)\n" in result.output
    golden(result.output)


def test_by_the_built_in_settings_there_are_none(golden: Callable[[str], None]) -> None:
    result = explain("web", "-n", "shop")

    assert result.exit_code == 1
    assert result.output.endswith("(disabled)\n")
    golden(result.output)


@pytest.mark.parametrize("mode", ["warn"])
def test_other_modes(mode: str, settings: Path, tmp_path: Path, golden: Callable[[str], None]) -> None:
    directory = tmp_path / "cluster"
    shutil.copytree(EXAMPLES, directory)
    text = (directory / "namespaces.yaml").read_text()
    (directory / "namespaces.yaml").write_text(text.replace("/scheduling: enforce", f"/scheduling: {mode}"))

    result = run("explain", "spread", "shop/web", "--config", settings, "--cluster-from", directory)

    assert result.exit_code == 1
    golden(result.output)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_for_programs(output: str, settings: Path) -> None:
    result = explain("shop/web", "--config", settings, "-o", output)

    answer = json.loads(result.output) if output == "json" else yaml.safe_load(result.output)
    assert answer.pop("reason")
    assert answer == {
        "schema": SCHEMA,
        "namespace": "shop",
        "name": "web",
        "kind": "VirtualMachineInstance",
        "mode": "enforce",
        "code": "spread-injected",
        "injected": constraints("hostname"),
        "present": [],
    }


@pytest.mark.parametrize("arguments", [["shop/none"], ["shop/web", "-n", "lab"], ["shop/UPPER"]], ids=" ".join)
def test_mistakes(arguments: list[str], golden: Callable[[str], None]) -> None:
    result = explain(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    golden(result.stderr)
