"""Audit lines over real pipes, descriptors and files; /dev/full is a disk on which nothing ever fits."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from tests.admission.audit_schema import STRICT, describe, record, valid
from tests.golden_files import Golden
from webhook.admission import audit
from webhook.admission.audit import SCHEMA, AuditedObject, DifferingField, FidelityRecord, schema, timestamp
from webhook.admission.decision import Change, Reason
from webhook.admission.lines import DROPPING, MAX_LINE, MAX_LONG_LINE, WRITING_AGAIN, LineWriter, line
from webhook.admission.output import Descriptor, Lost, Output, RotatedFile
from webhook.errors import InputError

LINE = b"x" * 99  # and its end
HOSTNAME = DifferingField("spec.hostname", None)


class Pipe:
    """A writer of lines into a pipe."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._reader, self.writer = os.pipe()
        self.lines = LineWriter(Descriptor(self.writer), capacity)

    def write(self, *uids: object) -> None:
        for uid in uids:
            self.lines.write(record(str(uid)))

    def read(self) -> list[dict[str, Any]]:
        """What comes out of the pipe when a reader reads at last and the writer ends."""
        read: list[bytes] = []

        def drain() -> None:
            with os.fdopen(self._reader, "rb") as pipe:
                read.extend(pipe)

        thread = threading.Thread(target=drain)
        thread.start()
        self.lines.close()
        os.close(self.writer)
        thread.join()
        return [json.loads(line) for line in read]


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def test_a_line_is_a_record(pipe: Pipe) -> None:
    pipe.write(0)
    pipe.lines.write(FidelityRecord(SCHEMA, timestamp(1767225600), "u", WEB, [HOSTNAME], 1))

    same = {"schema": SCHEMA, "time": "2026-01-01T00:00:00.000000Z"}
    change = {"path": ["spec", "schedulerName"], "old": "default-scheduler", "new": "kubevirt"}
    assert pipe.read() == [
        {
            **same,
            "kind": "decision",
            "uid": "0",
            "endpoint": "/mutate/scheduling/pods/enforce",
            "operation": "CREATE",
            "object": {"kind": "Pod", "namespace": "demo", "name": "virt-launcher-web01-"},
            "user": "system:serviceaccount:kubevirt:kubevirt-controller",
            "dryRun": False,
            "mode": "enforce",
            "decision": "patched",
            "reasons": [{"code": "scheduler-injected", "text": "the VM chose none"}],
            "changes": [change | {"reason": "scheduler-injected"}],
            "message": None,
            "durationMs": 0.125,
            "freshness": {"namespaces": 12.5},
        },
        {
            **same,
            "kind": "fidelity",
            "uid": "u",
            "object": {"kind": "VirtualMachine", "namespace": "demo", "name": "web01"},
            "differences": [{"path": "spec.hostname", "origin": None}],
            "count": 1,
        },
    ]


@pytest.mark.parametrize("blocking", [True, False])
def test_order_is_kept_and_a_non_blocking_reader_tears_no_line(pipe: Pipe, blocking: bool) -> None:
    os.set_blocking(pipe.writer, blocking)
    pipe.write(*range(1000))
    assert [line["uid"] for line in pipe.read()] == [str(number) for number in range(1000)]
    assert pipe.lines.dropped_count == 0


def test_a_reader_that_stalls_costs_records_not_requests() -> None:
    pipe = Pipe(capacity=3)
    # A record that is larger than the pipe keeps the thread writing until a reader empties the pipe.
    pipe.write("x" * 200_000)
    while pipe.lines._lines:
        pass
    pipe.write(*range(10))
    assert (pipe.lines.dropped_count, [line["uid"][:1] for line in pipe.read()]) == (7, ["x", "0", "1", "2"])


def test_a_burst_is_written_in_blocks_that_the_heap_has() -> None:
    sizes: list[int] = []

    class Sizes(Output):
        def write(self, lines: Sequence[bytes]) -> None:
            sizes.append(sum(len(each) + 1 for each in lines))

    lines = LineWriter(Sizes())
    for number in range(500):
        lines.write(record(f"{number}{'x' * 1000}"))
    lines.close()

    assert sum(sizes) > 500 * 1000
    assert max(sizes) < 128 * 1024


