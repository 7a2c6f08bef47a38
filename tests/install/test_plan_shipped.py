from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from webhook.errors import InputError
from webhook.install import plan as module
from webhook.install.plan import shipped
from webhook.k8s.yaml_documents import read_documents


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were parsed."""
    files: list[Path] = []

    def noted(file: Path) -> Any:
        files.append(file)
        return read_documents(file)

    monkeypatch.setattr(module, "read_documents", noted)
    return files


def test_a_file_is_parsed_once_and_nobody_sees_what_others_change(tmp_path: Path, parsed: list[Path]) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text("kind: Role\nrules: [{verbs: [get]}]\n---\nkind: Service\n")

    first = shipped(file)
    first[0]["rules"].clear()
    first.pop()

    assert shipped(file) == [{"kind": "Role", "rules": [{"verbs": ["get"]}]}, {"kind": "Service"}]
    assert parsed == [file]


def test_a_changed_file_is_read_again(tmp_path: Path, parsed: list[Path]) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text("kind: Role\n")
    assert shipped(file) == [{"kind": "Role"}]
    other = tmp_path / "other.yaml"
    other.write_text("kind: Lore\n")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)

    assert shipped(file) == [{"kind": "Lore"}]
    assert parsed == [file, file]


@pytest.mark.parametrize("content", [None, "kind: ["])
def test_what_cannot_be_read_is_said_each_time(content: str | None, tmp_path: Path, parsed: list[Path]) -> None:
    file = tmp_path / "objects.yaml"
    if content is not None:
        file.write_text(content)

    for _ in range(2):
        with pytest.raises(InputError) as caught:
            shipped(file)
        assert str(caught.value.where).startswith(str(file))
    assert parsed == [file, file]
