"""The listener of the page: who may look, which paths there are, and headers that keep browsers from doing more.

On a loopback address any client may look, which in a pod means ``kubectl port-forward``. On any other, only bearers of
a token whose users may ``get`` the path ``/page``; for the placement of a VM they need what the page shows, too: the
VMI and the nodes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from aiohttp import web

from webhook import __version__
from webhook.cluster.source import BrowsableCluster
from webhook.errors import InputError
from webhook.facts import Facts
from webhook.policies.common.required_facts import Unreadable
from webhook.policies.migration.explanation import SERVER, FactPermissions
from webhook.review.replay import replay
from webhook.server.bearer import RequestDenied, require_loopback_host, token_of, user_of
from webhook.server.explain import DEADLINE, ExplainRequest, authorize_question
from webhook.server.gate import Gate
from webhook.server.guests import Guests, TooManyRequests, turn
from webhook.server.lifecycle import finish, listen
from webhook.server.page.renderer import PageRenderer, asset
from webhook.server.page.views import PATH, PageAnswer, PageViews
from webhook.settings.address import is_loopback
from webhook.text import visible

# What one page costs grows with the nodes or namespaces, and reviews share the processor.
MAX_IN_FLIGHT: Final = 4
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_PAGES: Final = (
    (PATH, "Overview"),
    (f"{PATH}/decisions", "Decisions"),
    (f"{PATH}/placement", "Placement"),
    (f"{PATH}/health", "Health"),
    (f"{PATH}/reasons", "Reasons"),
)
_ASSETS: Final = {
    f"{PATH}/style.css": ("style.css", "text/css; charset=utf-8"),
    f"{PATH}/icon.svg": ("icon.svg", "image/svg+xml"),
}
_TITLES: Final = {
    400: "Not a valid request",
    401: "Not signed in",
    403: "Not permitted",
    404: "Not found",
    405: "Not a valid request",
    429: "Too many requests",
    500: "Internal error",
    503: "Not known now",
}


class PageObserver(Protocol):
    """Gets the exceptions of the listener."""

    def on_crash(self, path: str, error: BaseException) -> None:
        """An exception reached the edge of the server: a bug."""


class PageHandler:
    """Answers requests for the page.

    Args:
        cluster: the source of facts about who asks.
        views: what each path shows.
        traffic: gets exceptions.
        guarded: require a bearer token; False: any client may look whose ``Host`` is a loopback address.
    """

    def __init__(self, cluster: BrowsableCluster, views: PageViews, traffic: PageObserver, *, guarded: bool) -> None:
        self._cluster: Final = cluster
        self._views: Final = views
        self._traffic: Final = traffic
        self._gate: Final = Gate(cluster, PATH) if guarded else None
        self._assets: Final = {path: (asset(name), kind) for path, (name, kind) in _ASSETS.items()}
        self._site: Final = {
            "pages": _PAGES,
            "version": __version__,
            "replica": socket.gethostname(),
            "started": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        }
        self.renderer: Final = PageRenderer()
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
            return await self._problem(refused.status, refused.sentence, **refused.headers)
        except TooManyRequests as refused:
            return await self._problem(429, refused.sentence, **{"Retry-After": "1"})
        except InputError as error:
            return await self._problem(400, str(error))
        except Unreadable as error:
            return await self._problem(503, f"the answer is not known now: {error.why}", **{"Retry-After": "5"})
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            self._traffic.on_crash(PATH, error)
            return _plain(500, "internal error; see the kubevirt-webhook log")
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            raise RequestDenied(405, "this method is not answered here; use GET", Allow="GET, HEAD")
        if not self._gate:
            require_loopback_host(request)
        path, _, query = request.raw_path.partition("?")
        if path in self._assets:
            body, kind = self._assets[path]
            return web.Response(body=body, headers=HEADERS | {"Content-Type": kind})
        token = token_of(request) if self._gate else ""
        await turn(request)
        if self.in_flight > MAX_IN_FLIGHT:
            why = f"{MAX_IN_FLIGHT} pages are being made already; try again"
            raise RequestDenied(429, why, **{"Retry-After": "1"})
        if self._gate:
            await self._gate.admit(token)
        if path == "/":
            return web.Response(status=302, headers=HEADERS | {"Location": PATH})

        async def permit(asked: ExplainRequest) -> FactPermissions:
            return await self._permit(token, asked) if token else SERVER

        is_below = path == PATH or path.startswith(f"{PATH}/")
        answer = await self._views.show(path, query, permit) if is_below else None
        if answer is None:
            raise RequestDenied(404, "there is nothing at this address, or the decision is no longer kept")
        return await self._rendered(answer, here=_here(path))

    async def _permit(self, token: str, asked: ExplainRequest) -> FactPermissions:
        deadline = asyncio.get_running_loop().time() + DEADLINE

        def check(facts: Facts) -> FactPermissions:
            return authorize_question(user_of(token, facts), asked, facts)

        return await replay(check, self._cluster, Facts(peek=self._cluster.peek), deadline, PATH)

    async def _rendered(self, answer: PageAnswer, *, here: str, **headers: str) -> web.Response:
        values: dict[str, Any] = {**answer.values, "site": {**self._site, "here": here}}
        body = await self.renderer.render(answer.template, values)
        if answer.refresh_seconds:
            headers["Refresh"] = str(answer.refresh_seconds)
        kind = {"Content-Type": "text/html; charset=utf-8"}
        return web.Response(status=answer.status, body=body, headers=HEADERS | kind | headers)

    async def _problem(self, status: int, sentence: str, **headers: str) -> web.Response:
        values = {"title": _TITLES.get(status, "Error"), "sentence": sentence}
        return await self._rendered(PageAnswer("problem.html", values, status), here="", **headers)


@asynccontextmanager
async def paging(
    address: str,
    cluster: BrowsableCluster,
    views: PageViews,
    traffic: PageObserver,
    tls: Callable[[], ssl.SSLContext],
    seconds: float,
) -> AsyncIterator[str]:
    """A listener for as long as the context lasts; gives the URL of the page.

    Args:
        address: ``HOST:PORT``; on a loopback address without TLS and tokens.
        cluster: the source of facts.
        views: what each path shows.
        traffic: gets exceptions.
        tls: returns the context for others.
        seconds: how long to wait at the end for requests that have begun.

    Raises:
        InputError: nothing can listen there.
    """
    alone = is_loopback(address)
    page = PageHandler(cluster, views, traffic, guarded=not alone)
    runner = web.ServerRunner(page.server(), shutdown_timeout=seconds)
    bound = await listen(runner, address, None if alone else tls(), "page.listen")
    try:
        yield f"{'http' if alone else 'https'}://{bound}{PATH}"
    finally:
        await finish(runner, lambda: page.in_flight, seconds)


def _here(path: str) -> str:
    """The page of the navigation that a path belongs to."""
    first = path.removeprefix(PATH).strip("/").partition("/")[0]
    return f"{PATH}/{first}" if first else PATH


def _plain(status: int, sentence: str) -> web.Response:
    return web.Response(status=status, text=visible(sentence) + "\n", headers=HEADERS)
