"""The webhooks: from a request to a review, and from its answer to a response of aiohttp."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from functools import lru_cache, partial
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from webhook.policy import Endpoint
from webhook.review.reviewer import Reviewer
from webhook.server.answers import (
    JSON,
    Overload,
    OverloadError,
    RequestDenied,
    TrafficObserver,
    errors_to_answers,
    response,
    text,
)
from webhook.server.bodies import EVERYDAY_BYTES, RequestBody
from webhook.server.fair_queue import FairQueue, namespace_of
from webhook.server.guard import Guard, Limits, guard_of
from webhook.server.listener import Listener
from webhook.server.senders import SenderVerifier, VerifiedToken
from webhook.text import parse_duration

# A review holds an object and its old state; etcd takes objects up to 1.5 MiB, JSON may double that, managedFields and
# the envelope come on top. controller-runtime came to the same figure (pkg/webhook/admission/http.go).
MAX_BODY: Final = 7 * 1024 * 1024

LIMITS: Final = Limits(
    # An API server makes a connection for each concurrent call: by default it answers 600 requests (APF seats).
    per_client=768,
    connections=1536,
    # Idle connections of the API server live for 90 s (net/http). A server that closes one earlier may do so just as a
    # request arrives, and a POST is not repeated.
    keep_alive_seconds=120.0,
    # A client keeps its connections to the replicas that were there when it made them: recycled by age, they spread
    # over those that are there now. A handshake in five minutes costs no client much.
    lifetime_seconds=300.0,
    abort_seconds=float("inf"),
    body_bytes=MAX_BODY,
    # Decoded, a body may take several times that, and the pod's limit is 512 MiB.
    counted_bytes=16 * 1024 * 1024,
    reserved_bytes=4 * MAX_BODY,
)
_LARGE_IN_FLIGHT: Final = 4

# Where the API server names no timeout, it is the longest one of the webhook configurations.
DEFAULT_TIMEOUT: Final = 3.0
# The part of the timeout that is kept for the way back.
MARGIN: Final = 0.9
# How much of the deadline a request may wait for its body and its seat, before it is not evaluated.
PATIENCE: Final = 0.8
# A large body takes longer at every step, and the API server's clock ran while it wrote it. An answer that comes too
# late would be an error, and so what the entry's failurePolicy says.
LARGE_PATIENCE: Final = 0.5
_HINT: Final = "`kubevirt-webhook manifests webhooks` prints all endpoints"


class ReviewApp:
    """Answers admission reviews at the endpoints.

    Args:
        reviewer: evaluates the reviews.
        endpoints: the endpoints by path.
        traffic: gets every request at an endpoint.
        max_in_flight: reviews that are evaluated concurrently; more wait for their seat, and so do those of a namespace
            that has its share.
        clients: names that a client's certificate may have; empty: no certificate is needed.
        middlewares: more of them, around each review.

    Attributes:
        listener: the connections.
        senders: verifies the tokens of API servers; None: no token counts.
    """

    def __init__(
        self,
        reviewer: Reviewer,
        endpoints: Mapping[str, Endpoint],
        traffic: TrafficObserver,
        max_in_flight: int,
        clients: Collection[str] = (),
        middlewares: Collection[Middleware] = (),
    ) -> None:
        self._reviewer: Final = reviewer
        self._endpoints: Final = endpoints
        self._traffic: Final = traffic
        self._seats: Final = FairQueue(max_in_flight)
        # A large body takes the processor for a tenth of a second: between two of them come others.
        self._large: Final = FairQueue(_LARGE_IN_FLIGHT)
        self._clients: Final = clients
        self.senders: SenderVerifier | None = None
        application = web.Application(
            middlewares=[self._count, errors_to_answers(traffic, _HINT), *middlewares],
        )
        for endpoint in endpoints.values():
            application.router.add_post(endpoint.path, partial(self._review, endpoint))
        self.listener: Final = Listener(application, LIMITS)

    @property
    def in_flight(self) -> int:
        """Requests that are being answered."""
        return self.listener.in_flight

    @property
    def request_bytes(self) -> int:
        """As `Listener.request_bytes`."""
        return self.listener.request_bytes

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Report every answer at an endpoint."""
        started = guard_of(request).started
        answer = await handler(request)
        if request.path in self._endpoints:
            self._traffic.on_served(request.path, answer.status, time.monotonic() - started)
        return answer

    async def _review(self, endpoint: Endpoint, request: web.Request) -> web.Response:
        """The answer to a request at an endpoint."""
        guard = guard_of(request)
        self._check_client(guard)
        _check_head(request)
        verified = bool(self._clients) or self._is_verified_by_token(endpoint, request, guard)
        with RequestBody(request, guard) as body:
            overload = Overload.NO_MEMORY
            try:
                async with asyncio.timeout(None) as guard.answering:
                    return response(200, await self._evaluate(endpoint, request, body, verified=verified))
            except OverloadError as error:
                overload = error.overload
            except TimeoutError:
                if not guard.has_lost_bytes:
                    raise
            return self._overloaded(endpoint, overload, body.prefix)

    async def _evaluate(self, endpoint: Endpoint, request: web.Request, body: RequestBody, *, verified: bool) -> bytes:
        """The answer to a review, once its body has come and it has its seat.

        Raises:
            OverloadError: it has not in time.
        """
        loop = asyncio.get_running_loop()
        timeout = timeout_of(request.query.get("timeout", ""))
        # The time began with the request's head.
        start = loop.time() - (time.monotonic() - guard_of(request).started)
        until = start + patience_of(timeout, is_large=body.is_large)
        deadline = start + timeout * MARGIN
        data = await body.read(until)
        key = self._key(data)
        is_large = len(data) > EVERYDAY_BYTES
        if is_large and not await self._large.take(key, until):
            raise OverloadError(Overload.NO_SEAT)
        try:
            # What was waited for may have been the processor.
            if not await self._seats.take(key, until) or (is_large and loop.time() > until):
                raise OverloadError(Overload.NO_SEAT)
            try:
                return await self._reviewer.review(endpoint, data, deadline, verified=verified)
            finally:
                self._seats.give(key)
        finally:
            if is_large:
                self._large.give(key)

    def _overloaded(self, endpoint: Endpoint, overload: Overload, prefix: bytes) -> web.Response:
        """The answer to a review that has no memory or no seat, or whose body is late or too large.

        It is an AdmissionReview, or the API server would do as the entry's failurePolicy says, and any client could
        switch a policy off. Only where the body's beginning has no uid it is an HTTP error.
        """
        review = self._reviewer.overloaded(endpoint, prefix, overload.clause, overload.denial_code)
        if review:
            return response(200, review)
        return text(overload.status, overload.sentence, overload.headers)

    def _check_client(self, guard: Guard) -> None:
        """Deny a client that has none of the certificates that are needed."""
        if self._clients and not (guard.client_name and guard.client_name in self._clients):
            got = f"{guard.client_name[:100]} is none of those" if guard.client_name else "the client has none"
            raise RequestDenied(
                403,
                f"this webhook answers only clients with a certificate of {' or '.join(sorted(self._clients))},"
                f" and {got}; give the API server one with --admission-control-config-file",
            )

    def _is_verified_by_token(self, endpoint: Endpoint, request: web.Request, guard: Guard) -> bool:
        """Whether the request's token proves that an API server sends it; what was found is kept for the connection."""
        authorization = request.headers.get(hdrs.AUTHORIZATION, "")
        if not authorization or self.senders is None:
            return False
        known = guard.verified_token
        if known is None or known[:2] != (authorization, endpoint.path):
            until = self.senders.verify(authorization, endpoint.path, endpoint.group)
            # None: its key is not known yet; the next request's token may be verified.
            known = None if until is None else VerifiedToken(authorization, endpoint.path, until)
            guard.verified_token = known
        return known is not None and guard.started < known.until

    def _key(self, body: bytes) -> str:
        """Whose seat a review takes: namespaces that do not exist share theirs, since any client can invent names."""
        namespace = namespace_of(body)
        return namespace if self._reviewer.cluster.has_namespace(namespace) else ""


def _check_head(request: web.Request) -> None:
    if request.content_type != JSON:
        kind = request.headers.get(hdrs.CONTENT_TYPE, "")[:100]
        raise RequestDenied(415, f"the content type is {kind or 'none'}; send {JSON}")
    if hdrs.CONTENT_ENCODING in request.headers:
        raise RequestDenied(415, "the body is encoded; send JSON as it is")


def patience_of(timeout: float, *, is_large: bool) -> float:
    """The part of the timeout that a review may wait for its body and its seat, however long the client waits."""
    return min(timeout, DEFAULT_TIMEOUT) * MARGIN * (LARGE_PATIENCE if is_large else PATIENCE)


@lru_cache(maxsize=64)
def timeout_of(text: str) -> float:
    """Seconds of a request's ``timeout``, a Go duration as the API server sends it; else `DEFAULT_TIMEOUT`."""
    seconds = parse_duration(text)
    # The API server allows a webhook 30 s at most.
    return min(seconds, 30.0) if seconds and seconds > 0 else DEFAULT_TIMEOUT
