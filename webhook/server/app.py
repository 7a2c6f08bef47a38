"""The request path: limits, deadline, one review, one answer."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final, Protocol

from aiohttp import web

from webhook.errors import InputError
from webhook.review.endpoints import Endpoint
from webhook.review.reviewer import Reviewer
from webhook.server.budget import EVERYDAY, BodyBudget, NoRoom, Share
from webhook.server.connections import Connections
from webhook.server.exchange import Answer, HttpRequest
from webhook.server.turns import Turns, namespace_of

# A review holds an object and its old state; etcd takes objects up to 1.5 MiB, JSON may double that, managedFields and
# the envelope come on top. controller-runtime came to the same figure (pkg/webhook/admission/http.go).
MAX_BODY: Final = 7 * 1024 * 1024

# Idle connections of the API server live for 90 s (net/http). A server that closes one earlier may do so just as a
# request arrives, and a POST is not repeated.
KEEP_ALIVE: Final = 120.0

# Where the API server names no timeout, it is the longest one of the webhook configurations.
DEFAULT_TIMEOUT: Final = 3.0
# The part of the timeout that is kept for the way back.
MARGIN: Final = 0.9
# How much of the deadline a request may wait for its turn, before it is answered with 429.
PATIENCE: Final = 0.8
# How long a body may take to arrive: the API server sends it at once, and what arrives slowly holds memory meanwhile.
ARRIVAL: Final = 3.0

_GO_DURATION: Final = re.compile(r"(?:(?P<value>\d+(?:\.\d*)?|\.\d+)(?P<unit>ns|us|µs|ms|s|m|h))")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class RequestObserver(Protocol):
    """Gets every HTTP request at an endpoint."""

    def on_served(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""

    def on_crash(self, path: str, error: BaseException) -> None:
        """An exception reached the edge of the server: a bug."""


class BodyTooLarge(Exception):  # noqa: N818 - an answer
    """A body has more bytes than `MAX_BODY`."""


class App:
    """Answers HTTP requests at the endpoints.

    Args:
        reviewer: evaluates the reviews.
        endpoints: the endpoints by path.
        traffic: gets every request at an endpoint.
        max_in_flight: reviews that are evaluated concurrently; more wait for their turn, and so do those of a namespace
            that has its share.
        clients: names that a client's certificate may have; empty: no certificate is needed.

    Attributes:
        in_flight: requests that tasks are answering; those that are answered without a task do not count.
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
        self.bodies: Final = BodyBudget()
        self.in_flight = 0

    def server(self) -> Connections:
        """The server of this app; make it inside the running loop."""
        return Connections(self.answer, self.answer_at_once, clients=self._clients, keep_alive=KEEP_ALIVE)

    def answer_at_once(self, request: HttpRequest) -> Answer | None:
        """The answer to a review that needs nothing but what is in memory; None: it takes `answer`."""
        head, connection, body = request.head, request.connection, request.body
        path = head.path
        endpoint = self._endpoints.get(path)
        if (
            endpoint is None
            or body is None
            or connection.rejection
            or head.method != "POST"
            or head.content_type != "application/json"
            or head.is_encoded
        ):
            return None
        # It takes neither bytes nor a turn for good: no other request is evaluated before it is done. Where nothing is
        # in flight, there are enough of both.
        if self.in_flight and not (self.bodies.has_room(len(body)) and self._turns.is_free(self._key(body))):
            return None
        try:
            begun = self._reviewer.begin(endpoint, body, verified=connection.verified)
        except InputError as error:
            return self._served(path, request, Answer.text(400, str(error)))
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            return self._served(path, request, self._crash_answer(path, error))
        if isinstance(begun, bytes):
            return self._served(path, request, Answer(200, begun))
        request.begun = begun
        return None

    async def answer(self, request: HttpRequest) -> Answer:
        """The answer to any request; no exception but a cancellation leaves."""
        path, query = request.head.path, request.head.query
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            return Answer.text(
                404, f"there is no endpoint {path[:200]}; `kubevirt-webhook manifests webhooks` prints all"
            )
        self.in_flight += 1
        try:
            if request.connection.rejection:
                answer = Answer.text(403, request.connection.rejection)
            else:
                answer = _unfit(request) or await self._answer_review(
                    endpoint, request, request.start + timeout_of(query) * MARGIN
                )
        except InputError as error:
            answer = Answer.text(400, str(error))
        except BodyTooLarge:
            answer = Answer.text(413, f"the request's body is larger than {MAX_BODY} bytes; send one review at a time")
        except (ConnectionError, web.RequestPayloadError) as error:
            answer = Answer.text(400, f"the request's body broke off ({type(error).__name__}); send it whole")
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            answer = self._crash_answer(path, error)
        finally:
            self.in_flight -= 1
        return self._served(path, request, answer)

    async def _answer_review(self, endpoint: Endpoint, request: HttpRequest, deadline: float) -> Answer:
        """The answer to a review, once its body is there, it has its turn, and look-ups have been made."""
        now = time.monotonic()
        until = now + (deadline - now) * PATIENCE
        share = Share(self.bodies, until)
        try:
            try:
                body = await _body(request, min(deadline, now + ARRIVAL), share)
            except TimeoutError:
                return Answer.text(408, "the request's body did not arrive within its timeout; send it whole")
            except NoRoom:
                return _busy("more bytes of reviews than it has memory for")
            key = self._key(body)
            if not await self._turns.take(key, until):
                return _busy("more reviews than it can evaluate")
            try:
                begun = request.begun or self._reviewer.begin(endpoint, body, verified=request.connection.verified)
                return Answer(200, begun if isinstance(begun, bytes) else await self._reviewer.finish(begun, deadline))
            finally:
                self._turns.give(key)
        finally:
            share.give()

    def _key(self, body: bytes) -> str:
        """Whose turn a review takes: namespaces that do not exist share theirs, since any client can invent names."""
        namespace = namespace_of(body)
        return namespace if self._reviewer.is_watched(namespace) else ""

    def _served(self, path: str, request: HttpRequest, answer: Answer) -> Answer:
        request.end = time.monotonic()
        self._traffic.on_served(path, answer.status, request.end - request.start)
        return answer

    def _crash_answer(self, path: str, error: Exception) -> Answer:
        self._traffic.on_crash(path, error)
        return Answer.text(500, "internal error; see the kubevirt-webhook log")


