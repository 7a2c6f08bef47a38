from __future__ import annotations

from pathlib import Path

import pytest

from hack import debian


def test_a_package_is_unpacked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a false apt-get and dpkg on the PATH."""
    log, programs = tmp_path / "log", tmp_path / "bin"
    programs.mkdir()
    apt_get = f'echo "$*" >> {log}; touch tool_1_amd64.deb'
    for name, text in (("apt-get", apt_get), ("dpkg", 'mkdir -p "$3/usr/bin" && touch "$3/usr/bin/tool"')):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    environ = {"PATH": str(programs), "KUBEVIRT_WEBHOOK_CACHE": str(tmp_path / "cache")}

    for _ in range(2):
        assert (debian.ensure("tool", ["tool"], environ) / "tool").exists()
    assert log.read_text() == "-q download tool\n"
