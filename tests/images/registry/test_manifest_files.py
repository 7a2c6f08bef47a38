"""Manifests in a directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webhook.images.manifests import digest_of
from webhook.images.registry.manifest_files import ManifestFiles

LIMIT = 16 * 4096


def test_what_was_written_is_read_after_a_restart(tmp_path: Path) -> None:
    ManifestFiles(tmp_path, LIMIT).write(digest_of(b"x"), b"x")
    again = ManifestFiles(tmp_path, LIMIT)
    assert (again.read(digest_of(b"x")), again.read(digest_of(b"y")), again.size) == (b"x", None, 4096)


@pytest.mark.control("replaced-manifests")
@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"something else"), Path.unlink])
def test_a_file_that_was_changed_or_is_gone_is_not_believed(tmp_path: Path, change: Callable[[Path], Any]) -> None:
    files = ManifestFiles(tmp_path, LIMIT)
    files.write(digest_of(b"x"), b"x")
    change(next(tmp_path.iterdir()))
    assert files.read(digest_of(b"x")) is None
    assert (list(tmp_path.iterdir()), files.size) == ([], 0)


@pytest.mark.control("many-images")
def test_the_oldest_make_room(tmp_path: Path) -> None:
    files = ManifestFiles(tmp_path, LIMIT)
    bodies = [bytes([number]) * 4096 for number in range(40)]
    for body in bodies:
        files.write(digest_of(body), body)
    assert files.size <= LIMIT
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LIMIT
    assert [files.read(digest_of(body)) is not None for body in bodies] == [False] * 24 + [True] * 16
    files.write(digest_of(b"x" * LIMIT * 2), b"x" * LIMIT * 2)
    assert files.read(digest_of(bodies[-1])) is not None


def test_after_a_restart_the_oldest_go_first(tmp_path: Path) -> None:
    first = ManifestFiles(tmp_path, LIMIT)
    for number in range(16):
        first.write(digest_of(bytes([number])), bytes([number]))
        os.utime(next(tmp_path.glob(f"*{digest_of(bytes([number]))[7:]}")), (number, number))
    again = ManifestFiles(tmp_path, LIMIT)
    again.write(digest_of(b"new"), b"new")
    assert again.read(digest_of(bytes([0]))) is None
    assert again.read(digest_of(bytes([1]))) is not None


def test_what_does_not_belong_there_is_left_alone(tmp_path: Path) -> None:
    link = tmp_path / f"sha256-{'a' * 64}"
    (tmp_path / "README").write_text("x")
    link.symlink_to("/etc/passwd")
    (tmp_path / ".new-abandoned").write_text("x")
    files = ManifestFiles(tmp_path, LIMIT)
    assert (files.size, files.read(f"sha256:{'a' * 64}")) == (0, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README", link.name]


def test_a_directory_that_cannot_be_written_to_is_done_without(tmp_path: Path) -> None:
    files = ManifestFiles(tmp_path / "missing", LIMIT)
    for body in (b"x", b"y"):
        files.write(digest_of(body), body)
    assert files.read(digest_of(b"x")) is None
