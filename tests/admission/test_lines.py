from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.admission.audit_schema import record
from webhook.admission.audit import SCHEMA, AuditedObject, DifferingField, FidelityRecord, timestamp
from webhook.admission.decision import Change
from webhook.admission.lines import MAX_LINE, MAX_LONG_LINE, LineWriter, line
from webhook.admission.output import Descriptor, Output


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
    vm = AuditedObject("VirtualMachine", "demo", "web01")
    pipe.lines.write(FidelityRecord(SCHEMA, timestamp(1767225600), "u", vm, [DifferingField("spec.hostname", None)], 1))

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
    while pipe.lines._given > pipe.lines._taken:
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


@pytest.mark.parametrize("value", [["x"] * 300_000, _deep(60, 3), [[_deep(4, 7)]]])
def test_however_much_changes_the_line_ends(value: Any) -> None:
    changes = (Change(("spec", "volumes"), None, value, "instancetype-applied"),)
    encoded = line(msgspec.structs.replace(record(), changes=changes))
    assert len(line(record())) < MAX_LINE
    assert len(encoded) <= MAX_LONG_LINE
    assert json.loads(encoded)["uid"] == "u"
