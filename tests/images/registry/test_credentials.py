"""Pull secrets from the API server, found as the kubelet finds them."""

from __future__ import annotations

import fnmatch
import json
from base64 import b64encode
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.json_values import JSON_VALUES
from webhook.images.registry import credentials as module
from webhook.images.registry.credentials import (
    DOCKER_CONFIG,
    DOCKER_CONFIG_JSON,
    RegistryCredentials,
    entries_of,
    find_credentials,
)
from webhook.k8s.client.api import ApiConnectionError

ANN = RegistryCredentials("ann", "secret")


def encoded(value: Any) -> str:
    return b64encode(json.dumps(value).encode()).decode()


def secret(auths: Any) -> dict[str, str]:
    return {".dockerconfigjson": encoded({"auths": auths})}


ENTRY = {"auth": b64encode(b"ann:secret").decode()}
PLAIN = {"username": "ann", "password": "secret"}
MINE = secret({"quay.io": ENTRY})


@pytest.mark.parametrize(
    ("kind", "data", "found"),
    [
        (DOCKER_CONFIG_JSON, MINE, [("quay.io", ANN)]),
        (DOCKER_CONFIG_JSON, secret({"quay.io": PLAIN}), [("quay.io", ANN)]),
        (DOCKER_CONFIG, {".dockercfg": encoded({"quay.io": ENTRY})}, [("quay.io", ANN)]),
        *((kind, MINE, []) for kind in ("Opaque", "kubernetes.io/tls", DOCKER_CONFIG)),
    ],
)
def test_both_kinds_of_pull_secrets_are_read_and_no_other(kind: str, data: dict[str, str], found: list[Any]) -> None:
    assert entries_of(kind, data) == found


@pytest.mark.control("wildcards-in-pull-secrets")
@pytest.mark.parametrize(
    "data",
    [
        *({}, {".dockerconfigjson": "%%%"}, {".dockerconfigjson": b64encode(b"[" * 100_000).decode()}),
        *({".dockerconfigjson": encoded([])}, secret([]), secret({"quay.io": "x"})),
        *(secret({"quay.io": {"auth": auth}}) for auth in ("%%%", b64encode(b"no-colon").decode())),
        *(secret({"quay.io": {"username": name, "password": 2}}) for name in (1, "ann")),
        # The length of credentials is bounded.
        *(secret({"quay.io": PLAIN | {part: "a" * 20_000}}) for part in PLAIN),
    ],
)
def test_what_is_no_pull_secret_has_no_credentials(data: dict[str, str]) -> None:
    assert entries_of(DOCKER_CONFIG_JSON, data) == []


@given(JSON_VALUES, st.sampled_from([DOCKER_CONFIG, DOCKER_CONFIG_JSON]))
def test_whatever_a_secret_holds_it_is_read_or_left_out(value: Any, kind: str) -> None:
    for data in ({".dockerconfigjson": encoded(value)}, secret(value), {".dockercfg": encoded({"quay.io": value})}):
        entries_of(kind, data)


def test_the_number_of_entries_is_bounded() -> None:
    many = secret({f"r{number}.example": ENTRY for number in range(module.MAX_ENTRIES * 2)})
    assert len(entries_of(DOCKER_CONFIG_JSON, many)) == module.MAX_ENTRIES


@pytest.mark.control("credentials-to-other-hosts")
@pytest.mark.parametrize(
    ("key", "registry", "repository", "matches"),
    [
        *(("quay.io", "quay.io", "a/b", True), ("https://quay.io", "quay.io", "a/b", True)),
        ("https://quay.io/v2/", "quay.io", "a/b", True),
        *(("https://index.docker.io/v1/", "docker.io", "library/fedora", True), ("quay.io/a", "quay.io", "a/b", True)),
        *(("quay.io/a", "quay.io", "ab", False), ("quay.io/a/b", "quay.io", "a", False)),
        *(("*.example.com", "registry.example.com", "a", True), ("*.example.com", "a.b.example.com", "a", False)),
        *(("*", "quay.io", "a", False), ("quay.io", "quay.io:5000", "a", False)),
        *(("quay.io:5000", "quay.io:5000", "a", True), ("quay.io", "evil-quay.io", "a", False)),
        *(("quay.io", "quay.io.evil.example", "a", False), ("", "quay.io", "a", False)),
    ],
)
def test_credentials_are_for_the_registry_that_they_name(
    key: str, registry: str, repository: str, matches: bool
) -> None:
    assert (find_credentials([(key, ANN)], registry, repository) == ANN) is matches


