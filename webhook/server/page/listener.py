"""The page on the admin listener: who may look, which paths there are, and headers that keep browsers from doing more.

On a loopback address any client may look, which in a pod means ``kubectl port-forward``. On any other, only bearers of
a token whose users may ``get`` the path ``/page``; for the placement of a VM they need what the page shows, too: the
VMI and the nodes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from webhook import __version__
from webhook.cluster.source import Cluster
from webhook.facts import Facts
from webhook.policies.migration.explanation import SERVER, FactPermissions, Question
from webhook.server.answers import (
    RequestDenied,
    TrafficObserver,
    errors_to_answers,
    response,
    text,
)
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
_ASSETS: Final = {
    f"{PATH}/style.css": ("style.css", "text/css; charset=utf-8"),
    f"{PATH}/icon.svg": ("icon.svg", "image/svg+xml"),
}
_TITLES: Final = {401: "Not signed in", 403: "Not permitted", 404: "Not found", 429: "Too many requests"} | {
    503: "Not known now"
}


class PageHandler:
    """Answers requests for the page.

    Args:
        cluster: the source of facts about who asks.
        views: what each path shows.
        traffic: gets exceptions.
        guarded: require a bearer token; False: any client may look whose ``Host`` is a loopback address.
    """

    def __init__(self, cluster: Cluster, views: PageViews, traffic: TrafficObserver, *, guarded: bool) -> None:
        self._authorizer: Final = Authorizer(cluster, PATH) if guarded else None
        self._views: Final = views
        self._traffic: Final = traffic
        self._in_flight: Final = InFlight()
        self._assets: Final = {path: (asset(name), kind) for path, (name, kind) in _ASSETS.items()}
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
        limit = limited(self._assets, names_host=self._authorizer is None)
        application = web.Application(middlewares=[errors, limit])
        for path in self._assets:
            application.router.add_get(path.removeprefix(PATH), self._asset)
        application.router.add_get("", self._page)
        application.router.add_get("/{path:.*}", self._page)
        return application

    async def _asset(self, request: web.Request) -> web.Response:
        """What every page needs, and says nothing."""
        body, kind = self._assets[request.path]
        return response(200, body, kind, HEADERS)

    async def _page(self, request: web.Request) -> web.Response:
        """A page."""
        token, client = "", guard_of(request).client
        if self._authorizer:
            token = token_of(request.headers)
            await self._authorizer.admit(token, client)
        path = request.path

        async def permit(question: Question) -> FactPermissions:
            if self._authorizer is None:
                return SERVER

            async def checked(facts: Facts) -> FactPermissions:
                return await authorize_question(await user_of(token, facts), question, facts)

            return await self._authorizer.evaluate(checked, client)

        async with self._in_flight.seat(request):
            answer = await self._views.show(path, request.rel_url.raw_query_string, permit)
            if answer is None:
                raise RequestDenied(404, "there is nothing at this address, or the decision is no longer kept")
            first = path.removeprefix(PATH).strip("/").partition("/")[0]
            return await self._rendered(answer, f"{PATH}/{first}" if first else PATH, {})

    async def _problem(self, status: int, sentence: str, headers: Mapping[str, str]) -> web.Response:
        """The sentence on a page; of a fault of the server, on its own."""
        if status == 500:
            return text(status, sentence, {**HEADERS, **headers})
        values = {"title": _TITLES.get(status, "Not a valid request"), "sentence": sentence}
        return await self._rendered(PageAnswer("problem.html", values, status), "", headers)

    async def _rendered(self, answer: PageAnswer, here: str, headers: Mapping[str, str]) -> web.Response:
        values: dict[str, Any] = {**answer.values, "site": {**self._site, "here": here}}
        body = await self.renderer.render(answer.template, values)
        refresh = {"Refresh": str(answer.refresh_seconds)} if answer.refresh_seconds else {}
        return response(answer.status, body, "text/html; charset=utf-8", {**HEADERS, **refresh, **headers})
