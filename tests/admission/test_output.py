"""Outputs over real descriptors and files; /dev/full is a disk on which nothing ever fits."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.audit_schema import record
from tests.golden_files import Golden
from webhook.admission.lines import DROPPING, WRITING_AGAIN, LineWriter
from webhook.admission.output import Descriptor, Lost, RotatedFile
from webhook.errors import InputError

LINE = b"x" * 99  # and its end


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def lines_of(path: Path) -> list[bytes]:
    text = path.read_bytes()
    assert not text or text.endswith(b"\n")
    return text.splitlines()


class OutputDisk:
    """`os.write` on a disk that has so many bytes left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        self._write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, descriptor: int, data: Any) -> int:
        if data and not self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(descriptor, data[: self.left])
        self.left -= written
        return written


def lost_of(output: Any, lines: list[bytes]) -> int:
    """How many lines are lost when they are written."""
    try:
        output.write(lines)
    except Lost as error:
        return error.lines
    return 0


# -- a descriptor ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 30), st.integers(1, 3))
def test_a_torn_line_spoils_no_other(room: int, more: int) -> None:
    reader, writer = os.pipe()
    with pytest.MonkeyPatch.context() as monkeypatch:
        output, disk = Descriptor(writer), OutputDisk(monkeypatch, room)
        lost = lost_of(output, [b"aaaa", b"bbbb", b"cccc"])
        disk.left = 1000
        for number in range(more):
            output.write([b"%d" % number])
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read().split(b"\n")

    whole = [line for line in said if line in (b"aaaa", b"bbbb", b"cccc")]
    assert len(whole) + lost in (3, 4), "a line whose end alone was lost is whole after all"
    assert [line for line in said if line.isdigit()] == [b"%d" % number for number in range(more)]


# -- a file ------------------------------------------------------------------------------------------------------------


def test_a_file_is_appended_to_and_nobody_elses_to_read(path: Path) -> None:
    RotatedFile(str(path), 1000, 2).write([b"one"])
    RotatedFile(str(path), 1000, 2).write([b"two", b"three"])
    assert (lines_of(path), path.stat().st_mode & 0o777) == ([b"one", b"two", b"three"], 0o600)
    # A line that a crash has torn gets an end.
    path.write_bytes(b'{"half":')
    RotatedFile(str(path), 1000, 2).write([b"one"])
    assert lines_of(path) == [b'{"half":', b"one"]


def test_full_files_are_kept_and_the_oldest_goes(path: Path) -> None:
    output = RotatedFile(str(path), 250, 2)
    for number in range(9):
        output.write([b"%d" % number + LINE[1:]])
    kept = [path, path.with_name("audit.jsonl.1"), path.with_name("audit.jsonl.2")]
    assert [[line[:1] for line in lines_of(file)] for file in kept] == [[b"8"], [b"6", b"7"], [b"4", b"5"]]
    assert sorted(path.parent.iterdir()) == kept
    assert all(file.stat().st_size <= 250 for file in kept)


def test_whoever_rotates_the_file_is_followed(path: Path) -> None:
    output = RotatedFile(str(path), 1000, 2)
    output.write([b"one"])
    path.rename(path.with_name("elsewhere"))
    output.write([b"two"])
    path.unlink()
    output.write([b"three"])
    os.truncate(path, 0)  # logrotate's copytruncate
    output.write([b"four"])
    assert (lines_of(path.with_name("elsewhere")), lines_of(path)) == ([b"one"], [b"four"])


def test_a_directory_that_is_away_costs_lines_until_it_is_back(path: Path) -> None:
    output = RotatedFile(str(path), 1000, 2)
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(Lost) as lost:
        output.write([b"one", b"two"])
    assert (lost.value.lines, lost.value.why) == (2, os.strerror(errno.ENOENT))
    path.parent.mkdir()
    output.write([b"three"])
    assert lines_of(path) == [b"three"]


@given(st.integers(0, 60))
def test_a_disk_that_fills_leaves_whole_lines_only(tmp_path_factory: pytest.TempPathFactory, room: int) -> None:
    path = tmp_path_factory.mktemp("disk") / "audit.jsonl"
    with pytest.MonkeyPatch.context() as monkeypatch:
        output, disk = RotatedFile(str(path), 1000, 2), OutputDisk(monkeypatch, room)
        lost = sum(lost_of(output, [b"%d-%d-xxxx" % (number, item) for item in range(3)]) for number in range(3))
        disk.left = 1000
        output.write([b"after"])
    kept = lines_of(path)
    assert len(kept) + lost == 10
    assert all(len(line) == 8 for line in kept[:-1])
    assert kept[-1] == b"after"


def test_a_file_that_can_not_be_put_away_grows(path: Path, caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
    output = RotatedFile(str(path), 150, 1)
    full = path.with_name("audit.jsonl.1")
    full.mkdir()
    for _ in range(4):
        output.write([LINE])
    assert len(lines_of(path)) == 4
    full.rmdir()
    output.write([LINE])
    assert (len(lines_of(path)), len(lines_of(full))) == (1, 4)
    (said,) = caplog.messages
    golden(said)


@pytest.mark.parametrize(
    "make",
    [lambda path: path.mkdir(), os.mkfifo, lambda path: path.parent.rmdir()],
    ids=["directory", "fifo", "nowhere"],
)
def test_what_can_not_be_written_to_is_refused_at_the_start(path: Path, make: Any, golden: Golden) -> None:
    make(path)
    with pytest.raises(InputError) as refused:
        RotatedFile(str(path), 1000, 2)
    golden(str(refused.value))


# -- behind a writer ---------------------------------------------------------------------------------------------------


def test_a_full_disk_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    lines = LineWriter(Descriptor(full))
    for number in range(700):
        lines.write(record(str(number)))
    lines.close()
    os.close(full)
    assert lines.dropped_count == 700
    assert caplog.messages == [f"{DROPPING}: {os.strerror(errno.ENOSPC)}"]


def test_a_disk_with_room_again_is_written_to(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines = LineWriter(RotatedFile(str(path), 1_000_000, 1))
    path.unlink()
    path.parent.rmdir()
    lines.write(record("lost"))
    while not lines.dropped_count:
        pass
    path.parent.mkdir()
    lines.write(record("kept"))
    lines.close()
    assert (lines.dropped_count, len(lines_of(path)), caplog.messages[-1]) == (1, 1, WRITING_AGAIN)
