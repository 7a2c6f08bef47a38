"""The admin listener: explanations, metrics and the page, which take no review's turn or connection.

Each of them is an application of its own, below its path: with the permission that its readers need, and its own form
of errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from webhook.server.answers import TrafficObserver, errors_to_answers, response, text
from webhook.server.authorizer import limited

_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
# Where the page is; its modules are imported only where it is on.
PAGE_PATH: Final = "/page"


def admin_application(
    parts: Mapping[str, web.Application], traffic: TrafficObserver, *, guarded: bool
) -> web.Application:
    """The application of the listener; ``/`` leads to the page, where there is one.

    Args:
        parts: the application below each path.
        traffic: gets exceptions.
        guarded: clients need a bearer token; False: any client may ask whose ``Host`` is a loopback address.
    """
    errors = errors_to_answers(traffic, f"ask for {', '.join(sorted(parts))}", _as_text, path="the admin listener")
    application = web.Application(middlewares=[errors])
    for path, part in parts.items():
        application.add_subapp(path, part)
    limit = limited(names_host=not guarded)

    async def find(request: web.Request) -> web.Response:
        if request.path != "/" or PAGE_PATH not in parts:
            raise web.HTTPNotFound
        return response(302, b"", "text/plain; charset=utf-8", {"Location": PAGE_PATH} | _HEADERS)

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        return await limit(request, find)

    application.router.add_route("*", "/{path:.*}", elsewhere)
    return application


async def _as_text(status: int, sentence: str, headers: Mapping[str, str]) -> web.Response:
    return text(status, sentence, {**_HEADERS, **headers})
