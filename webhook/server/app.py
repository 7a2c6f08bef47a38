"""The request path: limits, deadline, one review, one answer.

aiohttp's low-level server, without its router and middlewares: a review of 20 KB costs less than they do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from aiohttp import web

from webhook.errors import InputError
from webhook.review.endpoints import Endpoint
from webhook.review.reviewer import Reviewer
from webhook.server.budget import EVERYDAY, Budget, NoRoom, Share
from webhook.server.connection import Connection, Connections
from webhook.server.turns import Turns, namespace_of
from webhook.text import visible

# A review holds an object and its old state; etcd takes objects up to 1.5 MiB, JSON may double that, managedFields and
# the envelope come on top. controller-runtime came to the same figure (pkg/webhook/admission/http.go).
MAX_BODY: Final = 7 * 1024 * 1024

# Idle connections of the API server live for 90 s (net/http). A server that closes one earlier may do so just as a
# request arrives, and a POST is not repeated.
KEEP_ALIVE: Final = 120.0

# Where the API server names no timeout, it is our own configuration's longest.
DEFAULT_TIMEOUT: Final = 3.0
# What we keep of the timeout for the way back.
MARGIN: Final = 0.9
# How much of the deadline a request may wait for its turn, before it is told to come again.
PATIENCE: Final = 0.8
# How long a body may take to arrive: the API server sends it at once, and what arrives slowly holds memory meanwhile.
ARRIVAL: Final = 3.0

_GO_DURATION: Final = re.compile(r"(?:(?P<value>\d+(?:\.\d*)?|\.\d+)(?P<unit>ns|us|µs|ms|s|m|h))")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class RequestObserver(Protocol):
    """Told of every HTTP request at an endpoint."""

    def on_served(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""

    def on_crash(self, path: str, error: BaseException) -> None:
        """An exception of ours reached the edge."""


class App:
    """Answers HTTP requests at the endpoints.

    Args:
        reviewer: judges the reviews.
        endpoints: by path.
        traffic: is told of every request at an endpoint.
        max_in_flight: reviews that are judged at the same time; more wait for their turn, and so do those of a
            namespace that has its share.
        clients: names that a client's certificate may have; empty: no certificate is asked for.
    """

    def __init__(
        self,
        reviewer: Reviewer,
        endpoints: Mapping[str, Endpoint],
        traffic: RequestObserver,
        max_in_flight: int,
        clients: Collection[str] = (),
    ) -> None:
        self._reviewer: Final = reviewer
        self._endpoints: Final = endpoints
        self._traffic: Final = traffic
        self._turns: Final = Turns(max_in_flight)
        self._clients: Final = clients
        self.bodies: Final = Budget()
        self.in_flight = 0

    def server(self) -> Connections:
        """The aiohttp server of this app; make it inside the running loop."""
        loop = asyncio.get_running_loop()

        def request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)

        return Connections(
            self.handle,
            clients=self._clients,
            request_factory=request,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            tcp_keepalive=True,
            auto_decompress=False,
        )

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request; no exception but a cancellation leaves."""
        clock = asyncio.get_running_loop().time
        start = clock()
        connection: Connection = request.protocol  # type: ignore[assignment] # Connections makes no others
        if connection.writing_paused and not await connection.drain_output():
            return web.Response(status=408)
        path, _, query = request.raw_path.partition("?")
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            return _text(
                404, f"there is no endpoint {path[:200]}; `kubevirt-webhook manifests webhooks` prints all", request
            )
        self.in_flight += 1
        try:
            if connection.refusal:
                response: web.StreamResponse = _text(403, connection.refusal, request)
            else:
                deadline = start + timeout_of(query) * MARGIN
                response = await self._answer(endpoint, request, deadline, verified=connection.verified)
        except InputError as error:
            response = _text(400, str(error), request)
        except web.HTTPRequestEntityTooLarge:
            response = _text(
                413, f"the request's body is larger than {MAX_BODY} bytes; send one review at a time", request
            )
        except (ConnectionError, web.RequestPayloadError) as error:
            response = _text(400, f"the request's body broke off ({type(error).__name__}); send it whole", request)
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            self._traffic.on_crash(path, error)
            response = _text(500, "kubevirt-webhook has a bug that this request met; its log says more", request)
        finally:
            self.in_flight -= 1
        end = clock()
        if end >= connection.closes_at:
            response.force_close()
        self._traffic.on_served(path, response.status, end - start)
        return response

    async def _answer(
        self, endpoint: Endpoint, request: web.BaseRequest, deadline: float, *, verified: bool
    ) -> web.StreamResponse:
        if request.method != "POST":
            return _text(405, f"{request.method} is not answered here; POST an AdmissionReview", request, Allow="POST")
        if request.headers.get("Content-Type") != "application/json" and request.content_type != "application/json":
            got = request.headers.get("Content-Type", "none")[:100]
            return _text(415, f"the content type is {got}; send application/json", request)
        if "Content-Encoding" in request.headers:
            return _text(415, "the body is encoded; send JSON as it is", request)
        now = asyncio.get_running_loop().time()
        until = now + (deadline - now) * PATIENCE
        share = Share(self.bodies, until)
        try:
            try:
                body = await _body(request, min(deadline, now + ARRIVAL), share)
            except TimeoutError:
                return _text(408, "the request's body did not arrive within its timeout; send it whole", request)
            except NoRoom:
                return _busy("more bytes of reviews than it has memory for", request)
            namespace = namespace_of(body)
            # Namespaces that do not exist share a share: anybody can make up as many names as there are turns.
            key = namespace if self._reviewer.is_watched(namespace) else ""
            if not await self._turns.take(key, until):
                return _busy("more reviews than it can judge", request)
            try:
                return ReviewResponse(await self._reviewer.review(endpoint, body, deadline, verified=verified))
            finally:
                self._turns.give(key)
        finally:
            share.give()


