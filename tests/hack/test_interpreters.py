from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hack import interpreters

ROOT = Path(__file__).parents[2]


def fake(directory: Path, version: str, answer: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / f"python{version}"
    program.write_text(f"#!/bin/sh\necho {answer}\n")
    program.chmod(0o755)
    return program


def test_the_interpreters_of_the_image_and_of_this_run_are_supported() -> None:
    supported = interpreters.supported()
    images = re.findall(r"python:(3\.\d+)", (ROOT / "Dockerfile").read_text())

    assert images
    assert {*images, "{}.{}".format(*sys.version_info[:2])} <= set(supported)


def test_the_oldest_is_the_one_that_packaging_tools_require() -> None:
    assert f'requires-python = ">={interpreters.supported()[0]}"' in (ROOT / "pyproject.toml").read_text()


def test_an_interpreter_is_found_on_the_path_before_pyenv(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    assert interpreters.find("3.13", environ) is None

    kept = fake(tmp_path / "pyenv" / "versions" / "3.13.1" / "bin", "3.13", "3.13")
    assert interpreters.find("3.13", environ) == kept
    first = fake(tmp_path / "bin", "3.13", "3.13")
    assert interpreters.find("3.13", environ) == first


@pytest.mark.parametrize("answer", ["3.12", "nothing >&2; exit 127"])
def test_one_that_is_of_another_version_or_does_not_run_is_none(tmp_path: Path, answer: str) -> None:
    fake(tmp_path, "3.13", answer)
    assert interpreters.find("3.13", {"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}) is None


def test_a_failure_is_the_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = "{}.{}".format(*sys.version_info[:2])
    monkeypatch.setattr(interpreters, "supported", lambda: [own, "3.98", "3.99"])
    monkeypatch.setattr(interpreters, "find", lambda version, _: tmp_path if version == "3.99" else None)
    monkeypatch.setattr(interpreters, "environment", lambda *_: tmp_path)
    for passed in (True, False):
        monkeypatch.setattr(interpreters, "test", lambda *_, result=passed: result)
        assert interpreters.main([]) == (0 if passed else 1)


def test_quick_is_the_image_interpreter_alone_on_a_part_of_the_tests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = interpreters.of_the_image()
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(interpreters, "supported", lambda: ["3.98", image])
    monkeypatch.setattr(interpreters, "find", lambda *_: tmp_path)
    monkeypatch.setattr(interpreters, "environment", lambda *_: tmp_path)

    def run(_: Path, paths: tuple[str, ...], __: tuple[str, ...]) -> bool:
        ran.append(paths)
        return True

    monkeypatch.setattr(interpreters, "test", run)

    assert interpreters.main(["--quick"]) == 0
    assert ran == [interpreters.QUICK]
    assert all((ROOT / path).is_dir() for path in interpreters.QUICK)
    assert "3.98: skipped" in capsys.readouterr().err


def test_an_environment_is_made_anew_for_other_locks_and_has_the_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[list[str]] = []

    def run(command: list[object], **_: object) -> None:
        made.append([str(word) for word in command])
        (tmp_path / "3.99").mkdir(exist_ok=True)

    lock = tmp_path / "lock"
    lock.write_text("one")
    monkeypatch.setattr(interpreters, "LOCK", lock)
    monkeypatch.setattr(subprocess, "run", run)
    for text, times in (("one", 1), ("one", 1), ("two", 2)):
        lock.write_text(text)
        interpreters.environment(tmp_path / "python", "3.99", tmp_path)
        assert sum("--editable" in command for command in made) == times


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
