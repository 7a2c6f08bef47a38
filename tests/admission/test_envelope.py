"""The envelope is what a parser without limits would find, for whatever stands in the objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.json_values import JSON_VALUES
from webhook.admission import wire as module
from webhook.admission.wire import envelope
from webhook.k8s.json_tree import RUN

READ = ("uid", "kind", "resource", "subResource", "name", "namespace", "operation", "userInfo", "dryRun")
_KEYS = st.sampled_from([*READ, "object", "oldObject", "options", "requestKind", "x", 'a"b', "request", "\u00e9"])


def dumped(pairs: list[tuple[str, Any]], indent: int | None = None) -> str:
    """An object with its members in this order, duplicates among them."""
    space = "\n " * bool(indent)
    return "{" + ",".join(f"{space}{json.dumps(k)}{space}:{space}{v}" for k, v in pairs) + space + "}"


def plainly(value: dict[str, Any], kept: tuple[str, ...], cut: Any) -> dict[str, Any]:
    return {k: v if k in kept or not isinstance(v, cut) else None for k, v in value.items()}


@given(
    st.lists(st.tuples(_KEYS, JSON_VALUES), max_size=8),
    st.lists(st.tuples(st.sampled_from(["apiVersion", "kind", "x", "request"]), JSON_VALUES), max_size=3),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_it_is_what_an_ordinary_parser_finds(
    members: list[tuple[str, Any]], around: list[tuple[str, Any]], last: bool, indent: int | None
) -> None:
    request = dumped([(key, json.dumps(value, indent=indent)) for key, value in members], indent)
    others = [(key, json.dumps(value, indent=indent)) for key, value in around if key != "request"]
    body = dumped([*others, ("request", request)] if last else [("request", request), *others], indent)

    found = envelope(body.encode())

    expected = plainly(json.loads(body), ("request",), dict | list)
    expected["request"] = plainly(expected["request"], READ, dict | list | str)
    assert found.whole
    assert json.loads(found.text) == expected


def body(value: bytes, after: bytes = b'"dryRun":true,"options":{"kind":"CreateOptions"}') -> bytes:
    return b'{"kind":"AdmissionReview","request":{"uid":"u","object":' + value + b"," + after + b"}}"


@pytest.mark.parametrize("levels", [1, 900, 1100, 10_000, 40_000])
@pytest.mark.parametrize(("opener", "closer"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a" : ', b"}]")])
def test_any_depth(levels: int, opener: bytes, closer: bytes) -> None:
    found = envelope(body(opener * levels + b"1" + closer * levels))

    assert json.loads(found.text) == json.loads(body(b"null", b'"dryRun":true,"options":null'))
    assert found.whole
    assert found.depths["object"] == levels * (2 if opener.startswith(b"[{") else 1)


@pytest.mark.parametrize(
    "value",
    [
        b'"\xff"',
        b'{"a":"\xff\xfe"}',
        b'{"a":NaN}',
        b"{\x00}",
        b'["\\\\","]","\\"","\\u005d"]',
        b'{"a":1e999999}',
        b"[1 2}",
    ],
)
def test_what_is_in_an_object_is_not_looked_at(value: bytes) -> None:
    assert json.loads(envelope(body(value)).text) == json.loads(body(b"null", b'"dryRun":true,"options":null'))


@pytest.mark.parametrize("end", [b"", b"[", b'["', b'{"a":[]', b'{"a":"\\"}'])
def test_an_object_without_an_end_is_in_no_review(end: bytes) -> None:
    found = envelope(b'{"request":{"uid":"u","object":[' + end)

    assert (found.text, found.whole) == (b"", False)


def test_an_endless_object_ends_the_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 100)

    found = envelope(body(b"[" + b"[1]," * 1000 + b"1]"))

    assert not found.whole
    assert json.loads(found.text) == {"kind": "AdmissionReview", "request": {"uid": "u", "object": None}}


@pytest.mark.parametrize("piece", [b'"object":[[1],[1],[1]],', b'"kind":[1],', b'"uid":"u",'])
def test_steps_are_bounded_for_the_whole_body(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 1000)
    steps = 0

    class CountingReader:
        def __init__(self, pattern: Any) -> None:
            self.pattern = pattern

        def match(self, *arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            return self.pattern.match(*arguments)

    monkeypatch.setattr(module, "RUN", CountingReader(RUN))
    monkeypatch.setattr(module, "_TOKEN", CountingReader(module._TOKEN))

    found = envelope(b'{"request":{' + piece * 5000 + b'"uid":"u"}}')

    assert steps <= 1001
    assert not found.whole


@given(st.binary(max_size=80) | st.text(st.sampled_from('[]{}"\\,: aruid'), max_size=60).map(str.encode))
def test_any_bytes_come_to_an_end(data: bytes) -> None:
    for each in (data, body(data), b'{"request":' + data):
        assert len(envelope(each).text) <= 5 * len(each)