class ReviewResponse(web.StreamResponse):
    """A review's answer, written to the socket in one piece.

    aiohttp's own response makes its headers anew for each request, which costs a tenth of a whole review; ours
    differ in nothing but the length.
    """

    _HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    _LAST: Final = _HEAD[:-2] + b"Connection: close\r\n\r\n"

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._answer: Final = body
        self._stays = False
        self._last = False

    def force_close(self) -> None:
        """Let this be the last answer on its connection."""
        self._last = True

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection takes another request."""
        return self._stays

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write head and body."""
        if request.transport is None:
            raise ConnectionResetError("the client has gone")
        self._stays = request.keep_alive and not self._last
        head = self._LAST if self._last else self._HEAD
        request.transport.write(head % len(self._answer) + self._answer)

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""


async def _body(request: web.BaseRequest, deadline: float, share: Share) -> bytes:
    """The whole body, its bytes taken from a budget.

    Raises:
        TimeoutError: it was not there by the deadline.
        NoRoom: there was none for it.
        web.HTTPRequestEntityTooLarge: it is larger than `MAX_BODY`.
    """
    # Chunks have no length beforehand.
    announced = MAX_BODY if request.content_length is None else request.content_length
    if announced > MAX_BODY:
        raise web.HTTPRequestEntityTooLarge(MAX_BODY, announced)
    if request.content.is_eof():
        # As good as always: the API server sends head and body together.
        body = request.content.read_nowait()
        await share.take(len(body))
        return body
    # A large one takes all at once: two of them, half read, could wait for each other. Everyday ones take what has
    # arrived, so that it isn't enough to announce them to be in everybody's way.
    at_once = announced > EVERYDAY
    if at_once:
        await share.take(announced)
    pieces: list[bytes] = []
    size = 0
    async with asyncio.timeout_at(deadline):
        while piece := await request.content.readany():
            size += len(piece)
            if size > MAX_BODY:
                raise web.HTTPRequestEntityTooLarge(MAX_BODY, size)
            if not at_once:
                await share.take(len(piece))
            pieces.append(piece)
    return b"".join(pieces)


@lru_cache(maxsize=64)
def timeout_of(query: str) -> float:
    """Seconds in ``timeout=`` of a query string, a Go duration as the API server sends it; else `DEFAULT_TIMEOUT`."""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name != "timeout":
            continue
        found = list(_GO_DURATION.finditer(value))
        if found and "".join(match[0] for match in found) == value:
            seconds = sum(float(match["value"]) * _UNITS[match["unit"]] for match in found)
            # The API server allows a webhook 30 s at most.
            return min(seconds, 30.0) if seconds > 0 else DEFAULT_TIMEOUT
    return DEFAULT_TIMEOUT


def _busy(what: str, request: web.BaseRequest) -> web.Response:
    return _text(429, f"kubevirt-webhook has {what}; try again", request, **{"Retry-After": "1"})


def _text(status: int, sentence: str, request: web.BaseRequest, **headers: str) -> web.Response:
    """An error as plain text: the API server shows it in its own message."""
    response = web.Response(status=status, text=visible(sentence) + "\n", headers=headers)
    if not request.can_read_body or request.content.at_eof():
        return response
    # What is left of the body would be read as the next request.
    response.force_close()
    return response
