from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hack import interpreters

ROOT = Path(__file__).parents[2]


def test_the_interpreters_of_the_image_and_of_this_run_are_supported() -> None:
    supported = interpreters.supported()
    images = re.findall(r"python:(3\.\d+)", (ROOT / "Dockerfile").read_text())

    assert images
    assert {*images, "{}.{}".format(*sys.version_info[:2])} <= set(supported)


def test_the_bounds_are_tested_with_the_versions_of_their_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`uv` is a program that writes what it was asked for; the tests then run with exactly that file."""
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do asked="$asked $1"; shift; done\necho "$asked" > "$1"\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(interpreters.resolve, "__defaults__", (tmp_path,))
    required: list[tuple[str, str]] = []

    def environment(_: Path, name: str, *, requirements: Path) -> Path:
        required.append((name, requirements.read_text()))
        return tmp_path

    monkeypatch.setattr(interpreters, "environment", environment)
    monkeypatch.setattr(interpreters, "test", lambda _, __, selection: selection == interpreters.UNIT)

    for resolution, strategy in (("lowest", "lowest-direct"), ("newest", "highest")):
        assert interpreters.main(["--resolution", resolution]) == 0
        name, asked = required.pop()
        assert name == resolution
        assert {f"--resolution={strategy}", "--extra=otel", "--group=dev", "--generate-hashes"} <= set(asked.split())

    uv.write_text("#!/bin/sh\necho 'no version of aiohttp' >&2; exit 1\n")
    assert interpreters.main(["--resolution", "lowest"]) == 2
    uv.unlink()
    assert interpreters.main(["--resolution", "lowest"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("interpreters: error: uv ") for line in lines] == [True, True]
