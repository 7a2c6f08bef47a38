"""A guarded application on a listener, and a client of it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from certs.source import self_signed
from webhook.server import tls
from webhook.server.authorizer import GuardedApplication
from webhook.server.edge import Application, Limits, Server, TrafficObserver


class Crashes(TrafficObserver):
    """The exceptions that reached the edge."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def on_crash(self, path: str, error: BaseException) -> None:
        self.errors.append(error)


class Visitor:
    """A client of one listener; keeps the headers of the last answer."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        self.url = url
        self.client = client

    async def get(self, path: str, method: str = "GET", token: str = "", **headers: str) -> tuple[int, str]:
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        options: Any = {"headers": headers | bearer, "allow_redirects": False}
        async with self.client.request(method, self.url + path, **options) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()


@asynccontextmanager
async def visited(application: GuardedApplication, address: str = "127.0.0.1:0") -> AsyncIterator[Visitor]:
    pair = self_signed(["localhost", "127.0.0.1"])
    trust = ssl.create_default_context(cadata=pair.authority.decode())
    context = tls.context(pair.certificate, pair.key)
    async with (
        application.listening(address, context, "x.listen", 1.0) as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as client,
    ):
        yield Visitor(url.replace("0.0.0.0", "127.0.0.1"), client)


class Unanswering(Application):
    """An application that fails at every request."""

    @classmethod
    def server(cls, limits: Limits | None = None) -> Server:
        return Server(cls(), limits or Limits())
