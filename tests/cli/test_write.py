from __future__ import annotations

import ast
from pathlib import Path

import pytest
from rich.text import Text

from webhook.cli import write
from webhook.cli.show import console

SOURCES = sorted((Path(__file__).parents[2] / "webhook" / "cli").rglob("*.py"))


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


def test_a_console_obeys_its_own_styles_only(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(Text.assemble(("a\x1b[2J", "bold"), "\u202eb"))
    console().print("[bold]c\x1b[2J[/bold]")

    assert capsys.readouterr().out == "a\\x1b[2J\\u202eb\nc\\x1b[2J\n"
