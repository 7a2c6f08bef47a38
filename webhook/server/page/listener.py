"""The listener of the page: who may look, which paths there are, and headers that keep browsers from doing more.

On a loopback address any client may look, which in a pod means ``kubectl port-forward``. On any other, only bearers of
a token whose users may ``get`` the path ``/page``; for the placement of a VM they need what the page shows, too: the
VMI and the nodes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from webhook import __version__
from webhook.cluster.source import Cluster
from webhook.policies.migration.explanation import SERVER, FactPermissions, Question
from webhook.server.authorizer import Authorizer, GuardedApplication, user_of
from webhook.server.edge import RequestDenied, TrafficObserver
from webhook.server.explain import authorize_question
from webhook.server.page.renderer import PageRenderer, asset
from webhook.server.page.views import PATH, PageAnswer, PageViews
from webhook.server.request import Answer, HttpRequest, header_lines

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


class PageHandler(GuardedApplication):
    """Answers requests for the page.

    Args:
        cluster: the source of facts about who asks.
        views: what each path shows.
        traffic: gets exceptions.
        guarded: require a bearer token; False: any client may look whose ``Host`` is a loopback address.
    """

    def __init__(self, cluster: Cluster, views: PageViews, traffic: TrafficObserver, *, guarded: bool) -> None:
        super().__init__(PATH, traffic, Authorizer(cluster, PATH) if guarded else None)
        self._views: Final = views
        self._assets: Final = {path: (asset(name), kind) for path, (name, kind) in _ASSETS.items()}
        self._site: Final = {
            "pages": _PAGES,
            "version": __version__,
            "replica": socket.gethostname(),
            "started": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        }
        self.renderer: Final = PageRenderer()

    async def open_answer(self, request: HttpRequest) -> Answer | None:
        """What every page needs, and says nothing."""
        body, kind = self._assets.get(request.head.path, (None, ""))
        return None if body is None else Answer(200, body, header_lines(HEADERS | {"Content-Type": kind}))

    async def serve(self, request: HttpRequest, permission: str) -> Answer:
        """A page."""
        path, token = request.head.path, permission
        if path == "/":
            return Answer(302, b"", header_lines(HEADERS | {"Location": PATH}))

        async def permit(question: Question) -> FactPermissions:
            if self._authorizer is None:
                return SERVER
            client = request.connection.client
            return await self._authorizer.evaluate(
                lambda facts: authorize_question(user_of(token, facts), question, facts), client
            )

        is_below = path == PATH or path.startswith(f"{PATH}/")
        answer = await self._views.show(path, request.head.query, permit) if is_below else None
        if answer is None:
            raise RequestDenied(404, "there is nothing at this address, or the decision is no longer kept")
        first = path.removeprefix(PATH).strip("/").partition("/")[0]
        return await self._rendered(answer, f"{PATH}/{first}" if first else PATH, {})

    async def problem(self, status: int, sentence: str, headers: Mapping[str, str]) -> Answer:
        """The sentence on a page; of a fault of the server, on its own."""
        if status == 500:
            return Answer.text(status, sentence, {**HEADERS, **headers})
        values = {"title": _TITLES.get(status, "Not a valid request"), "sentence": sentence}
        return await self._rendered(PageAnswer("problem.html", values, status), "", headers)

    async def _rendered(self, answer: PageAnswer, here: str, headers: Mapping[str, str]) -> Answer:
        values: dict[str, Any] = {**answer.values, "site": {**self._site, "here": here}}
        body = await self.renderer.render(answer.template, values)
        refresh = {"Refresh": str(answer.refresh_seconds)} if answer.refresh_seconds else {}
        kind = {"Content-Type": "text/html; charset=utf-8"}
        return Answer(answer.status, body, header_lines({**HEADERS, **kind, **refresh, **headers}))
