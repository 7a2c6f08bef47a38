"""Text fits the terminal, whatever its width, and stays readable."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.text import Text

from tests.cli.runner import run
from webhook.cli.console import WIDTH, Paragraph, change_line, fill, print_report

ROOT = Path(__file__).parents[2]
COMMANDS = [
    ("explain", "drain", "node-1", "--cluster-from", "examples/drain"),
    ("explain", "drain", "--rolling", "--cluster-from", "examples/drain"),
    ("explain", "migration", "shop/web", "--to", "zone=b", "--cluster-from", "examples/cluster"),
    ("explain", "migration", "shop/web", "--node", "node-2", "--cluster-from", "examples/cluster"),
    ("explain", "vm", "shop/web", "--cluster-from", "examples/cluster"),
    ("explain", "spread", "shop/web", "--cluster-from", "examples/cluster"),
    ("explain", "reason", "selector-conflict"),
]


class Found(msgspec.Struct):
    value: Any


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
)


@given(value=JSON)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reports_are_indented_as_json_writes_them(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with patch("webhook.cli.console.redact", side_effect=lambda plain: plain):
        print_report(Found(value), "json", lambda _: ())

    assert capsys.readouterr().out == json.dumps({"value": value}, indent=2) + "\n"


def on_terminal(*words: str, columns: int = 80, rows: int = 40) -> tuple[str, int]:
    """What a command writes on a terminal, with its colors, and its exit status."""
    argv = [sys.executable, "-m", "webhook", *words]
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    child, terminal = pty.fork()
    if not child:
        os.chdir(ROOT)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execve(sys.executable, argv, {**kept, "TERM": "xterm-256color"})
    written = b""
    while piece := _read(terminal):
        written += piece
    os.close(terminal)
    return written.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # The terminal of a child that has ended.
        return b""


def too_long(text: str, width: int) -> list[str]:
    """The lines that are longer, but for those with a single word that is."""
    return [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1]


@pytest.mark.parametrize(("number", "columns"), [(0, 60), (0, 200), (2, 80), (4, 60), (6, 60)])
def test_lines_fit_the_terminal(number: int, columns: int) -> None:
    command = COMMANDS[number]
    written, _ = on_terminal(*command, columns=columns)
    text = Text.from_ansi(written).plain

    assert too_long(text, min(columns, 100)) == []
    # A second wrapping would leave the ends of lines alone, without their indentation.
    assert text.split() == run(*command).output.split()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:3]))
def test_lines_of_a_file_fit_a_terminal(command: tuple[str, ...]) -> None:
    assert too_long(run(*command).output, WIDTH) == []


def test_a_line_breaks_no_word_and_shows_no_control_character_or_credential() -> None:
    name = "a-very-long-name." * 6
    shown = fill(Paragraph("b\na\x1b[31m password=hunter2"), 80)

    assert fill(Paragraph(f"see {name} there", "", "  ", 4), 40).splitlines() == ["  see", f"    {name}", "    there"]
    assert shown == r"b a\x1b[31m password=<redacted>"
    assert change_line({"path": ["a"], "old": True, "new": {"name": "u1"}}) == 'a: true → {"name": "u1"}'


def test_a_closed_pipe_is_no_answer() -> None:
    """Rich's own console ends with the status of a denial."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "webhook", "explain", "vm", "shop/web", "--cluster-from", "examples/cluster"]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (141, b"")
