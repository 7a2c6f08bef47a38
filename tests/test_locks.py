"""What is installed is what was locked, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<rest>(?:.*\\\n)*.*)$", re.MULTILINE)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_every_dependency_has_a_version_and_hashes(lock: str) -> None:
    text = (ROOT / lock).read_text()

    found = {match["name"]: match["rest"].count("--hash=sha256:") for match in _REQUIREMENT.finditer(text)}

    assert len(found) > 20
    assert {name for name, hashes in found.items() if not hashes} == set()
    # Nothing else stands in it: no address, no file, no option that would loosen it.
    rest = re.sub(r"^\s*#.*$", "", _REQUIREMENT.sub("", text), flags=re.MULTILINE)
    assert rest.strip() == ""


def test_whatever_installs_checks_the_hashes() -> None:
    for name in ("Makefile", "Dockerfile"):
        lines = [line for line in (ROOT / name).read_text().splitlines() if "-r requirements" in line]
        assert lines, name
        assert all("--require-hashes" in line for line in lines), name
