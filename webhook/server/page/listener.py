"""The page on the admin listener: its routes, who may look, and headers that keep browsers from doing more.

On a loopback address any client may look, which in a pod means ``kubectl port-forward``. On any other, only bearers of
a token whose users may ``get`` the path ``/page``; for the placement of a VM they need what the page shows, too: the
VMI and the nodes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler

from webhook import __version__
from webhook.cluster.source import Cluster
from webhook.facts import Facts
from webhook.policies.migration.explanation import SERVER, FactPermissions, Question
from webhook.server.answers import TrafficObserver, errors_to_answers, response, text
from webhook.server.authorizer import Authorizer, InFlight, limited, token_of, user_of
from webhook.server.explanations.explainer import authorize_question
from webhook.server.guard import guard_of
from webhook.server.page.renderer import PageRenderer, asset
from webhook.server.page.views import PATH, PageAnswer, PageViews

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
_PAGES: Final = tuple(
    (f"{PATH}/{name.lower()}" if name != "Overview" else PATH, name)
    for name in ("Overview", "Decisions", "Placement", "Health", "Reasons")
)
# What every page needs, and says nothing about a cluster.
_ASSETS: Final = {"style.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
_TITLES: Final = {308: "Moved", 401: "Not signed in", 403: "Not permitted", 404: "Not found"} | {
    429: "Too many requests",
    503: "Not known now",
}

View: TypeAlias = Callable[[web.Request], Awaitable[PageAnswer]]


class PageHandler:
    """Answers requests for the page.

    Args:
        cluster: the source of facts about who asks.
        views: what each route shows.
        traffic: gets exceptions.
        guarded: require a bearer token; False: any client may look whose ``Host`` is a loopback address.
    """

    def __init__(self, cluster: Cluster, views: PageViews, traffic: TrafficObserver, *, guarded: bool) -> None:
        self._authorizer: Final = Authorizer(cluster, PATH) if guarded else None
        self._views: Final = views
        self._traffic: Final = traffic
        self._in_flight: Final = InFlight()
        self._open_paths: Final = [f"{PATH}/{name}" for name in _ASSETS]
        self._site: Final = {
            "pages": _PAGES,
            "version": __version__,
            "replica": socket.gethostname(),
            "started": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        }
        self.renderer: Final = PageRenderer()

    def application(self) -> web.Application:
        """The application below `PATH`."""
        errors = errors_to_answers(self._traffic, f"ask for {PATH}", self._problem, path=PATH)
        limit = limited(self._open_paths, names_host=self._authorizer is None)
        # People type a slash at the end, too; it leads to the address without.
        slashes = web.normalize_path_middleware(append_slash=False, remove_slash=True)
        application = web.Application(middlewares=[errors, limit, self._admit, slashes])
        application.on_response_prepare.append(_add_headers)
        add, page, views = application.router.add_get, self._page, self._views
        for name, kind in _ASSETS.items():
            add(f"/{name}", partial(_asset, asset(name), kind))
        add("", partial(page, "Overview", views.overview))
        add("/decisions", partial(page, "Decisions", views.decisions))
        add("/decisions/{number:[0-9]{1,15}}", partial(page, "Decisions", views.decision))
        add("/placement", partial(page, "Placement", partial(views.placement, self._permit)))
        add("/health", partial(page, "Health", views.health))
        add("/reasons", partial(page, "Reasons", views.reasons))
        add("/reasons/{code}", partial(page, "Reasons", views.reason))
        return application

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Authenticate, authorize, and take a seat: who may not look learns nothing about which paths there are."""
        if request.path in self._open_paths:
            return await handler(request)
        if self._authorizer:
            await self._authorizer.admit(token_of(request.headers), guard_of(request).client)
        async with self._in_flight.seat(request):
            return await handler(request)

    async def _permit(self, request: web.Request, question: Question) -> FactPermissions:
        """A `Permit`."""
        if self._authorizer is None:
            return SERVER
        token = token_of(request.headers)

        async def checked(facts: Facts) -> FactPermissions:
            return await authorize_question(await user_of(token, facts), question, facts)

        return await self._authorizer.evaluate(checked, guard_of(request).client)

    async def _page(self, here: str, view: View, request: web.Request) -> web.Response:
        """A page; ``here`` is what the navigation calls it, or the page that leads to it."""
        return await self._rendered(await view(request), here, {})

    async def _problem(self, status: int, sentence: str, headers: Mapping[str, str]) -> web.Response:
        """The sentence on a page; of a fault of the server, on its own."""
        if status == 500:
            return text(status, sentence, headers)
        values = {"title": _TITLES.get(status, "Not a valid request"), "sentence": sentence}
        return await self._rendered(PageAnswer("problem.html", values, status), "", headers)

    async def _rendered(self, answer: PageAnswer, here: str, headers: Mapping[str, str]) -> web.Response:
        values: dict[str, Any] = {**answer.values, "site": {**self._site, "here": here}}
        body = await self.renderer.render(answer.template, values)
        refresh = {"Refresh": str(answer.refresh_seconds)} if answer.refresh_seconds else {}
        return response(answer.status, body, "text/html; charset=utf-8", {**refresh, **headers})


async def _asset(body: bytes, kind: str, _request: web.Request) -> web.Response:
    return response(200, body, kind)


async def _add_headers(_request: web.Request, answer: web.StreamResponse) -> None:
    """A signal of aiohttp, before an answer is written."""
    answer.headers.update(HEADERS)
