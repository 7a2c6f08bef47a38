"""Names out of other people's objects, before they become URLs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from webhook.k8s.client.api import NO_QUERY, fetch_body
from webhook.k8s.client.list_pages import fetch_list
from webhook.k8s.resources import PENDING_PODS

LONGEST = 253


class Recorder:
    """A transport that has no object, and remembers its requests."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def get(self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = 0) -> tuple[int, bytes]:
        self.paths.append(path)
        return 404, b"{}"


@pytest.mark.parametrize("name", ["x" * (LONGEST + 1), "x" * 1_000_000, "\u00e9" * (LONGEST + 1)])
async def test_no_object_has_a_name_so_long_so_nobody_is_asked(name: str) -> None:
    transport: Any = Recorder()

    assert await fetch_body(transport, PENDING_PODS, "demo", name, 1.0) is None
    assert await fetch_body(transport, PENDING_PODS, name, "pod", 1.0) is None
    assert await fetch_list(transport, PENDING_PODS, name, "", 1.0) == ()
    assert transport.paths == []


async def test_the_longest_name_is_asked_for() -> None:
    transport: Any = Recorder()

    assert await fetch_body(transport, PENDING_PODS, "demo", "x" * LONGEST, 1.0) is None
    assert transport.paths == [f"/api/v1/namespaces/demo/pods/{'x' * LONGEST}"]
