"""When CI boots and migrates a guest, and what it makes of a machine that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.controlplane import build, bundles
from hack.guests import gate, parts, requirements

ROOT = Path(__file__).parents[2]
DIGEST = "of these sources"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A machine that can run guests and has their parts; its environment."""
    environ = {"KUBEVIRT_WEBHOOK_CACHE": str(tmp_path)}
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for bundle in (bundles.CONTROL_PLANE, bundles.NODE, bundles.GUESTS):
        build.location(environ, bundle=bundle).mkdir(parents=True)
    parts.images_in(environ, gate.place(environ)).mkdir(parents=True)
    monkeypatch.setattr(gate, "missing", lambda _: "")
    return environ


def test_what_it_is_about_exists() -> None:
    tests = [name.partition("::") for name in gate.TESTS]
    assert [name for name in (*gate.SOURCES, *(file for file, _, _ in tests)) if not (ROOT / name).exists()] == []
    assert all(f"def {test}(" in (ROOT / file).read_text() for file, _, test in tests)


def test_it_runs_where_the_parts_are_and_these_sources_have_not_passed(machine: dict[str, str]) -> None:
    assert gate.reason_to_skip(machine, DIGEST) == ""

    gate.mark(machine).write_text(DIGEST)
    assert "has passed here" in gate.reason_to_skip(machine, DIGEST)
    assert gate.reason_to_skip(machine, "of others") == ""


def test_without_the_parts_it_is_skipped_in_one_sentence(machine: dict[str, str]) -> None:
    parts.images_in(machine, gate.place(machine)).rmdir()

    reason = gate.reason_to_skip(machine, DIGEST)

    assert reason.startswith("skipped: ")
    assert "make guests builds them" in reason
    assert "\n" not in reason


def test_a_machine_with_too_little_free_memory_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "missing_of_a_node", lambda: "")
    monkeypatch.setattr(requirements, "FREE_BYTES", 0)
    memory = tmp_path / "meminfo"
    least = requirements.MEMORY_BYTES // 1024
    memory.write_text(f"MemTotal:       99999999 kB\nMemAvailable:   {least - 1} kB\n")
    assert requirements.missing(tmp_path, memory).startswith("skipped: guests need 8 GiB of memory")

    memory.write_text(f"MemTotal:       99999999 kB\nMemAvailable:   {least} kB\n")
    assert requirements.missing(tmp_path, memory) == ""


def test_a_machine_without_room_for_the_images_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "missing_of_a_node", lambda: "")
    monkeypatch.setattr(requirements, "FREE_BYTES", 2**80)
    assert "of free disk" in requirements.missing(tmp_path)


def test_what_a_node_lacks_guests_lack_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "missing_of_a_node", lambda: "skipped: a node needs root")
    assert requirements.missing(tmp_path) == "skipped: a node needs root"
