"""Input that `expand` can make nothing of: one sentence and a status, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.expanding import BOTH, KUBEVIRT, expand
from tests.cli.runner import run
from tests.kubevirt.malformed_objects import WHOLE, anything, deep, replaced
from tests.kubevirt.samples import instancetype, preference, vm
from webhook.cli.main import main


@pytest.mark.parametrize(
    "content",
    [
        "",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}",
        yaml.safe_dump(instancetype()),
        "- 1",
        "a: [",
        "a: &a [*a]",
        "a: " + "[" * 300,
        json.dumps({**vm(), "spec": {"template": 1}}),
        json.dumps({**vm(), "spec": {}}),
        json.dumps(vm({"domain": {"devices": {"disks": [{"name": str(n)} for n in range(10_000)]}}})),
    ],
    ids=["empty", "secret", "instancetype", "list", "syntax", "loop", "deep", "type", "template", "disks"],
)
def test_bad_input_is_one_sentence_and_exit_2(content: str, golden: Callable[[str], None]) -> None:
    result = run("expand", "-f", "-", stdin=content)

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: ")
    golden(result.stderr)


def test_yaml_bombs_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.k8s.yaml_builder.MAX_ALIASED", 10_000)
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    for name, content in (("bomb.yaml", bomb.encode()), ("bytes.yaml", b"\xff\xfe\x00"), ("zip.yaml.gz", b"PK")):
        (tmp_path / name).write_bytes(content)
        result = run("expand", "-f", tmp_path / name)
        assert result.exit_code == 2
        assert result.stderr.startswith("Error: ")


def test_malformed_instancetypes_and_settings_are_named(golden: Callable[[str], None]) -> None:
    wrong = expand(BOTH, {**instancetype(), "spec": {"cpu": 1}}, preference())
    settings_ = expand(vm(), {**KUBEVIRT, "spec": {"configuration": {"cpuModel": 1}}})

    assert wrong.exit_code == settings_.exit_code == 2
    golden(wrong.stderr)
    golden(settings_.stderr)


def test_bad_sources(tmp_path: Path) -> None:
    path = tmp_path / "vm.yaml"
    path.write_text(yaml.safe_dump(vm()))
    for options in (
        ("--cluster-from", tmp_path, "--kubeconfig", tmp_path),
        ("--cluster-from", tmp_path / "none"),
        ("--kubeconfig", tmp_path / "none"),
    ):
        result = run("expand", "-f", path, *options)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
    assert run("expand", "-f", tmp_path / "none").exit_code == 2


def test_kinds_of_no_use_are_said_to_be_passed_over(golden: Callable[[str], None]) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    result = expand(vm(), secret)

    assert result.exit_code == 0
    golden(result.stderr)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data(), anything)
def test_malformed_objects_never_end_in_a_traceback(data: st.DataObject, new: Any) -> None:
    objects = [WHOLE, instancetype(), preference(), KUBEVIRT]
    which = data.draw(st.integers(0, 3))
    objects[which] = replaced(objects[which], data, new)
    options = data.draw(st.sampled_from([[], ["--explain"], ["--mode", "expand"], ["-o", "json", "--explain"]]))
    result = CliRunner().invoke(main, ["expand", "-f", "-", *options], input=json_documents(objects))

    assert result.exit_code in (0, 1, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code == 0 or result.stderr


def json_documents(objects: list[Any]) -> str:
    return "\n---\n".join(json.dumps(item) for item in objects)


@given(st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_bytes_at_all(content: bytes) -> None:
    result = CliRunner().invoke(main, ["expand", "-f", "-"], input=content)

    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)


def test_depth_ends_in_a_sentence() -> None:
    result = run("expand", "-f", "-", stdin='{"a": ' * 1000)

    assert result.exit_code == 2
    assert len(deep()) == 1
