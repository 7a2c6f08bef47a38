"""One object in the API, with the permissions for it alone: the CA's Secret, or a webhook configuration."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from certs.rotation import NotNow
from webhook.errors import Unavailable
from webhook.k8s.client.api import ApiConnectionError, Requests, decode, explain
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object

FIELD_MANAGER: Final = "kubevirt-webhook-certificates"
FIELD_MANAGER_QUERY: Final = {"fieldManager": FIELD_MANAGER}
_SECONDS: Final = 10.0


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _WebhookEntry(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig


class SecretOrConfiguration(msgspec.Struct):
    """The content of a Secret, or of a webhook configuration."""

    metadata: _Meta
    data: dict[str, str] | None = None
    webhooks: list[_WebhookEntry] | None = None


class ObjectClient(NamedTuple):
    """One object in the API, read and written with the permissions for it alone."""

    api: Requests
    resource: Resource[Object]
    namespace: str
    name: str

    async def call(
        self,
        verb: str,
        expected: tuple[int, ...],
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer; without one, or where its status is not expected, it raises `NotNow`."""
        path = self.resource.path(self.namespace, self.name)
        method = "GET" if verb == "get" else "PATCH"
        try:
            status, answer = await self.api.request(method, path, query or {}, body, content_type, seconds=_SECONDS)
        except ApiConnectionError as error:
            raise NotNow(f"{self._where}: {error.why}") from None
        if status not in expected:
            raise NotNow(f"{self._where}: {explain(verb, self.resource, self.namespace, status, answer).why}")
        return status, answer

    async def read(self) -> SecretOrConfiguration | None:
        """Its newest state; None: it does not exist. An answer that cannot be decoded raises `NotNow`, too."""
        status, body = await self.call("get", (200, 404))
        if status != 200:
            return None
        content = decode(body, SecretOrConfiguration, self.resource.kind)
        if isinstance(content, Unavailable):
            raise NotNow(f"{self._where}: {content.why}")
        return content

    @property
    def _where(self) -> str:
        return f"{self.resource.kind}{f' {self.namespace}' if self.namespace else ''}/{self.name}"


def decode_base64(text: str) -> bytes:
    """The bytes of a value; none where it is no base64."""
    try:
        # What is not base64 is left out otherwise, and something else than what was written is decoded.
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def encode_base64(data: Mapping[str, bytes]) -> dict[str, str]:
    """Values as the API has them."""
    return {key: b64encode(value).decode("ascii") for key, value in data.items()}
