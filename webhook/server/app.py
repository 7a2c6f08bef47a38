"""The request path: limits, deadline, one review, one answer."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from webhook.review.endpoints import Endpoint
from webhook.review.reviewer import Evaluation, Reviewer, encode
from webhook.server.edge import EVERYDAY_BYTES, PREFIX_BYTES, Application, Limits, Server, TrafficObserver, problem_of
from webhook.server.fair_queue import FairQueue, namespace_of
from webhook.server.request import Answer, Head, HttpRequest, Overload
from webhook.server.senders import SenderVerifier
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
    kept_bytes=16 * 1024 * 1024,
    room_bytes=4 * MAX_BODY,
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


class App(Application):
    """Answers HTTP requests at the endpoints.

    Args:
        reviewer: evaluates the reviews.
        endpoints: the endpoints by path.
        traffic: gets every request at an endpoint.
        max_in_flight: reviews that are evaluated concurrently; more wait for their seat, and so do those of a namespace
            that has its share.
        clients: names that a client's certificate may have; empty: no certificate is needed.

    Attributes:
        in_flight: requests that tasks are answering; those that are answered without a task do not count.
        listener: the server, once it was made.
        senders: verifies the tokens of API servers; None: no token counts.
    """

    def __init__(
        self,
        reviewer: Reviewer,
        endpoints: Mapping[str, Endpoint],
        traffic: TrafficObserver,
        max_in_flight: int,
        clients: Collection[str] = (),
    ) -> None:
        self._reviewer: Final = reviewer
        self._endpoints: Final = endpoints
        self._traffic: Final = traffic
        self._seats: Final = FairQueue(max_in_flight)
        # A large body takes the processor for a tenth of a second: between two of them come others.
        self._large: Final = FairQueue(_LARGE_IN_FLIGHT)
        self._clients: Final = clients
        self.in_flight = 0
        self.listener: Server | None = None
        self.senders: SenderVerifier | None = None

    def server(self) -> Server:
        """The server of this app; make it inside the running loop."""
        self.listener = Server(self, LIMITS, clients=self._clients)
        return self.listener

    @property
    def taken_bytes(self) -> int:
        """Memory that the requests in progress take, in bytes."""
        return self.listener.taken_bytes if self.listener else 0

    def answer_from_head(self, request: HttpRequest) -> Answer | None:
        """Why the head of a request cannot belong to a review; None: it can."""
        head = request.head
        path = head.path
        if path not in self._endpoints:
            hint = "`kubevirt-webhook manifests webhooks` prints all"
            return Answer.text(404, f"there is no endpoint {path[:200]}; {hint}")
        if request.connection.rejection:
            answer = Answer.text(403, request.connection.rejection)
        elif head.method != "POST":
            answer = Answer.text(405, f"{head.method} is not answered here; POST an AdmissionReview", {"Allow": "POST"})
        elif head.content_type.partition(";")[0].strip().lower() != "application/json":
            answer = Answer.text(415, f"the content type is {head.content_type[:100] or 'none'}; send application/json")
        elif head.is_encoded:
            answer = Answer.text(415, "the body is encoded; send JSON as it is")
        else:
            return None
        return self._served(request, answer)

    def verify(self, head: Head) -> float | None:
        """Until when the head's token proves that an API server sends, as `SenderVerifier.verify` has it."""
        endpoint = self._endpoints.get(head.path)
        if endpoint is None or self.senders is None or self._clients:
            return 0.0
        return self.senders.verify(head.headers["authorization"], endpoint.path, endpoint.group)

    def answer_at_once(self, request: HttpRequest) -> Answer | None:
        """The answer to a review that needs nothing but what is in memory; None: it takes `answer`."""
        head, connection, body = request.head, request.connection, request.body
        path = head.path
        endpoint = self._endpoints.get(path)
        is_usual = head.method == "POST" and head.content_type == "application/json" and not head.is_encoded
        if endpoint is None or connection.rejection or not is_usual or len(body) > EVERYDAY_BYTES:
            return None
        # It takes no seat for good: no other request is evaluated before it is done. With none in flight, all are free.
        if self.in_flight and not self._seats.is_free(self._key(body)):
            return None
        try:
            verified = connection.verified or request.start < connection.verified_until
            pending = self._reviewer.evaluate_from_memory(endpoint, body, verified=verified)
            review = encode(pending) if isinstance(pending, Evaluation) else None
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            return self._served(request, Answer.text(*problem_of(error, path, self._traffic)))
        if review is not None:
            return self._served(request, Answer(200, review))
        request.pending = pending
        return None

    async def answer(self, request: HttpRequest) -> Answer:
        """The answer to any request; no exception but a cancellation leaves."""
        if answer := self.answer_from_head(request):
            return answer
        path = request.head.path
        self.in_flight += 1
        try:
            answer = await self._answer_review(self._endpoints[path], request)
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            answer = Answer.text(*problem_of(error, path, self._traffic))
        finally:
            self.in_flight -= 1
        return self._served(request, answer or self._denial(request, Overload.NO_SEAT, request.body))

    def overloaded(self, request: HttpRequest, overload: Overload, prefix: bytes) -> Answer:
        """The answer to a review that has no room or no seat, or whose body is late or too large.

        It is an AdmissionReview, or the API server would do as the entry's failurePolicy says, and any client could
        switch a policy off. Only where the body's beginning has no uid it is an HTTP error. What is no review, but is
        given up while it waits for its client to read, is answered from its head alone.
        """
        return self.answer_from_head(request) or self._served(request, self._denial(request, overload, prefix))

    def patience(self, request: HttpRequest) -> float:
        """The part of the timeout that a review may wait, however long the client says that it does."""
        is_large = request.length is None or request.length > EVERYDAY_BYTES
        share = LARGE_PATIENCE if is_large else PATIENCE
        return min(timeout_of(request.head.query), DEFAULT_TIMEOUT) * MARGIN * share

    async def _answer_review(self, endpoint: Endpoint, request: HttpRequest) -> Answer | None:
        """The answer to a review, once it has its seat, and look-ups have been made; None: it got no seat in time."""
        body = request.body
        key = self._key(body)
        until = request.start + self.patience(request)
        deadline = request.start + timeout_of(request.head.query) * MARGIN
        is_large = len(body) > EVERYDAY_BYTES
        if is_large and not await self._large.take(key, until):
            return None
        try:
            if not await self._seats.take(key, until):
                return None
            try:
                review = request.pending
                if review is None:
                    if is_large and time.monotonic() > until:
                        # What was waited for may have been the processor.
                        return None
                    connection = request.connection
                    verified = connection.verified or request.start < connection.verified_until
                    review = self._reviewer.evaluate_from_memory(endpoint, body, verified=verified)
                if not isinstance(review, Evaluation):
                    review = await self._reviewer.evaluate_pending(review, deadline)
                return Answer(200, encode(review))
            finally:
                self._seats.give(key)
        finally:
            if is_large:
                self._large.give(key)

    def _denial(self, request: HttpRequest, overload: Overload, body: bytes) -> Answer:
        endpoint = self._endpoints[request.head.path]
        try:
            review = self._reviewer.overloaded(endpoint, body[:PREFIX_BYTES], overload.clause, overload.denial)
        except Exception as error:  # noqa: BLE001 - the edge, too
            return Answer.text(*problem_of(error, endpoint.path, self._traffic))
        return Answer(200, review) if review else overload.answer()

    def _key(self, body: bytes) -> str:
        """Whose seat a review takes: namespaces that do not exist share theirs, since any client can invent names."""
        namespace = namespace_of(body)
        return namespace if self._reviewer.cluster.has_namespace(namespace) else ""

    def _served(self, request: HttpRequest, answer: Answer) -> Answer:
        request.end = time.monotonic()
        self._traffic.on_served(request.head.path, answer.status, request.end - request.start)
        return answer


@lru_cache(maxsize=64)
def timeout_of(query: str) -> float:
    """Seconds in ``timeout=`` of a query string, a Go duration as the API server sends it; else `DEFAULT_TIMEOUT`."""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name == "timeout" and (seconds := parse_duration(value)) is not None:
            # The API server allows a webhook 30 s at most.
            return min(seconds, 30.0) if seconds > 0 else DEFAULT_TIMEOUT
    return DEFAULT_TIMEOUT
