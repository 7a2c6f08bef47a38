"""Our own log: it never holds anybody up."""

from __future__ import annotations

import os

from webhook.cli.logs import Lossy


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
