from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.json_values import JSON_VALUES, plainly
from webhook.k8s.json_depth import flatten


@given(JSON_VALUES, st.integers(0, 5), st.sampled_from([None, 1]), st.booleans())
def test_it_is_what_recursion_would_make_of_it(value: Any, levels: int, indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass")

    flat = flatten(body, levels)

    assert json.loads(flat.decode(errors="surrogatepass")) == plainly(value, levels)


def test_depth_costs_nothing() -> None:
    for opener, closer in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]"), (b'{"a" : [ ', b" ] }")):
        body = opener * 50_000 + b"1" + closer * 50_000

        assert msgspec.json.decode(flatten(body, 5)) is not None


@given(st.binary(max_size=60) | st.text(st.sampled_from('[]{}"\\,: a'), max_size=40).map(str.encode))
def test_any_bytes_come_to_an_end(body: bytes) -> None:
    assert len(flatten(body, 2)) <= len(body) + 4 * body.count(b"[") + 4 * body.count(b"{")
