"""Credentials for registries: the pull secrets that a pod names, read from the API server.

The formats, and how the credentials for an image are found, are those of the kubelet (``pkg/credentialprovider`` of
Kubernetes): a key is a host, perhaps with a port, a path and ``*`` within the parts of the host; of several keys the
longest path counts first.

The API server's plugin ServiceAccount has put the pull secrets of the pod's service account into the pod already, if
the pod has none of its own. So nothing is read but the Secrets that the kubelet of the pod's node would read.
"""

from __future__ import annotations

import binascii
import fnmatch
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import encode_basic_auth
from cachetools import TTLCache

from webhook.images.manifests import DOCKER_HUB
from webhook.k8s.client.api import Transport, fetch
from webhook.k8s.paths import is_segment
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object

DOCKER_CONFIG_JSON: Final = "kubernetes.io/dockerconfigjson"
DOCKER_CONFIG: Final = "kubernetes.io/dockercfg"
KEYS: Final = {DOCKER_CONFIG_JSON: ".dockerconfigjson", DOCKER_CONFIG: ".dockercfg"}
# A Secret has 1 MiB at most; of one with more entries than this only the first ones count.
MAX_ENTRIES: Final = 256
# A name of the DNS, a colon and a port. Patterns of tenants that are longer match nothing, and take long to prepare.
_MAX_HOST: Final = 259
# Tokens of clouds have some KB.
_MAX_CREDENTIAL: Final = 16_384
_HUB_NAMES: Final = ("index.docker.io", "registry-1.docker.io", DOCKER_HUB)


class RegistryCredentials(msgspec.Struct, frozen=True):
    """A user name and a password. Neither has a readable representation, so that no log line shows them."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "RegistryCredentials(...)"

    def basic(self) -> str:
        """The value of the ``Authorization`` header for Basic authentication."""
        return encode_basic_auth(self.username, self.password)


# The credentials of one or several pull secrets by key, as the secrets have them.
Keyring = list[tuple[str, RegistryCredentials]]


def find_credentials(keyring: Keyring, registry: str, repository: str) -> RegistryCredentials | None:
    """The credentials for a repository; None where the secrets have none."""
    entries = [(*_split(key), credentials) for key, credentials in keyring]
    # The longest path counts first.
    for host, path, credentials in sorted(entries, key=lambda entry: len(entry[1]), reverse=True):
        is_there = len(host) <= _MAX_HOST and _host_matches(host, registry)
        if is_there and (not path or f"{repository}/".startswith(f"{path}/")):
            return credentials
    return None


def entries_of(kind: str, data: Mapping[str, str]) -> Keyring:
    """The entries of a pull secret of a type, by its ``data`` in base64; whatever is not valid in it is left out."""
    key = KEYS.get(kind)
    if key is None:
        return []
    try:
        decoded = msgspec.json.decode(b64decode(data.get(key, "")))
    except (ValueError, RecursionError):
        return []
    auths = decoded.get("auths") if isinstance(decoded, dict) and kind == DOCKER_CONFIG_JSON else decoded
    if not isinstance(auths, dict):
        return []
    entries = ((host, _credentials(entry)) for host, entry in list(auths.items())[:MAX_ENTRIES])
    return [(host, credentials) for host, credentials in entries if credentials]


def _credentials(entry: Any) -> RegistryCredentials | None:
    if not isinstance(entry, dict):
        return None
    username, password = entry.get("username"), entry.get("password")
    if not (username and password) and isinstance(entry.get("auth"), str):
        try:
            username, _, password = b64decode(entry["auth"]).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
    if not (isinstance(username, str) and isinstance(password, str) and username and password):
        return None
    # A colon would end the name (RFC 7617).
    is_sane = max(len(username), len(password)) <= _MAX_CREDENTIAL and ":" not in username
    return RegistryCredentials(username, password) if is_sane else None


def _split(key: str) -> tuple[str, str]:
    """Host and path of a key; Docker's own keys are URLs with the version of the API."""
    bare = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    host, _, path = bare.partition("/")
    host = DOCKER_HUB if host.lower() in _HUB_NAMES else host.lower()
    return host, "" if path in ("v1", "v2") else path


def _host_matches(pattern: str, registry: str) -> bool:
    pattern_host, _, pattern_port = pattern.partition(":")
    host, _, port = registry.partition(":")
    pattern_parts, parts = pattern_host.split("."), host.split(".")
    if pattern_port != port or len(pattern_parts) != len(parts):
        return False
    return all(fnmatch.fnmatchcase(part, glob) for part, glob in zip(parts, pattern_parts, strict=True))


_SECONDS: Final = 5.0
# How long credentials are kept: a replaced secret counts after that.
KEPT_SECONDS: Final = 60.0
_MAX_KEPT: Final = 256


class _PullSecret(Object, frozen=True):
    type: str = ""
    data: dict[str, str] | None = None


_SECRETS: Final = Resource("", "v1", "secrets", "Secret", True, _PullSecret)


class PullSecrets:
    """Reads pull secrets, which it needs the permission to get.

    Args:
        api: the connection to the API server.
        clock: the source of monotonic time.

    Attributes:
        failures: Secrets that could not be read; the registry is then called without them.
    """

    def __init__(self, api: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self._api: Final = api
        self._kept: Final = TTLCache[tuple[str, str], Keyring](_MAX_KEPT, KEPT_SECONDS, clock)
        self.failures = 0

    async def keyring(self, namespace: str, names: tuple[str, ...]) -> Keyring:
        """The credentials in Secrets of a namespace."""
        return [entry for name in names for entry in await self._entries(namespace, name)]

    async def _entries(self, namespace: str, name: str) -> Keyring:
        entries = self._kept.get((namespace, name))
        if entries is None:
            entries = self._kept[namespace, name] = await self._read(namespace, name)
        return entries

    async def _read(self, namespace: str, name: str) -> Keyring:
        if not is_segment(namespace) or not is_segment(name):
            return []
        secret = await fetch(self._api, _SECRETS, namespace, name, _SECONDS)
        if not isinstance(secret, _PullSecret):
            self.failures += 1
            return []
        return entries_of(secret.type, secret.data or {})