def test_what_waits_is_bounded_in_bytes_too(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.admission.lines.MAX_WAITING", 1)
    pipe.write("x" * 200_000)
    while pipe.lines._bytes_in > pipe.lines._bytes_out:
        pass
    pipe.write(*range(10))
    assert (pipe.lines.dropped_count, [line["uid"][:1] for line in pipe.read()]) == (9, ["x", "0"])


def test_records_that_no_reader_is_there_for_are_counted() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    lines = LineWriter(Descriptor(writer))
    lines.write(record())
    lines.close()
    os.close(writer)
    assert lines.dropped_count == 1


def test_absurdly_long_names_are_cut(pipe: Pipe) -> None:
    pipe.lines.write(msgspec.structs.replace(record(), object=AuditedObject("Pod", "demo", "x" * 2_000_000)))
    (line,) = pipe.read()
    assert (line["object"]["name"], line["changes"][0]["new"]) == ("x" * 299 + "…", "kubevirt")


def test_a_usual_line_is_as_it_is() -> None:
    assert line(record()) == msgspec.json.encode(record())


def test_all_nodes_of_a_large_cluster_stay() -> None:
    names = [f"node-{number}.example.com" for number in range(5000)]
    long = msgspec.structs.replace(record(), details={"nodes": [{"fails": ["x" * 1000], "nodes": names}]})
    group = json.loads(line(long))["details"]["nodes"][0]
    assert (group["nodes"], len(group["fails"][0])) == (names, 300)


def _deep(width: int, depth: int) -> Any:
    return {f"key-{number}": _deep(width, depth - 1) for number in range(width)} if depth else "x" * 400


@pytest.mark.control("endless-answers")
@pytest.mark.parametrize("value", [["x"] * 300_000, _deep(60, 2), [[_deep(4, 7)]]])
def test_however_much_changes_the_line_ends(value: Any) -> None:
    changes = (Change(("spec", "volumes"), None, value, "instancetype-applied"),)
    encoded = line(msgspec.structs.replace(record(), changes=changes))
    assert len(line(record())) < MAX_LINE
    assert len(encoded) <= MAX_LONG_LINE
    assert json.loads(encoded)["uid"] == "u"


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


# -- their schema; that real records keep to it is shown where they are made -------------------------------------------

WEB = AuditedObject("VirtualMachine", "demo", "web01")
NOW = timestamp(1_700_000_000.25)


def test_every_field_is_described() -> None:
    Draft202012Validator.check_schema(schema())
    for name, record_type in schema()["$defs"].items():
        assert record_type["description"], name
        for field, described in record_type["properties"].items():
            assert described.get("description"), (name, field)


def test_the_kinds_of_records_are_told_apart() -> None:
    fidelity = FidelityRecord(SCHEMA, NOW, "u", WEB, [HOSTNAME], 1)
    change = Change(("spec", "schedulerName"), None, "kubevirt", "scheduler-injected")
    reasons = [Reason("scheduler-injected", "the VM chose none")]
    created = "2026-11-21T15:00:00Z"
    endpoint = "/mutate/scheduling/virtualmachines/enforce"
    found = audit.DriftRecord(SCHEMA, NOW, "u", endpoint, WEB, created, "would-patch", reasons, [change], None)
    assert [valid(one)["kind"] for one in (record(), fidelity, found)] == ["decision", "fidelity", "drift"]
    audit.NoAudit().write(record())


@pytest.mark.parametrize(
    "change",
    [
        *({"decision": "perhaps"}, {"mode": "strict"}, {"time": "yesterday"}, {"durationMs": -1}, {"kind": "other"}),
        *({"reasons": []}, {"reasons": [{"code": "Two Words", "text": ""}]}, {"freshness": {"namespaces": "old"}}),
        *({"schema": "kubevirt-webhook.github.io/audit/v9"}, {"extra": 1}),
        *({missing: ...} for missing in ("time", "uid", "durationMs", "user")),
    ],
)
def test_what_is_no_record(change: dict[str, Any]) -> None:
    line = {name: value for name, value in (valid(record()) | change).items() if value is not ...}
    assert not STRICT.is_valid(line)
    with pytest.raises(ValidationError):
        describe(line)


def test_the_documented_schema_is_the_one_that_we_print() -> None:
    kept = Path(__file__).parents[2] / "docs" / "audit.schema.json"
    assert msgspec.json.decode(kept.read_bytes()) == schema(), "print it anew"


@given(st.floats(-1e9, 4e9) | st.integers(0, 4 * 10**9).map(float) | st.integers(0, 10**9).map(lambda n: n + 0.9999999))
def test_a_timestamp_is_that_of_datetime(wall: float) -> None:
    """The whole second is formatted once for many records."""
    whole = datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds")
    assert timestamp(wall) == whole.replace("+00:00", "Z")
