from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from webhook.cli import write
from webhook.cli.console import console
from webhook.cli.write import dump
from webhook.k8s.yaml_documents import parse_documents

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
