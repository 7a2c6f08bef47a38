"""When CI runs the shortest test on a node, and what it makes of a machine that cannot."""

from __future__ import annotations

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


def test_what_it_is_about_exists() -> None:
    assert [name for name in (*gate.SOURCES, *gate.TESTS) if not (ROOT / name).exists()] == []


def test_ci_runs_it_last() -> None:
    """What costs most is run when everything else is green; a guest is even more than a node."""
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")]
    assert commands[-2:] == ["make node-gate", "make guests-gate"]
