"""The server's own log never blocks a caller."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any

import pytest

from webhook.server.runtime import logs
from webhook.server.runtime.logs import Lossy


def test_lines_come_whole_however_long() -> None:
    reading, writing = os.pipe()
    stream = Lossy(writing)
    lines = ["one\n", "x" * 20_000 + "\n", "\ud800 ü\n"]
    for line in lines:
        stream.write(line)
    stream.flush()
    assert os.read(reading, 100_000).decode() == "".join(lines).replace("\ud800", "\\ud800")
    os.close(reading)
    os.close(writing)


def test_a_reader_that_hangs_costs_lines_and_no_time() -> None:
    reading, writing = os.pipe()
    stream = Lossy(writing)
    for number in range(5000):
        stream.write(f"{number}: {'x' * 100}\n")
    seen = os.read(reading, 1_000_000)
    assert seen.startswith(b"0: xxx")
    assert len(seen) < 5000 * 100
    stream.write("later\n")
    assert os.read(reading, 1000).splitlines()[-1] == b"later", "on a line of its own"
    os.close(reading)
    stream.write("to nobody\n")
    os.close(writing)


def test_a_full_disk() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    Lossy(full).write("lost\n")
    os.close(full)


def fail(why: str) -> None:
    raise ValueError(why)


@pytest.mark.control("secrets-in-outputs")
def test_no_line_tells_a_secret_or_moves_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\u202e https://e.com/x?sig=hunter2"

    async def log() -> None:
        log = logs.follow_loop()
        log.warning(hostile, name=hostile, several=[hostile], inner={"password": "hunter2"})
        logging.getLogger("aiohttp").warning("seen: %s", hostile)
        token = "hunter2".upper()
        with pytest.raises(ValueError) as failure:
            fail(f"{hostile}\n-----BEGIN PRIVATE KEY-----\nhunter2")
        log.error("failed", webhook="/x", exc_info=failure.value)
        assert token

    with logs.configured():
        asyncio.run(log())

    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert len(lines) == 3
    assert "hunter2 " not in str(lines).replace('"hunter2".upper()', "")
    assert "sig=hunter2" not in str(lines)
    assert all(char.isprintable() or char == "\n" for line in lines for value in line.values() for char in str(value))
    exception = lines[2]["exception"]
    assert "raise ValueError(why)" in exception
    assert "PRIVATE KEY-----\nhunter2" not in exception
    assert exception.splitlines()[-1].startswith("ValueError: \\x1b[2J\\u202e https://e.com/x?<redacted>")


def lines_on_a_terminal(*arguments: Any, **fields: Any) -> list[str]:
    record = logging.LogRecord("webhook.server", logging.WARNING, __file__, 1, *arguments)
    record.fields = fields
    return logs.Lines(terminal=True).format(record).splitlines()


def test_a_terminal_gets_text() -> None:
    (line,) = lines_on_a_terminal("%s", ("serving",), None, address="https://127.0.0.1:8443", replicas=2)
    assert line.partition("Z  ")[2] == 'warning  serving  address="https://127.0.0.1:8443"  replicas=2'


def test_nothing_begins_a_line_on_a_terminal() -> None:
    forged = "late\n2026-01-01T00:00:00.000000Z  info  all is well\x1b[2J"
    lines = lines_on_a_terminal("%s", (forged,), None, why=forged, names=[forged], **{"a\nb": 1})
    assert len(lines) == 1
    assert "\x1b" not in lines[0]


def test_a_traceback_on_a_terminal_keeps_its_lines() -> None:
    try:
        fail("cause")
    except ValueError:
        error = sys.exc_info()
    first, *rest = lines_on_a_terminal("%s", ("failed",), error)
    assert first.endswith("warning  failed")
    assert rest[0].startswith("Traceback")
    assert rest[-1] == "ValueError: cause"
