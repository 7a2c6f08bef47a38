"""The admin listener, for parts that answer admins and their tools and take no review's turn or connection.

Each of them is an application of its own, below its path: with the permission that its readers need, and its own form
of errors. The smallest, the metrics, is here; explanations and the page have packages of their own.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from webhook.install import components
from webhook.server.answers import TrafficObserver, errors_to_answers, text
from webhook.server.authorizer import Authorizer, limited
from webhook.server.guard import Limits
from webhook.server.listener import SHUTDOWN_SECONDS, Listener, serving
from webhook.server.ops import METRICS_PATH, Rendering, metrics_application
from webhook.server.part import Contribution, Part, ServerHandle
from webhook.settings.fields import is_loopback

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
    limit = limited(names_host=not guarded)

    @web.middleware
    async def limit_elsewhere(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Limit what is below no part's path; each part has a limit of its own."""
        is_elsewhere = request.match_info.apps[-1] is application
        return await (limit(request, handler) if is_elsewhere else handler(request))

    application = web.Application(middlewares=[errors, limit_elsewhere])
    for path, part in parts.items():
        application.add_subapp(path, part)
    if PAGE_PATH in parts:
        application.router.add_get("/", _to_page)
    return application


async def _to_page(_request: web.Request) -> web.Response:
    raise web.HTTPFound(PAGE_PATH)


async def _as_text(status: int, sentence: str, headers: Mapping[str, str]) -> web.Response:
    return text(status, sentence, {**_HEADERS, **headers})


@asynccontextmanager
async def admin_listener(application: web.Application, address: str, tls: ssl.SSLContext) -> AsyncIterator[str]:
    """The admin listener for as long as the context lasts; gives its URL.

    On a loopback address it is plain HTTP, else it has TLS.
    """
    guarded = not is_loopback(address)
    listener = Listener(application, Limits())
    async with serving(listener, address, tls if guarded else None, "admin.listen", SHUTDOWN_SECONDS) as bound:
        yield f"{'https' if guarded else 'http'}://{bound}"


@asynccontextmanager
async def serve_admins(
    server: ServerHandle, applications: Mapping[str, Callable[[], web.Application]], tls: ssl.SSLContext
) -> AsyncIterator[None]:
    """Serve what parts have for admins for as long as the context lasts; ``tls`` as for `admin_listener`."""
    address, made = server.at_start.admin.listen, {path: make() for path, make in applications.items()}
    application = admin_application(made, server.metrics, guarded=not is_loopback(address))
    async with admin_listener(application, address, tls) as url:
        server.log.info("serving admins", address=url, paths=sorted(made))
        yield


@asynccontextmanager
async def _serving_metrics(server: ServerHandle) -> AsyncIterator[Contribution]:
    def application() -> web.Application:
        is_local = is_loopback(server.at_start.admin.listen)
        authorizer = None if is_local else Authorizer(server.cluster, METRICS_PATH)
        return metrics_application(Rendering(server.metrics.registry), authorizer, server.metrics)

    yield Contribution(applications={METRICS_PATH: application})


ADMIN_METRICS: Final = Part(
    "metrics for admins",
    lambda server: server.at_start.admin.serves_metrics,
    _serving_metrics,
    components=(components.ADMIN,),
)
