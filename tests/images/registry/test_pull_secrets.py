"""Pull secrets from the API server."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from webhook.images.registry.credentials import DOCKER_CONFIG_JSON, RegistryCredentials
from webhook.images.registry.pull_secrets import KEPT_SECONDS, PullSecrets
from webhook.k8s.client.api import ApiConnectionError

ANN = RegistryCredentials("ann", "secret")


def secret(kind: str = DOCKER_CONFIG_JSON) -> bytes:
    auths = {"auths": {"quay.io": {"username": "ann", "password": "secret"}}}
    data = {".dockerconfigjson": b64encode(json.dumps(auths).encode()).decode()}
    return json.dumps({"type": kind, "data": data}).encode()


class ApiOfSecrets:
    def __init__(self, status: int = 200, body: bytes = b"") -> None:
        self.status, self.body = status, body or secret()
        self.paths: list[str] = []
        self.now = 0.0

    async def request(self, method: str, path: str, *_: Any, **__: Any) -> tuple[int, bytes]:
        assert method == "GET"
        self.paths.append(path)
        if not self.status:
            raise ApiConnectionError("no connection")
        return self.status, self.body

    def clock(self) -> float:
        return self.now


async def test_the_secrets_of_the_pods_own_namespace_are_read() -> None:
    api = ApiOfSecrets()
    keyring = await PullSecrets(api, api.clock).keyring("shop", ("one", "two"))
    assert keyring.find("quay.io", "a") == ANN
    assert api.paths == [f"/api/v1/namespaces/shop/secrets/{name}" for name in ("one", "two")]


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("shop", "../../kube-system/secrets/x"), ("..", "x"), ("shop", "a/b"), ("shop", "%2e%2e"), ("", "x")],
)
async def test_no_name_leaves_the_namespace(namespace: str, name: str) -> None:
    api = ApiOfSecrets()
    assert not await PullSecrets(api, api.clock).keyring(namespace, (name,))
    assert api.paths == []


async def test_names_are_escaped() -> None:
    api = ApiOfSecrets()
    await PullSecrets(api, api.clock).keyring("shop", ("a?x=1#y",))
    assert api.paths == ["/api/v1/namespaces/shop/secrets/a%3Fx%3D1%23y"]


@pytest.mark.parametrize(
    ("status", "body"), [(403, b"{}"), (404, b"{}"), (0, b""), (200, b"no json"), (200, b"[" * 9999)]
)
async def test_what_cannot_be_read_is_counted_and_done_without(status: int, body: bytes) -> None:
    api = ApiOfSecrets(status, body)
    secrets = PullSecrets(api, api.clock)
    assert not await secrets.keyring("shop", ("one",))
    assert secrets.failures == 1


async def test_a_secret_of_another_type_is_not_used() -> None:
    api = ApiOfSecrets(body=secret("Opaque"))
    assert not await PullSecrets(api, api.clock).keyring("shop", ("one",))


async def test_a_secret_is_kept_for_a_while_for_its_namespace() -> None:
    api = ApiOfSecrets()
    secrets = PullSecrets(api, api.clock)
    for namespace in ("shop", "shop", "other"):
        await secrets.keyring(namespace, ("one",))
    assert len(api.paths) == 2
    api.now += KEPT_SECONDS
    await secrets.keyring("shop", ("one",))
    assert len(api.paths) == 3


async def test_what_is_kept_is_bounded() -> None:
    api = ApiOfSecrets()
    secrets = PullSecrets(api, api.clock)
    for number in range(600):
        await secrets.keyring("shop", (f"s{number}",))
    assert len(secrets._kept) == 256
