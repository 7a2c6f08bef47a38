"""One JSON line for every decision: encoded inline, written by a thread, never in a request's way.

A record holds what was decided and about which object, never the object: cloud-init, SSH keys and other secrets can't
leak from what is not there. Measured: encoding inline costs 1 µs; a thread that encodes too doubles the p99 of the
requests beside it, because it takes the interpreter from them.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

import msgspec

from webhook.admission.decision import Change, Reason

# How long lines gather before they are written together. A thread that wakes for every line takes the interpreter away
# from the requests each time: measured, that cost a review three times what the whole policy does.
GATHER_SECONDS: Final = 0.02

# A longer line holds some absurd name or value, for metadata is checked only after admission. Its strings are cut.
MAX_LINE: Final = 16 * 1024
_MAX_STRING: Final = 300

SCHEMA: Final = "kubevirt-webhook.github.io/audit/v1alpha1"


class AuditedObject(msgspec.Struct, frozen=True):
    kind: str
    namespace: str
    name: str


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """One decision. "Decided", not "done": a later admission step may still refuse the object.

    Attributes:
        time: when it was decided, RFC 3339 in UTC with microseconds.
        uid: of the admission request.
        endpoint: the path that was called.
        mode: of the job in the namespace.
        decision: ``allowed``, ``patched``, ``denied``, ``would-patch``, ``would-deny``, ``not-judged`` or ``error``.
        changes: with old and new values, secrets redacted; in other modes than enforce those that enforce would have
            made.
        duration_ms: from the first byte of the body in hand to the answer, in milliseconds.
        details: what a policy wants to be known beyond that, by its own names.
    """

    schema: str
    time: str
    uid: str
    endpoint: str
    operation: str
    object: AuditedObject
    user: str
    dry_run: bool
    mode: str
    decision: str
    reasons: Sequence[Reason]
    changes: Sequence[Change]
    message: str | None
    duration_ms: float
    details: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET


class DifferingField(msgspec.Struct, frozen=True):
    """A field of a VMI that isn't what it should be; its value is not ours to show.

    Attributes:
        origin: who should have set it; None where nobody should have.
    """

    path: str
    origin: str | None


class ParityRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A running VM whose VMI isn't what KubeVirt's rules, as we know them, make of it.

    Attributes:
        time: when it was compared, as in a `Record`.
        kind: tells it from a decision, which has none.
        uid: of the VMI.
        object: the VM.
        differences: the first ones by path.
        count: of all of them.
    """

    schema: str
    time: str
    uid: str
    object: AuditedObject
    differences: Sequence[DifferingField]
    count: int
    kind: Literal["parity"] = "parity"


def timestamp(wall: float) -> str:
    """Unix time in seconds as records have it: RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _cut(value: Any) -> Any:
    """Plain JSON with all long strings shortened."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_STRING else value[: _MAX_STRING - 1] + "…"
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list | tuple) else value


class Sink(Protocol):
    """Where audit lines go."""

    def write(self, record: Record) -> None:
        """Take a record over; must neither wait nor raise."""


class NoAudit:
    """Keeps nothing: for the command line and tests."""

    def write(self, record: Record) -> None:
        """Drop the record."""


class LineWriter:
    """Writes records as JSON lines to a file descriptor, from a thread of its own.

    The queue is bounded. A reader that doesn't keep up costs records, which `dropped` counts, never requests.

    Args:
        descriptor: an open file descriptor, for example 1; it stays open.
        capacity: records that may wait.
    """

    def __init__(self, descriptor: int, capacity: int = 10_000) -> None:
        self._descriptor: Final = descriptor
        self._capacity: Final = capacity
        self._lines: deque[bytes] = deque()
        self._encode: Final = msgspec.json.Encoder().encode
        self._pending: Final = threading.Event()
        self._closing: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="audit", daemon=True)
        self.dropped = 0
        self._thread.start()

    def write(self, record: Record | ParityRecord) -> None:
        """Queue a record, or count it as dropped if the queue is full."""
        if len(self._lines) >= self._capacity:
            self.dropped += 1
            return
        line = self._encode(record)
        self._lines.append(line if len(line) <= MAX_LINE else self._encode(_cut(msgspec.to_builtins(record))))
        if not self._pending.is_set():
            self._pending.set()

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits and end the thread; after ``timeout`` seconds the rest counts as dropped."""
        self._closing.set()
        self._pending.set()
        self._thread.join(timeout)
        self.dropped += len(self._lines)

    def _run(self) -> None:
        while True:
            self._pending.wait()
            self._closing.wait(GATHER_SECONDS)
            self._pending.clear()
            while self._lines:
                self._write_batch()
            if self._closing.is_set():
                return

    def _write_batch(self) -> None:
        # Only this thread takes from the left, so the count stays true while others append.
        batch = [self._lines.popleft() for _ in range(min(len(self._lines), 512))]
        data = memoryview(b"\n".join(batch) + b"\n")
        try:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:
                    # Somebody who shares the descriptor has made it non-blocking: wait for the reader as ever.
                    select.select((), (self._descriptor,), ())
        except OSError:
            # A closed pipe or a full disk: the decision stands all the same. What was begun is a line too few.
            self.dropped += bytes(data).count(b"\n")
