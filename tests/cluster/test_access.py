"""The identity of a user; `test_live` covers the user's permissions, which are requested in the same way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, why
from webhook.admission.wire import UserInfo
from webhook.cluster.access import authenticate
from webhook.facts import NotInMemory, TokenKey
from webhook.k8s.client.transport import KubernetesTransport

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
KEY = TokenKey("SECRET-TOKEN")


def says(server: FakeApiServer, **status: Any) -> None:
    server.answer(PATH, lambda _: web.json_response({"status": status}, status=201))


async def test_whose_token_it_is(server: FakeApiServer, transport: KubernetesTransport) -> None:
    user = {"username": "alice", "uid": "1", "groups": ["devs"], "extra": {"scopes": ["a"]}}
    says(server, authenticated=True, user=user)
    assert await authenticate(transport, KEY, 5) == UserInfo("alice", "1", ["devs"], {"scopes": ["a"]})
    head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    assert json.loads(server.requests(PATH)[0].body) == head | {"spec": {"token": "SECRET-TOKEN"}}


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False, "error": "it has expired"},
        {"authenticated": False, "user": {"username": "alice"}},
        *({"authenticated": True}, {}),
    ],
)
async def test_tokens_that_are_not_accepted(
    server: FakeApiServer, transport: KubernetesTransport, status: dict[str, Any]
) -> None:
    says(server, **status)
    assert await authenticate(transport, KEY, 5) is None


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (web.Response(status=403), "grant create on tokenreviews.authentication.k8s.io"),
        (web.Response(status=500), "answered 500 to create tokenreviews"),
        (web.Response(status=201, text="{}"), "the API server's TokenReview cannot be decoded"),
        (web.Response(status=201, text='{"status": {"authenticated": "yes"}}'), "cannot be decoded"),
    ],
)
async def test_what_can_not_be_learnt(
    server: FakeApiServer, transport: KubernetesTransport, answer: web.Response, cause: str
) -> None:
    server.answer(PATH, lambda _: answer)
    told = why(await authenticate(transport, KEY, 5))
    assert cause in told and "SECRET" not in told


async def test_too_late_or_not_there(transport: KubernetesTransport) -> None:
    assert "timed out after" in why(await authenticate(transport, KEY, 0.0))
    await transport.close()
    assert "closed" in why(await authenticate(transport, KEY, 5))


def test_no_text_shows_the_token() -> None:
    assert "SECRET" not in f"{KEY} {KEY!r} {NotInMemory((KEY,))} {NotInMemory((KEY,))!r}"
