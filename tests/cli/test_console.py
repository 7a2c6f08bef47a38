"""Text fits the terminal, whatever its width, and stays readable."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.text import Text

from tests.cli.runner import run
from tests.cli.terminal import Terminal
from webhook.cli import write
from webhook.cli.console import WIDTH, Paragraph, change_line, console, fill, print_report
from webhook.cli.write import dump
from webhook.k8s.yaml_documents import parse_documents

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
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_reports_are_indented_as_json_writes_them(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with patch("webhook.cli.console.redact", side_effect=lambda plain: plain):
        print_report(Found(value), "json", lambda _: ())

    assert capsys.readouterr().out == json.dumps({"value": value}, indent=2) + "\n"


def on_terminal(*words: str, columns: int = 80, rows: int = 40) -> tuple[str, int]:
    """What a command writes on a terminal, with its colors, and its exit status."""
    argv = [sys.executable, "-m", "webhook", *words]
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with Terminal(argv, {**kept, "TERM": "xterm-256color"}, size=(rows, columns)) as terminal:
        status = terminal.end()
    return terminal.shown.decode().replace("\r\n", "\n"), status


def too_long(text: str, width: int) -> list[str]:
    """The lines that are longer, but for those with a single word that is."""
    return [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1]


@pytest.mark.parametrize(("number", "columns"), [(0, 60), (0, 200), (2, 80), (4, 60), (6, 60)])
def test_lines_fit_the_terminal(number: int, columns: int) -> None:
    command = COMMANDS[number]
    written, _ = on_terminal(*command, columns=columns)
    # What applies is one line on standard error.
    text = re.sub(r"(?m)^settings: .*\n", "", Text.from_ansi(written).plain)
    assert too_long(text, min(columns, 100)) == []
    # A second wrapping would leave the ends of lines alone, without their indentation.
    assert text.split() == run(*command).stdout.split()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:3]))
def test_lines_of_a_file_fit_a_terminal(command: tuple[str, ...]) -> None:
    assert too_long(run(*command).stdout, WIDTH) == []


def test_a_line_breaks_no_word_and_shows_no_control_character_or_credential() -> None:
    name = "a-very-long-name." * 6
    shown = fill(Paragraph("b\na\x1b[31m password=hunter2"), 80)
    # Below a name that is as wide as the terminal, the other lines still have room.
    after = fill(Paragraph("a reason of several words, which goes on", "", f"{'n' * 70}  "), 80).splitlines()
    assert [len(line) - len(line.lstrip()) for line in after[1:]] == [40]
    assert fill(Paragraph(f"see {name} there", "", "  ", 4), 40).splitlines() == ["  see", f"    {name}", "    there"]
    assert shown == r"b a\x1b[31m password=<redacted>"
    assert change_line({"path": ["a"], "old": True, "new": {"name": "u1"}}) == 'a: true → {"name": "u1"}'


def test_a_closed_pipe_is_no_answer() -> None:
    """Rich's own console ends with the status of a denial."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "webhook", *COMMANDS[4]]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (141, b"")


SOURCES = sorted((Path(__file__).parents[2] / "webhook" / "cli").rglob("*.py"))


@pytest.mark.control("text-on-a-terminal")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_nothing_is_printed_but_by_those_who_make_it_visible(source: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call)]
    names = {ast.unparse(call.func) for call in calls}
    assert "print" not in names
    assert source.name == "write.py" or not names & {"click.echo", "click.secho"}
    assert source.name == "show.py" or "Console" not in names


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    write.line("a\x1b[2J\nb\u202e")
    write.error("c\x9b password=hunter2")
    write.data("d\n")
    write.data("e")

    out, err = capsys.readouterr()
    assert out == "a\\x1b[2J\nb\\u202e\nd\ne\n"
    assert err == "c\\x9b password=<redacted>\n"


@pytest.mark.control("text-on-a-terminal")
def test_a_console_obeys_its_own_styles_only(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(Text.assemble(("a\x1b[2J", "bold"), "\u202eb"))
    console().print("[bold]c\x1b[2J[/bold]")
    assert capsys.readouterr().out == "a\\x1b[2J\\u202eb\nc\\x1b[2J\n"


@pytest.mark.parametrize(
    "text",
    ["y", "N", "on", "1e5", "12E45", ".5e3", "-1_0e+5", "0o17", "0x1f", "017", "1_000", "~", "0B0", "-0_X1F", "1e_+5"],
)
def test_text_stays_text(text: str) -> None:
    (document,) = parse_documents(dump([{text: text}]), "dumped")
    assert document.value == {text: text}
    assert "'" in dump([text])


@given(st.text("0123456789_.eExXoObB+-yYnN", max_size=8) | st.text(" \n\tab:#-|>'\"%{", max_size=20))
def test_whatever_looks_like_a_number_or_has_lines_stays_text(text: str) -> None:
    (document,) = parse_documents(dump([{"key": [text]}]), "dumped")
    assert document.value == {"key": [text]}


def test_lines_are_shown_as_such_and_numbers_and_plain_text_need_no_quotes() -> None:
    assert dump([{"settings": "a: 1\nb:\n  c: 2\n"}]) == "settings: |\n  a: 1\n  b:\n    c: 2\n"
    documents = [{"name": "web", "port": 443, "share": 1e20, "on": True}, {"second": None}]
    assert "'web'" not in dump(documents)
    assert list(yaml.safe_load_all(dump(documents))) == documents
