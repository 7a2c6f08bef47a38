"""The fuzzing corpus over real TLS: an HTTP status of its own, never 500, and a server that goes on."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.fuzzer import CORPUS, inputs
from tests.fuzz.world import FuzzWorld
from tests.server.conftest import Start
from webhook.review.endpoints import BY_PATH

_BODIES = {file.name: file.read_bytes() for file in inputs(CORPUS, "reviews")}


@pytest.mark.parametrize("path", sorted(BY_PATH))
async def test_no_body_is_answered_with_500(start: Start, path: str) -> None:
    server = await start(FuzzWorld(BY_PATH[path].stage.replace("observe", "warn"), "defaults", "known"))

    for name, body in _BODIES.items():
        status, text = await server.post(path, body)
        assert status in (200, 400), (name, text)
        if status == 200:
            assert json.loads(text)["response"]["uid"], name
        else:
            assert text.count("\n") == 1, name
    assert server.counted.crashes == []
    assert server.kept.errors == []
