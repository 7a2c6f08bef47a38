from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.cli.yamltext import dump
from webhook.k8s.yaml_documents import parse_documents


@pytest.mark.parametrize(
    "text",
    ["y", "N", "on", "1e5", "12E45", ".5e3", "-1_0e+5", "0o17", "0x1f", "017", "1_000", "~", "0B0", "-0_X1F", "1e_+5"],
)
def test_text_stays_text(text: str) -> None:
    (document,) = parse_documents(dump([{text: text}]), "dumped")

    assert document.value == {text: text}
    assert "'" in dump([text])


@given(st.text("0123456789_.eExXoObB+-yYnN", max_size=8))
def test_whatever_looks_like_a_number_stays_text(text: str) -> None:
    (document,) = parse_documents(dump([[text]]), "dumped")

    assert document.value == [text]


@given(st.text(" \n\tab:#-|>'\"%{", max_size=20))
def test_several_lines_stay_what_they_are(text: str) -> None:
    (document,) = parse_documents(dump([{"key": [text]}]), "dumped")

    assert document.value == {"key": [text]}


def test_several_lines_are_shown_as_such() -> None:
    assert dump([{"settings": "a: 1\nb:\n  c: 2\n"}]) == "settings: |\n  a: 1\n  b:\n    c: 2\n"


def test_numbers_and_plain_text_need_no_quotes() -> None:
    documents = [{"name": "web", "port": 443, "share": 1e20, "on": True}, {"second": None}]

    assert "'web'" not in dump(documents)
    assert list(yaml.safe_load_all(dump(documents))) == documents
