"""Metrics for permitted users alone, as controller-runtime's WithAuthenticationAndAuthorization does it.

A listener of its own with TLS: the kubelet's probes have neither token nor trust, and stay where they are. A
TokenReview finds the user of the token, and a SubjectAccessReview whether that user may ``get`` the path ``/metrics``.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from aiohttp import web

from webhook.cluster.source import Cluster
from webhook.policies.common.required_facts import Unreadable
from webhook.server.bearer import RequestDenied, token_of
from webhook.server.gate import Gate
from webhook.server.guests import Guests, TooManyRequests, turn
from webhook.server.lifecycle import finish, listen
from webhook.server.ops import METRICS_PATH, exposition
from webhook.server.rendering import Rendering
from webhook.settings.address import is_loopback
from webhook.text import visible


class ScrapeObserver(Protocol):
    """Gets the exceptions of the listener."""

    def on_crash(self, path: str, error: BaseException) -> None:
        """An exception reached the edge of the server: a bug."""


class Scraping:
    """Answers requests for metrics.

    Args:
        rendering: the metrics as text.
        cluster: the source of facts: whose token it is, and whether RBAC allows its user to read metrics.
        traffic: gets exceptions.
        guarded: require a bearer token.
    """

    def __init__(self, rendering: Rendering, cluster: Cluster, traffic: ScrapeObserver, *, guarded: bool) -> None:
        self._rendering: Final = rendering
        self._traffic: Final = traffic
        self._gate: Final = Gate(cluster, METRICS_PATH) if guarded else None
        self.in_flight = 0

    def server(self) -> Guests:
        """The aiohttp server; make it inside the running loop."""
        return Guests(self.handle)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request; no exception but a cancellation leaves."""
        self.in_flight += 1
        try:
            return await self._answer(request)
        except RequestDenied as refused:
            return _text(refused.status, refused.sentence, **refused.headers)
        except TooManyRequests as refused:
            return _text(429, refused.sentence, **{"Retry-After": "1"})
        except Unreadable as error:
            return _text(503, f"who asks is not known now: {error.why}", **{"Retry-After": "5"})
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            self._traffic.on_crash(METRICS_PATH, error)
            return _text(500, "internal error; see the kubevirt-webhook log")
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != METRICS_PATH:
            raise RequestDenied(404, f"there is nothing at this path; ask for {METRICS_PATH}")
        if request.method not in ("GET", "HEAD"):
            raise RequestDenied(405, "use GET", Allow="GET, HEAD")
        await turn(request)
        if self._gate:
            await self._gate.admit(token_of(request))
        return exposition(await self._rendering.text())


@asynccontextmanager
async def scraping(
    address: str, rendering: Rendering, cluster: Cluster, traffic: ScrapeObserver, tls: ssl.SSLContext, seconds: float
) -> AsyncIterator[str]:
    """A listener for as long as the context lasts; gives its URL.

    Args:
        address: ``HOST:PORT``; on a loopback address without TLS and tokens.
        rendering: the metrics as text.
        cluster: the source of facts.
        traffic: gets exceptions.
        tls: the context for others.
        seconds: how long to wait at the end for requests that have begun.

    Raises:
        InputError: nothing can listen there.
    """
    alone = is_loopback(address)
    scrapers = Scraping(rendering, cluster, traffic, guarded=not alone)
    runner = web.ServerRunner(scrapers.server(), shutdown_timeout=seconds)
    bound = await listen(runner, address, None if alone else tls, "metrics.listen")
    try:
        yield f"{'http' if alone else 'https'}://{bound}"
    finally:
        await finish(runner, lambda: scrapers.in_flight, seconds)


def _text(status: int, sentence: str, **headers: str) -> web.Response:
    return web.Response(status=status, text=visible(sentence) + "\n", headers=headers)
