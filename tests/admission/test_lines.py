from __future__ import annotations

import json
import os
import threading
from typing import Any

import msgspec
import pytest

from tests.admission.audit_schema import record
from webhook.admission.audit import SCHEMA, AuditedObject, DifferingField, FidelityRecord, timestamp
from webhook.admission.decision import Change
from webhook.admission.lines import MAX_LINE, MAX_LONG_LINE, LineWriter, line
from webhook.admission.output import Descriptor


def written(count: int, capacity: int = 10_000) -> list[dict[str, Any]]:
    reader, writer = os.pipe()
    lines = LineWriter(Descriptor(writer), capacity)
    for number in range(count):
        lines.write(record(str(number)))
    lines.close()
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return [json.loads(line) for line in pipe]


def drained(lines: LineWriter, reader: int, writer: int) -> bytes:
    """What comes out of the pipe when a reader reads at last and the writer ends."""
    read: list[bytes] = []

    def drain() -> None:
        with os.fdopen(reader, "rb") as pipe:
            read.append(pipe.read())

    thread = threading.Thread(target=drain)
    thread.start()
    lines.close()
    os.close(writer)
    thread.join()
    return read[0]


def test_a_line_is_a_record() -> None:
    (line,) = written(1)
    assert line == {
        "kind": "decision",
        "schema": SCHEMA,
        "time": "2026-01-01T00:00:00.000000Z",
        "uid": "0",
        "endpoint": "/mutate/scheduling/pods/enforce",
        "operation": "CREATE",
        "object": {"kind": "Pod", "namespace": "demo", "name": "virt-launcher-web01-"},
        "user": "system:serviceaccount:kubevirt:kubevirt-controller",
        "dryRun": False,
        "mode": "enforce",
        "decision": "patched",
        "reasons": [{"code": "scheduler-injected", "text": "the VM chose none"}],
        "changes": [
            {
                "path": ["spec", "schedulerName"],
                "old": "default-scheduler",
                "new": "kubevirt",
                "reason": "scheduler-injected",
            }
        ],
        "message": None,
        "durationMs": 0.125,
        "freshness": {"namespaces": 12.5},
    }


def test_a_line_about_a_running_vm_has_a_kind() -> None:
    reader, writer = os.pipe()
    lines = LineWriter(Descriptor(writer))
    vm = AuditedObject("VirtualMachine", "demo", "web01")
    lines.write(FidelityRecord(SCHEMA, timestamp(1767225600), "u", vm, [DifferingField("spec.hostname", None)], 1))

    assert json.loads(drained(lines, reader, writer)) == {
        "schema": SCHEMA,
        "time": "2026-01-01T00:00:00.000000Z",
        "uid": "u",
        "object": {"kind": "VirtualMachine", "namespace": "demo", "name": "web01"},
        "differences": [{"path": "spec.hostname", "origin": None}],
        "count": 1,
        "kind": "fidelity",
    }


def test_order_is_kept() -> None:
    assert [line["uid"] for line in written(100)] == [str(number) for number in range(100)]


def test_a_reader_that_stalls_costs_records_not_requests() -> None:
    reader, writer = os.pipe()
    lines = LineWriter(Descriptor(writer), capacity=3)
    # A record that is larger than the pipe keeps the thread writing until a reader empties the pipe.
    lines.write(record("x" * 200_000))
    while lines._lines:
        pass
    for number in range(10):
        lines.write(record(str(number)))

    assert lines.dropped_count == 7

    read = drained(lines, reader, writer)
    assert [json.loads(line)["uid"][:1] for line in read.splitlines()] == ["x", "0", "1", "2"]


def test_what_waits_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.admission.lines.MAX_WAITING", 1)
    reader, writer = os.pipe()
    lines = LineWriter(Descriptor(writer))
    lines.write(record("x" * 200_000))
    while lines._given > lines._taken:
        pass
    for number in range(10):
        lines.write(record(str(number)))

    assert lines.dropped_count == 9

    read = drained(lines, reader, writer)
    assert [json.loads(line)["uid"][:1] for line in read.splitlines()] == ["x", "0"]


def test_a_closed_reader_is_counted() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    lines = LineWriter(Descriptor(writer))
    lines.write(record())
    lines.close()
    os.close(writer)

    assert lines.dropped_count == 1


def test_absurdly_long_names_are_cut() -> None:
    reader, writer = os.pipe()
    lines = LineWriter(Descriptor(writer))
    long = msgspec.structs.replace(record(), object=AuditedObject("Pod", "demo", "x" * 2_000_000))
    lines.write(long)
    lines.close()
    os.close(writer)
    with os.fdopen(reader) as pipe:
        (line,) = [json.loads(line) for line in pipe]

    assert line["object"]["name"] == "x" * 299 + "…"
    assert line["changes"][0]["new"] == "kubevirt"


def test_a_non_blocking_reader_tears_no_line() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    lines = LineWriter(Descriptor(writer))
    for number in range(1000):
        lines.write(record(str(number)))
    read = drained(lines, reader, writer)

    assert [json.loads(line)["uid"] for line in read.splitlines()] == [str(number) for number in range(1000)]
    assert lines.dropped_count == 0


def test_a_usual_line_is_as_it_is() -> None:
    assert line(record()) == msgspec.json.encode(record())


def test_all_nodes_of_a_large_cluster_stay() -> None:
    names = [f"node-{number}.example.com" for number in range(5000)]
    long = msgspec.structs.replace(record(), details={"nodes": [{"fails": ["x" * 1000], "nodes": names}]})

    group = json.loads(line(long))["details"]["nodes"][0]

    assert group["nodes"] == names
    assert len(group["fails"][0]) == 300


def _deep(width: int, depth: int) -> Any:
    return {f"key-{number}": _deep(width, depth - 1) for number in range(width)} if depth else "x" * 400


@pytest.mark.parametrize("value", [["x"] * 300_000, _deep(60, 3), [[_deep(4, 7)]]])
def test_however_much_changes_the_line_ends(value: Any) -> None:
    changes = (Change(("spec", "volumes"), None, value, "instancetype-applied"),)

    encoded = line(msgspec.structs.replace(record(), changes=changes))

    assert len(line(record())) < MAX_LINE
    assert len(encoded) <= MAX_LONG_LINE
    assert json.loads(encoded)["uid"] == "u"