def _unfit(request: HttpRequest) -> Answer | None:
    """Why the head of a request cannot belong to a review."""
    head = request.head
    if head.method != "POST":
        return Answer.text(405, f"{head.method} is not answered here; POST an AdmissionReview", b"Allow: POST\r\n")
    if head.content_type.partition(";")[0].strip().lower() != "application/json":
        content_type = head.content_type[:100] or "none"
        return Answer.text(415, f"the content type is {content_type}; send application/json")
    if head.is_encoded:
        return Answer.text(415, "the body is encoded; send JSON as it is")
    return None


async def _body(request: HttpRequest, deadline: float, share: Share) -> bytes:
    """The whole body, its bytes taken from a budget.

    Raises:
        TimeoutError: it was not there by the deadline.
        NoRoom: there was none for it.
        BodyTooLarge: it is larger than `MAX_BODY`.
    """
    announced = MAX_BODY if request.announced is None else request.announced
    if announced > MAX_BODY:
        raise BodyTooLarge
    if request.body is not None:
        # As good as always: the API server sends head and body together.
        await share.take(len(request.body))
        return request.body
    # A large one takes all at once: two of them, half read, could wait for each other. Everyday ones take what has
    # arrived, so that it isn't enough to announce them to be in everybody's way.
    at_once = announced > EVERYDAY
    if at_once:
        await share.take(announced)
    pieces: list[bytes] = []
    size = 0
    async with asyncio.timeout_at(deadline):
        while piece := await request.read():
            size += len(piece)
            if size > MAX_BODY:
                raise BodyTooLarge
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


def _busy(what: str) -> Answer:
    return Answer.text(429, f"kubevirt-webhook has {what}; try again", b"Retry-After: 1\r\n")
