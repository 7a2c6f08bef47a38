"""Pull secrets from the API server: those that a pod names, in the pod's own namespace.

The API server's plugin ServiceAccount has put the pull secrets of the pod's service account into the pod already, if
the pod has none of its own. So nothing is read but the Secrets that the kubelet of the pod's node would read.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from webhook.images.registry.credentials import Keyring, RegistryCredentials, entries_of
from webhook.k8s.client.api import ApiConnectionError, Requests, is_segment

_SECONDS: Final = 5.0
# How long credentials are kept: a replaced secret counts after that.
KEPT_SECONDS: Final = 60.0
_MAX_KEPT: Final = 256

Entries = list[tuple[str, RegistryCredentials]]


class _PullSecret(msgspec.Struct):
    type: str = ""
    data: dict[str, str] | None = None


_decode: Final = msgspec.json.Decoder(_PullSecret).decode


class PullSecrets:
    """Reads pull secrets. It needs the permission to get these Secrets.

    Args:
        api: the connection to the API server.
        clock: the source of monotonic time.

    Attributes:
        failures: Secrets that could not be read; the registry is then called without them.
    """

    def __init__(self, api: Requests, clock: Callable[[], float] = time.monotonic) -> None:
        self._api: Final = api
        self._clock: Final = clock
        self._kept: Final[OrderedDict[tuple[str, str], tuple[float, Entries]]] = OrderedDict()
        self.failures = 0

    async def keyring(self, namespace: str, names: tuple[str, ...]) -> Keyring:
        """The credentials in Secrets of a namespace.

        Args:
            namespace: the pod's namespace.
            names: the Secrets that the pod names.
        """
        return Keyring([entry for name in names for entry in await self._entries(namespace, name)])

    async def _entries(self, namespace: str, name: str) -> Entries:
        until, entries = self._kept.get((namespace, name), (0.0, []))
        if self._clock() < until:
            return entries
        entries = await self._read(namespace, name)
        self._kept[namespace, name] = self._clock() + KEPT_SECONDS, entries
        self._kept.move_to_end((namespace, name))
        if len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
        return entries

    async def _read(self, namespace: str, name: str) -> Entries:
        if not is_segment(namespace) or not is_segment(name):
            return []
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets/{quote(name, safe='')}"
        try:
            status, body = await self._api.request("GET", path, seconds=_SECONDS)
            secret = _decode(body) if status == 200 else None
        except (ApiConnectionError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            secret = None
        if secret is None:
            self.failures += 1
            return []
        return entries_of(secret.type, secret.data or {})
