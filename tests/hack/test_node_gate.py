from __future__ import annotations

from pathlib import Path

import pytest

from hack.controlplane import build
from hack.node import gate

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A machine that can run a node and has its parts; its environment."""
    environ = {"KUBEVIRT_WEBHOOK_CACHE": str(tmp_path), "CI_BASE": "before"}
    for bundle in gate.BUNDLES:
        build.location(environ, bundle=bundle).mkdir(parents=True)
    images = tmp_path / "node-parts" / "images"
    images.mkdir(parents=True)
    (images / "kubevirt-webhook.tar").touch()
    monkeypatch.setattr(gate, "missing", lambda: "")
    return environ


@pytest.mark.parametrize(
    ("changed", "runs"),
    [("webhook/install/plan.py", True), ("docs/faq.md\nDockerfile", True), ("docs/faq.md", False), ("", False)],
)
def test_it_is_for_changes_of_what_the_node_is_about(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, changed: str, runs: bool
) -> None:
    monkeypatch.setattr(gate, "_git", lambda *_: changed)
    assert (gate.reason_to_skip(machine) == "") is runs


def test_every_reason_is_one_line(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_git", lambda *_: None)
    no_commit = gate.reason_to_skip(machine)
    del machine["CI_BASE"]
    unknown = gate.reason_to_skip(machine)
    machine["KUBEVIRT_WEBHOOK_CACHE"] += "/none"
    unbuilt = gate.reason_to_skip(machine)
    monkeypatch.setattr(gate, "missing", lambda: "skipped: no root")
    incapable = gate.reason_to_skip(machine)

    reasons = {no_commit, unknown, unbuilt, incapable}
    assert len(reasons) == 4
    assert all(reason.startswith("skipped: ") and "\n" not in reason for reason in reasons)


def test_a_clone_of_main_is_compared_with_the_commit_before(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"rev-parse": "head", "merge-base": "head"}
    monkeypatch.setattr(gate, "_git", lambda verb, *rest: "parent" if "HEAD^" in rest else answers[verb])
    assert gate.merged_before() == "parent"
    answers["merge-base"] = "main"
    assert gate.merged_before() == "main"


def test_what_it_is_about_exists() -> None:
    assert [name for name in gate.TOUCHED if not (ROOT / name).exists()] == []
