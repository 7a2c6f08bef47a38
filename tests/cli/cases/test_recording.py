from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import builders
from tests.cli.examples import EXAMPLES
from tests.cli.runner import run

CLUSTER: list[str | Path] = ["--cluster-from", EXAMPLES / "cluster", "--config", EXAMPLES / "settings.yaml"]


def record(tmp_path: Path, *arguments: str | Path) -> Any:
    target = tmp_path / "new-test.yaml"
    result = run("test", "--record", target, *arguments, *CLUSTER)
    assert result.exit_code == 0, result.output
    return yaml.safe_load(target.read_text())


def test_what_is_recorded_passes(tmp_path: Path) -> None:
    written = record(tmp_path, EXAMPLES / "reviews", EXAMPLES / "vms")
    result = run("test", tmp_path / "new-test.yaml")

    assert result.exit_code == 0, result.output
    assert len(written["cases"]) == len(list((EXAMPLES / "reviews").iterdir())) + 3
    assert all(each["expect"]["decision"] for each in written["cases"])


def test_the_recorded_examples_are_the_ones_that_are_kept(tmp_path: Path) -> None:
    written = record(tmp_path, EXAMPLES / "reviews", EXAMPLES / "vms")
    kept = yaml.safe_load((EXAMPLES / "reviews-test.yaml").read_text())

    assert [each["expect"] for each in written["cases"]] == [each["expect"] for each in kept["cases"]]


def test_what_changes_afterwards_is_noticed(tmp_path: Path) -> None:
    obj = builders.vm()
    obj["metadata"]["namespace"] = "shop"
    vm = tmp_path / "vm.yaml"
    vm.write_text(yaml.safe_dump(obj))
    (case,) = record(tmp_path, vm)["cases"]
    assert case["object"] == "vm.yaml"
    obj["spec"]["template"]["spec"]["schedulerName"] = "stork"
    vm.write_text(yaml.safe_dump(obj))

    assert run("test", tmp_path / "new-test.yaml").exit_code == 1


def test_several_objects_of_a_file_stand_in_the_test(tmp_path: Path) -> None:
    machines = [builders.vm(), builders.vm(scheduler="stork")]
    for machine in machines:
        machine["metadata"]["namespace"] = "shop"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    (tmp_path / "vm.yaml").write_text(yaml.safe_dump_all([*machines, service]))
    written = record(tmp_path, tmp_path / "vm.yaml")

    assert [each["object"] for each in written["cases"]] == machines
    assert len({each["name"] for each in written["cases"]}) == 2


@pytest.mark.parametrize("present", [True, False])
def test_nothing_is_overwritten_and_nothing_empty_written(tmp_path: Path, present: bool) -> None:
    target = tmp_path / "new-test.yaml"
    (tmp_path / "s.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    if present:
        target.write_text("mine")
    result = run("test", "--record", target, tmp_path / "s.yaml", *CLUSTER)

    assert result.exit_code == 2
    assert target.exists() is present
    assert not present or target.read_text() == "mine"
