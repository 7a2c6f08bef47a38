"""A registry that does as a test says: right, slow, wrong or hostile."""

from __future__ import annotations

import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.waiting import PATIENCE
from webhook.images.manifests import MANIFEST_TYPES, ImageReference, digest_of
from webhook.images.registry.client import RegistryClient
from webhook.settings.model import RegistrySettings

LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
REPOSITORY = "disks/fedora"


def manifest(layers: Mapping[str, int] | None = None) -> bytes:
    written = [{"digest": digest_of(name.encode()), "size": size} for name, size in (layers or {"L1": 100}).items()]
    return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST_TYPES[0], "layers": written}).encode()


class FakeRegistry:
    """Requests are kept; a handler that a test sets answers before the contents do."""

    def __init__(self) -> None:
        self.requests: list[web.BaseRequest] = []
        self.contents: dict[str, bytes] = {}
        self.handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse | None]] | None = None
        self.address = ""

    def add(self, body: bytes, tag: str = "") -> str:
        digest = digest_of(body)
        self.contents[digest] = body
        if tag:
            self.contents[tag] = body
        return digest

    def reference(self, version: str) -> ImageReference:
        pinned = version.startswith("sha256:")
        return ImageReference(self.address, REPOSITORY, "" if pinned else version, version if pinned else "")

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def authorizations(self) -> list[str | None]:
        return [request.headers.get("Authorization") for request in self.requests]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if self.handler and (special := await self.handler(request)):
            return special
        body = self.contents.get(request.path.rpartition("/")[2])
        return web.Response(status=404) if body is None else web.Response(body=body)


@asynccontextmanager
async def client_of(
    registry: FakeRegistry, *, seconds: float = PATIENCE, tls: ssl.SSLContext | None = None, **settings: Any
) -> AsyncIterator[RegistryClient]:
    options = {"plain_http": True, "addresses": (LOOPBACK,), **settings}
    client = RegistryClient(registry.address, RegistrySettings(**options), seconds=seconds, tls=tls)
    try:
        yield client
    finally:
        await client.close()
