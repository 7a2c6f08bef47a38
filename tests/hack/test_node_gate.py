"""When CI runs the shortest test on a node, and what it makes of a machine that cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hack.controlplane import build, bundles
from hack.node import gate

ROOT = Path(__file__).parents[2]
DIGEST = "of these sources"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A machine that can run a node and has its parts; its environment."""
    environ = {"KUBEVIRT_WEBHOOK_CACHE": str(tmp_path)}
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("KUBEVIRT_WEBHOOK_CACHE", str(tmp_path))
    for bundle in (bundles.CONTROL_PLANE, bundles.NODE):
        build.location(environ, bundle=bundle).mkdir(parents=True)
    (gate.place(environ) / "images").mkdir(parents=True)
    (gate.place(environ) / "images" / "kubevirt-webhook.tar").touch()
    monkeypatch.setattr(gate, "missing", lambda: "")
    monkeypatch.setattr(gate, "sources_digest", lambda: DIGEST)
    return environ


def test_every_reason_to_skip_is_one_line(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert gate.reason_to_skip(machine, DIGEST) == ""
    gate.mark(machine).write_text(DIGEST)
    passed = gate.reason_to_skip(machine, DIGEST)
    assert gate.reason_to_skip(machine, "of others") == ""
    (gate.place(machine) / "images" / "kubevirt-webhook.tar").unlink()
    unbuilt = gate.reason_to_skip(machine, "of others")
    monkeypatch.setattr(gate, "missing", lambda: "skipped: no root")
    incapable = gate.reason_to_skip(machine, "of others")

    reasons = {passed, unbuilt, incapable}
    assert len(reasons) == 3
    assert all(reason.startswith(gate.SKIPPED) and "\n" not in reason for reason in reasons)


@pytest.mark.parametrize(
    ("status", "result", "is_kept"), [(0, 0, True), (1, 1, False), (2, 2, False), (build.EX_UNAVAILABLE, 0, False)]
)
def test_a_failed_test_is_a_failure_and_a_machine_that_cannot_is_none(
    machine: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    status: int,
    result: int,
    is_kept: bool,
) -> None:
    commands: list[list[str]] = []

    def run_node(command: list[str], neighbours: tuple[object, ...]) -> int:
        commands.append(command)
        return status

    monkeypatch.setattr(gate, "run_node", run_node)

    assert gate.main() == result
    assert gate.mark(machine).exists() is is_kept
    (command,) = commands
    assert set(gate.TESTS) < set(command)
    said = capsys.readouterr().out
    assert said.startswith(f"node: {gate.SKIPPED}") is (status == build.EX_UNAVAILABLE)
    # What has passed is not run again.
    gate.main()
    assert len(commands) == (1 if is_kept else 2)


def test_the_digest_is_of_the_sources_and_of_nothing_else(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    before = gate.sources_digest(tmp_path)

    (tmp_path / "README.md").write_text("other\n")
    assert gate.sources_digest(tmp_path) == before
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "new.py").touch()
    changed = gate.sources_digest(tmp_path)
    assert changed != before
    (tmp_path / "Dockerfile").write_text("FROM other\n")
    assert gate.sources_digest(tmp_path) not in {before, changed}


def test_what_it_is_about_exists() -> None:
    assert [name for name in (*gate.SOURCES, *gate.TESTS) if not (ROOT / name).exists()] == []


def test_ci_runs_it_last() -> None:
    """What costs most is run when everything else is green."""
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-1] == "make node-gate"
