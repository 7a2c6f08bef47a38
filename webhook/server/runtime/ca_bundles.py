"""Where managed certificates live in the cluster: the CA's Secret, and the caBundles of the webhook configurations.

caBundles are written by a strategic merge patch over the resourceVersion that was read, entries by name. Not by
server-side apply: its field manager would own the entries beside the one that installed them, and the API server would
then reject the installer's apply of a manifest without one of them (the rest of the entry would be the caBundle alone).
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from certs.rotation import NotNow, StoredSecret, WebhookConfiguration
from certs.state import KEYS
from webhook import names
from webhook.errors import Unavailable
from webhook.install.registration import API_VERSION, Manifest
from webhook.k8s.client.api import ApiConnectionError, Requests, explain
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object

FIELD_MANAGER: Final = "kubevirt-webhook-certificates"
# On the Secret, with any value: make another CA now.
ROTATE_ANNOTATION: Final = f"{names.DOMAIN}/rotate-ca"

# etcd's revision before anything is written, so that no object has it.
_NO_VERSION: Final = "1"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_SECONDS: Final = 10.0
_MANAGER: Final = {"fieldManager": FIELD_MANAGER}


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _CaSecret(msgspec.Struct):
    metadata: _Meta
    data: dict[str, str] | None = None


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _WebhookEntry(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig


class _WebhookConfiguration(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_WebhookEntry] | None = None


class CaSecret:
    """The Secret that holds the CA; `certs.rotation.SecretStore`.

    It needs: get, patch and create on this one Secret. RBAC knows its name in server-side apply alone, not where an
    object is posted to a collection.

    Args:
        api: the connection to the API server.
        namespace: namespace of the Secret.
        name: name of the Secret.
    """

    def __init__(self, api: Requests, namespace: str, name: str) -> None:
        self._api: Final = api
        self._namespace: Final = namespace
        self._name: Final = name
        self._resource: Final = Resource("", "v1", "secrets", "Secret", True, Object)
        self._path: Final = self._resource.path(quote(namespace), quote(name))

    async def read(self) -> StoredSecret | None:
        """Its newest state; values that are no base64 count as empty."""
        status, body = await self._call("get", (200, 404), "GET", self._path)
        if status == 404:
            return None
        secret = msgspec.json.decode(body, type=_CaSecret)
        data = {key: _decode(text) for key, text in (secret.data or {}).items() if key in KEYS}
        return StoredSecret(
            data, secret.metadata.resource_version, ROTATE_ANNOTATION in (secret.metadata.annotations or {})
        )

    async def create(self, data: Mapping[str, bytes]) -> bool:
        """Create the Secret; False: it exists already.

        Args:
            data: values by key, not encoded.
        """
        metadata: Manifest = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/name": "kubevirt-webhook"},
            # A Secret that exists has another version: the API server answers 409, and changes nothing.
            "resourceVersion": _NO_VERSION,
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": _encode(data)}
        status, _ = await self._call("create", (201, 409), "PATCH", self._path, secret, _APPLY, _MANAGER)
        return status == 201

    async def replace(self, data: Mapping[str, bytes], version: str, *, answered: bool) -> bool:
        """Change the keys of the CA; other content of the Secret is kept.

        Args:
            data: the new values by key; the CA's keys that are missing here are removed.
            version: the resourceVersion that the Secret must still have.
            answered: remove the annotation that requests another CA.

        Returns:
            Whether the Secret was changed; False: it has another version by now, or no longer exists.
        """
        metadata: Manifest = {"resourceVersion": version}
        if answered:
            metadata["annotations"] = {ROTATE_ANNOTATION: None}
        change = {"metadata": metadata, "data": {**dict.fromkeys(KEYS), **_encode(data)}}
        status, _ = await self._call("patch", (200, 404, 409), "PATCH", self._path, change, _MERGE)
        return status == 200

    async def _call(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        verb: str,
        expected: tuple[int, ...],
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        where = f"Secret {self._namespace}/{self._name}"
        status, answer = await _request(self._api, where, method, path, body, content_type, query)
        if status not in expected:
            raise NotNow(f"{where}: {explain(verb, self._resource, self._namespace, status, answer).why}")
        return status, answer


class CaBundles:
    """The caBundles of the server's webhook configurations; `certs.rotation.Bundles`.

    It needs: get and patch on these configurations. Entries that others added to them are left alone.

    Args:
        api: the connection to the API server.
        manifests: the expected configurations, as `registration.configurations` makes them.
    """

    def __init__(self, api: Requests, manifests: Iterable[Manifest]) -> None:
        self._api: Final = api
        self._resources: Final[dict[str, tuple[str, Resource[Object]]]] = {}
        for manifest in manifests:
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            group, _, version = API_VERSION.partition("/")
            resource = Resource(group, version, f"{kind.lower()}s", kind, False, Object)
            self._resources[f"{kind}/{name}"] = (name, resource)

    async def read(self) -> Mapping[str, WebhookConfiguration | None]:
        """Every configuration by ``KIND/NAME``; None: it does not exist."""
        return {where: await self._read(where) for where in self._resources}

    async def write(self, name: str, version: str, bundles: Mapping[str, bytes]) -> bool:
        """Change the caBundles of entries that exist."""
        entries = [
            {"name": entry, "clientConfig": {"caBundle": b64encode(pem).decode("ascii")}}
            for entry, pem in bundles.items()
        ]
        change = {"metadata": {"resourceVersion": version}, "webhooks": entries}
        status, answer = await self._call(name, "PATCH", _MANAGER, change, _STRATEGIC)
        if status in (404, 409):
            return False
        if status != 200:
            raise NotNow(f"{name}: {self._to_unavailable('patch', name, status, answer).why}")
        return True

    async def _read(self, where: str) -> WebhookConfiguration | None:
        status, body = await self._call(where, "GET")
        if status == 404:
            return None
        if status != 200:
            raise NotNow(f"{where}: {self._to_unavailable('get', where, status, body).why}")
        found = msgspec.json.decode(body, type=_WebhookConfiguration)
        own = [entry for entry in found.webhooks or () if entry.name.endswith(f".{names.DOMAIN}")]
        return WebhookConfiguration(
            found.metadata.resource_version, {entry.name: _decode(entry.client_config.ca_bundle) for entry in own}
        )

    async def _call(
        self,
        where: str,
        method: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> tuple[int, bytes]:
        name, resource = self._resources[where]
        return await _request(self._api, where, method, resource.path("", quote(name)), body, content_type, query)

    def _to_unavailable(self, verb: str, where: str, status: int, body: bytes) -> Unavailable:
        return explain(verb, self._resources[where][1], "", status, body)


async def _request(  # noqa: PLR0913 - the parts of an HTTP request
    api: Requests,
    where: str,
    method: str,
    path: str,
    body: Any,
    content_type: str,
    query: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    try:
        return await api.request(method, path, query or {}, body, content_type, seconds=_SECONDS)
    except ApiConnectionError as error:
        raise NotNow(f"{where}: {error.why}") from None


def _decode(text: str) -> bytes:
    try:
        return b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def _encode(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: b64encode(value).decode("ascii") for key, value in data.items()}
