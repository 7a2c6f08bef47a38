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


def test_a_program_of_the_machine_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    environ = machine(monkeypatch, tmp_path)
    (tmp_path / "bin" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "tool").chmod(0o755)

    assert debian.ensure("tool", ["tool"], environ) == tmp_path / "bin"
    assert not log.exists()


def test_a_package_is_unpacked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    environ = machine(monkeypatch, tmp_path, first="touch tool_1_amd64.deb")

    assert (debian.ensure("tool", ["tool"], environ) / "tool").exists()
    debian.ensure("tool", ["tool"], environ)
    assert log.read_text() == "-q download tool\n"


def test_without_lists_of_packages_they_are_read_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path
) -> None:
    environ = machine(monkeypatch, tmp_path)

    assert (debian.ensure("tool", ["tool"], environ) / "tool").exists()
    assert [line.split()[-1] for line in log.read_text().splitlines()] == ["tool", "update", "tool"]


def test_what_cannot_be_had_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ = machine(monkeypatch, tmp_path, first="echo 'E: no network' >&2; exit 100")
    (tmp_path / "bin" / "apt-get").write_text("#!/bin/sh\necho 'E: no network' >&2; exit 100\n")

    with pytest.raises(debian.MissingError, match="tool") as error:
        debian.ensure("tool", ["tool"], environ)
    assert "no network" in str(error.value)
    assert "\n" not in str(error.value)


def test_of_several_packages_none_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ = machine(monkeypatch, tmp_path, first="touch tool_1_amd64.deb")
    home = Path(environ["KUBEVIRT_WEBHOOK_CACHE"])
    home.mkdir()

    with pytest.raises(debian.MissingError, match="tool, other"):
        debian.unpack(["tool", "other"], home / "both")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(("known", "taken"), [("tool", "tool"), ("toolt64", "toolt64"), ("", "tool")])
def test_a_package_has_another_name_in_another_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path, known: str, taken: str
) -> None:
    environ = machine(monkeypatch, tmp_path)
    apt_get, apt_cache = (tmp_path / "bin" / name for name in ("apt-get", "apt-cache"))
    apt_get.write_text(f'#!/bin/sh\necho "$*" >> {log}\nfor name; do :; done\ntouch "$name"_1_amd64.deb\n')
    answer = f'[ "$name" = "{known}" ] && echo "  Candidate: 1.0" || echo "  Candidate: (none)"'
    apt_cache.write_text(f"#!/bin/sh\nfor name; do :; done\n{answer}\n")
    apt_cache.chmod(0o755)
    home = Path(environ["KUBEVIRT_WEBHOOK_CACHE"])
    home.mkdir()

    debian.unpack(["tool|toolt64"], home / "it")
    assert log.read_text().split()[-1] == taken


def test_a_machine_without_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(debian.MissingError):
        debian.ensure("tool", ["tool"], {"PATH": "", "KUBEVIRT_WEBHOOK_CACHE": str(tmp_path / "cache")})
