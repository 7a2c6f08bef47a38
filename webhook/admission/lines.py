"""Audit lines: encoded inline, written by a thread, never in a request's way.

Measured: encoding inline costs 1 µs; a thread that encodes too doubles the p99 of the requests beside it, because it
takes the interpreter from them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from itertools import islice
from typing import Any, Final

import msgspec

from webhook.admission.audit import AnyRecord
from webhook.admission.output import Lost, Output
from webhook.text import shorten, visible_json

# How long lines gather before they are written together. A thread that wakes for every line takes the interpreter away
# from the requests each time: measured, that cost a review three times what the whole policy does.
GATHER_SECONDS: Final = 0.02

# A longer line holds some absurd name or value, for metadata is checked only after admission. Its strings are cut.
MAX_LINE: Final = 16 * 1024
_MAX_STRING: Final = 300
# What is longer even so holds long lists: those of all nodes may stay, those of tenants are cut until it is short.
MAX_LONG_LINE: Final = 1024 * 1024
_MAX_ITEMS: Final = (1000, 50)

# What is written at once: far less than the smallest file, so that files keep to their size; and with the last line it
# is less than what the C library maps for itself (mallopt(3), M_MMAP_THRESHOLD), whose pages are new ones every time.
_BATCH_BYTES: Final = 64 * 1024

# What may wait in all: a line that lists thousands of nodes is a hundred times as long as others.
MAX_WAITING: Final = 64 * 1024 * 1024

# Events in the log; the first has the cause behind it.
DROPPING: Final = "audit lines are being dropped"
WRITING_AGAIN: Final = "audit lines are written again"

logger = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode


def _cut(value: Any, most: int) -> Any:
    """Plain JSON with all long strings shortened, and the first items of all lists and maps."""
    if isinstance(value, str):
        return shorten(value, _MAX_STRING)
    if isinstance(value, dict):
        return {_cut(key, most): _cut(item, most) for key, item in islice(value.items(), most)}
    return [_cut(item, most) for item in value[:most]] if isinstance(value, list | tuple) else value


def line(record: AnyRecord) -> bytes:
    """A record as a line without its end, of bounded length."""
    encoded = _encode(record)
    if len(encoded) <= MAX_LINE:
        return encoded
    plain = msgspec.to_builtins(record)
    for most in (MAX_LONG_LINE, *_MAX_ITEMS):
        encoded = _encode(_cut(plain, most))
        if len(encoded) <= MAX_LONG_LINE:
            return encoded
    # Who, what and why stay; what lies so deep and so wide is left out.
    left_out: dict[str, Any] = {"changes": [], "details": {}}
    return _encode(_cut(plain | {name: empty for name, empty in left_out.items() if name in plain}, _MAX_ITEMS[-1]))


class LineWriter:
    """Writes records as JSON lines, from a thread of its own.

    The queue is bounded. A reader that does not keep up, or a full disk, costs records, which `dropped_count` counts,
    never requests. Both may pass: the next lines are tried again.

    Args:
        output: where lines go; stays open.
        capacity: records that may wait.
    """

    def __init__(self, output: Output, capacity: int = 10_000) -> None:
        self._output: Final = output
        self._capacity: Final = capacity
        self._lines: deque[bytes] = deque()
        self._pending: Final = threading.Event()
        self._closing: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="audit", daemon=True)
        # A count for each thread: neither may overwrite the other's.
        self._refused = self._lost = 0
        self._bytes_in = self._bytes_out = 0  # likewise
        self._losing = ""
        self._awake = False
        self._thread.start()

    @property
    def dropped_count(self) -> int:
        """Records that were not written."""
        return self._refused + self._lost

    def write(self, record: AnyRecord) -> None:
        """Queue a record, or count it as dropped if the queue is full."""
        if len(self._lines) >= self._capacity or self._bytes_in - self._bytes_out >= MAX_WAITING:
            self._refused += 1
            return
        encoded = _encode(record)
        if len(encoded) > MAX_LINE:
            encoded = line(record)
        if not encoded.isascii() or b"\x7f" in encoded:
            encoded = visible_json(encoded)
        self._bytes_in += len(encoded)
        self._lines.append(encoded)
        if not self._awake:
            self._awake = True
            self._pending.set()

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits and end the thread; after ``timeout`` seconds the rest counts as dropped."""
        self._closing.set()
        self._pending.set()
        self._thread.join(timeout)
        self._refused += len(self._lines)

    def _run(self) -> None:
        while True:
            self._pending.wait()
            self._closing.wait(GATHER_SECONDS)
            self._pending.clear()
            # Before the lines are taken: a line that is added from now on wakes the writer again.
            self._awake = False
            while self._lines:
                self._write_batch()
            if self._closing.is_set():
                return

    def _write_batch(self) -> None:
        batch, size = [], 0
        # Only this thread takes from the left: what is there stays there while others append.
        while self._lines and size < _BATCH_BYTES:
            batch.append(self._lines.popleft())
            size += len(batch[-1])
        self._bytes_out += size
        try:
            self._output.write(batch)
        except Lost as lost:
            # The decisions stand all the same.
            self._lost += lost.lines
            if lost.why != self._losing:
                logger.warning("%s: %s", DROPPING, lost.why)
            self._losing = lost.why
        else:
            if self._losing:
                logger.info(WRITING_AGAIN)
            self._losing = ""
