"""The identity of a user; `test_live` covers the user's permissions, which are requested in the same way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, running, why
from webhook.admission.wire import UserInfo
from webhook.cluster.access import authenticate
from webhook.errors import Unavailable
from webhook.facts import NotRead, TokenKey
from webhook.k8s.client.transport import KubernetesTransport, connect

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
KEY = TokenKey("SECRET-TOKEN")


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[tuple[FakeApiServer, KubernetesTransport]]:
    server = FakeApiServer()
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config"))
        try:
            yield server, transport
        finally:
            await transport.close()


def says(server: FakeApiServer, **status: Any) -> None:
    server.answer(PATH, lambda _: web.json_response({"status": status}, status=201))


async def test_whose_token_it_is(asked: tuple[FakeApiServer, KubernetesTransport]) -> None:
    server, transport = asked
    user = {"username": "alice", "uid": "1", "groups": ["devs"], "extra": {"scopes": ["a"]}}
    says(server, authenticated=True, user=user)

    assert await authenticate(transport, KEY, 5) == UserInfo("alice", "1", ["devs"], {"scopes": ["a"]})
    assert json.loads(server.requests(PATH)[0].body) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "SECRET-TOKEN"},
    }


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False, "error": "it has expired"},
        {"authenticated": False, "user": {"username": "alice"}},
        {"authenticated": True},
        {},
    ],
)
async def test_tokens_that_are_not_accepted(
    asked: tuple[FakeApiServer, KubernetesTransport], status: dict[str, Any]
) -> None:
    says(asked[0], **status)

    assert await authenticate(asked[1], KEY, 5) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (web.Response(status=403), "grant create on tokenreviews.authentication.k8s.io"),
        (web.Response(status=500), "answered 500 to create tokenreviews"),
        (web.Response(status=201, text="{}"), "the API server's TokenReview cannot be decoded"),
        (web.Response(status=201, text='{"status": {"authenticated": "yes"}}'), "cannot be decoded"),
    ],
)
async def test_what_can_not_be_learnt(
    asked: tuple[FakeApiServer, KubernetesTransport], answer: web.Response, why: str
) -> None:
    asked[0].answer(PATH, lambda _: answer)
    found = await authenticate(asked[1], KEY, 5)

    assert isinstance(found, Unavailable)
    assert why in found.why
    assert "SECRET" not in found.why


async def test_too_late_or_not_there(asked: tuple[FakeApiServer, KubernetesTransport]) -> None:
    late = await authenticate(asked[1], KEY, 0.0)
    await asked[1].close()
    closed = await authenticate(asked[1], KEY, 5)

    assert "timed out after" in why(late)
    assert isinstance(closed, Unavailable)
    assert "closed" in closed.why


def test_no_text_shows_the_token() -> None:
    assert "SECRET" not in f"{KEY} {KEY!r} {NotRead((KEY,))} {NotRead((KEY,))!r}"
