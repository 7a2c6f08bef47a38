"""When CI runs what needs a node or guests, and what it makes of a machine that cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hack.controlplane import build
from hack.gate import Gate
from hack.guests.gate import GATE as GUESTS
from hack.node.gate import GATE as NODE

ROOT = Path(__file__).parents[2]
DIGEST = "of these sources"

BOTH = pytest.mark.parametrize("gate", [NODE, GUESTS], ids=lambda gate: gate.name)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Gate, dict[str, str]]]:
    """A gate on a machine that lacks nothing and has its parts, and the environment of that machine."""

    def make(gate: Gate, status: int = 0) -> tuple[Gate, dict[str, str]]:
        monkeypatch.setenv("KUBEVIRT_WEBHOOK_CACHE", str(tmp_path))
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        environ = {"KUBEVIRT_WEBHOOK_CACHE": str(tmp_path)}
        for bundle in gate.bundles:
            build.location(environ, bundle=bundle).mkdir(parents=True)
        gate.image(environ, gate.place(environ)).mkdir(parents=True)
        return replace(gate, missing=lambda _: "", run=lambda _: status), environ

    return make


@BOTH
def test_what_it_is_about_exists(gate: Gate) -> None:
    tests = [name.partition("::") for name in gate.tests]
    assert [name for name in (*gate.sources, *(file for file, _, _ in tests)) if not (ROOT / name).exists()] == []
    assert all(f"def {test}(" in (ROOT / file).read_text() for file, _, test in tests if test)
    assert f"{gate.target.removeprefix('make ')}:" in (ROOT / "Makefile").read_text()


@BOTH
def test_it_runs_where_the_parts_are_and_these_sources_have_not_passed(
    gate: Gate, ready: Callable[..., tuple[Gate, dict[str, str]]]
) -> None:
    gate, environ = ready(gate)
    assert gate.reason_to_skip(environ, DIGEST) == ""

    gate.mark(environ).write_text(DIGEST)
    assert "has passed here" in gate.reason_to_skip(environ, DIGEST)
    assert gate.reason_to_skip(environ, "of others") == ""


@BOTH
def test_without_the_parts_it_is_skipped_in_one_sentence(
    gate: Gate, ready: Callable[..., tuple[Gate, dict[str, str]]]
) -> None:
    gate, environ = ready(gate)
    gate.image(environ, gate.place(environ)).rmdir()

    reason = gate.reason_to_skip(environ, DIGEST)

    assert reason.startswith("skipped: ")
    assert f"{gate.target} builds them" in reason
    assert "\n" not in reason


@pytest.mark.parametrize(("status", "result", "is_marked"), [(0, 0, True), (1, 1, False), (69, 0, False)])
def test_only_what_has_passed_is_not_run_again(
    status: int,
    result: int,
    is_marked: bool,
    ready: Callable[..., tuple[Gate, dict[str, str]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    gate, environ = ready(NODE, status)

    assert gate.main() == result
    assert gate.mark(environ).exists() == is_marked
    skipped = "node: skipped: this machine could not start a node; the line above says why\n"
    assert capsys.readouterr().out == (skipped if status == 69 else "")