def test_the_longest_path_counts_first() -> None:
    bob = RegistryCredentials("bob", "other")
    keyring = [("quay.io", ANN), ("quay.io/team/disks", bob)]
    assert [find_credentials(keyring, "quay.io", path) for path in ("team/disks/fedora", "team/x")] == [bob, ANN]


@pytest.mark.control("wildcards-in-pull-secrets")
def test_a_key_that_no_registry_can_match_is_not_looked_at() -> None:
    """A pattern of this length takes seconds to prepare, and a tenant writes it."""
    fnmatch._compile_pattern.cache_clear()  # type: ignore[attr-defined]
    assert find_credentials([("a*" * 10_000 + ".io", ANN)], "quay.io", "a") is None
    assert fnmatch._compile_pattern.cache_info().currsize == 0  # type: ignore[attr-defined]


@pytest.mark.control("credentials-to-other-hosts")
def test_no_text_shows_a_password() -> None:
    assert "secret" not in repr(ANN)
    assert "secret" not in str([ANN])
    assert ANN.basic() == "Basic " + b64encode(b"ann:secret").decode()


class ApiOfSecrets:
    def __init__(self, status: int = 200, body: bytes = b"", kind: str = DOCKER_CONFIG_JSON) -> None:
        self.status, self.body = status, body or json.dumps({"type": kind, "data": MINE}).encode()
        self.paths: list[str] = []
        self.now = 0.0
        self.secrets = module.PullSecrets(cast("Any", self), lambda: self.now)

    async def get(self, path: str) -> tuple[int, bytes]:
        self.paths.append(path)
        if not self.status:
            raise ApiConnectionError("no connection")
        return self.status, self.body


async def test_the_secrets_of_the_pods_own_namespace_are_read_and_names_are_escaped() -> None:
    api = ApiOfSecrets()
    keyring = await api.secrets.keyring("shop", ("one", "two", "a?x=1#y"))
    assert find_credentials(keyring, "quay.io", "a") == ANN
    assert api.paths == [f"/api/v1/namespaces/shop/secrets/{name}" for name in ("one", "two", "a%3Fx%3D1%23y")]


@pytest.mark.control("pull-secrets-of-others")
@pytest.mark.parametrize(
    ("namespace", "name"),
    [("shop", "../../kube-system/secrets/x"), ("..", "x"), ("shop", "a/b"), ("shop", "%2e%2e"), ("", "x")],
)
async def test_no_name_leaves_the_namespace(namespace: str, name: str) -> None:
    api = ApiOfSecrets()
    assert not await api.secrets.keyring(namespace, (name,))
    assert api.paths == []


@pytest.mark.parametrize(
    ("status", "body"), [(403, b"{}"), (404, b"{}"), (0, b""), (200, b"no json"), (200, b"[" * 9999)]
)
async def test_what_cannot_be_read_is_counted_and_done_without(status: int, body: bytes) -> None:
    api = ApiOfSecrets(status, body)
    assert not await api.secrets.keyring("shop", ("one",))
    assert api.secrets.failures == 1


async def test_a_secret_of_another_type_is_not_used() -> None:
    assert not await ApiOfSecrets(kind="Opaque").secrets.keyring("shop", ("one",))


async def test_a_secret_is_kept_for_a_while_for_its_namespace_within_bounds() -> None:
    api = ApiOfSecrets()
    for namespace in ("shop", "shop", "other"):
        await api.secrets.keyring(namespace, ("one",))
    assert len(api.paths) == 2
    api.now += module.KEPT_SECONDS
    await api.secrets.keyring("shop", ("one",))
    assert len(api.paths) == 3
    for number in range(600):
        await api.secrets.keyring("shop", (f"s{number}",))
    assert api.secrets._kept.currsize == 256
