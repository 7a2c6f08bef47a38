"""Programs of Debian packages, with a false apt-get and dpkg on the PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack import debian

APT = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  "-q download tool") {first} ;;
  *update*) {update} ;;
  *"download tool") touch tool_1_amd64.deb ;;
esac
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/bin" && touch "$3/usr/bin/tool"
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str = "exit 100", update: str = "exit 0"
) -> dict[str, str]:
    """A machine with apt-get and dpkg; its environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("apt-get", APT.format(log=tmp_path / "log", first=first, update=update)), ("dpkg", DPKG)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return {"PATH": str(programs), "KUBEVIRT_WEBHOOK_CACHE": str(tmp_path / "cache")}


def test_a_package_is_unpacked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    environ = machine(monkeypatch, tmp_path, first="touch tool_1_amd64.deb")

    assert (debian.ensure("tool", ["tool"], environ) / "tool").exists()
    debian.ensure("tool", ["tool"], environ)
    assert log.read_text() == "-q download tool\n"
