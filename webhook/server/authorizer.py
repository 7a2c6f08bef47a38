"""Who gets an answer of a listener that is not for the API server, and in which order that is found out.

    limit ─▶ authenticate ─▶ authorize ─▶ in flight ─▶ answer

A client that comes too often waits, and then gets 429. A token is sent to the API server: a TokenReview finds its user,
and SubjectAccessReviews whether RBAC permits them what the listener shows. Only then a request counts among those in
flight. Each of these is shared by clients, so that one with made-up tokens keeps no other from an answer. On a loopback
address, which in a pod means ``kubectl port-forward``, no token is needed.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from cachetools import LRUCache

from webhook.admission.wire import UserInfo
from webhook.cluster.source import Cluster
from webhook.facts import AccessKey, Facts, TokenKey
from webhook.policies.common.required_facts import read
from webhook.review.replay import replay
from webhook.server.edge import (
    PATIENCE_SECONDS,
    Application,
    Limits,
    RequestDenied,
    Server,
    TrafficObserver,
    problem_of,
    serving,
)
from webhook.server.fair_queue import FairQueue
from webhook.server.request import Answer, HttpRequest

T = TypeVar("T")

# The answer about a token is kept for some seconds, by its digest: neither scrapers nor guessers cause an API request
# each.
KEPT_SECONDS: Final = 10.0
MAX_KEPT: Final = 64
# Questions to the API server at the same time.
MAX_QUESTIONS: Final = 8
DEADLINE_SECONDS: Final = 10.0
# What one answer costs grows with the nodes or namespaces, and reviews share the processor.
MAX_IN_FLIGHT: Final = 8

_LOOPBACK_HOSTS: Final = ("127.0.0.1", "[::1]", "localhost")
_RETRY: Final = {"Retry-After": "1"}
_BEARER: Final = {"WWW-Authenticate": "Bearer"}


class Authorizer:
    """Checks tokens by questions to the API server, of which each client has its share.

    Args:
        cluster: the source of facts.
        path: the path that the token's users must be permitted to ``get``, as a ``nonResourceURL`` of RBAC.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        self._cluster: Final = cluster
        self._path: Final = path
        self._questions: Final = FairQueue(MAX_QUESTIONS)
        self._kept: Final = LRUCache[bytes, tuple[float, RequestDenied | None]](MAX_KEPT)

    async def admit(self, token: str, client: str) -> None:
        """Return if the token's user may get the path.

        Raises:
            RequestDenied: the user may not, or the client has too many tokens reviewed.
            Unreadable: the API server did not answer.
        """

        def check(facts: Facts) -> RequestDenied | None:
            try:
                user = user_of(token, facts)
                required = [AccessKey.of_path(user, "get", self._path)]
                authorize(user, required, facts, shown="which this listener requires")
            except RequestDenied as denied:
                return denied.with_traceback(None)
            return None

        now = asyncio.get_running_loop().time()
        digest = hashlib.sha256(token.encode()).digest()
        until, denial = self._kept.get(digest) or (0.0, None)
        if now >= until:
            denial = await self.evaluate(check, client)
            self._kept[digest] = now + KEPT_SECONDS, denial
        if denial:
            # Another one each time: an exception that is raised again keeps the frames of before.
            raise RequestDenied(denial.status, denial.sentence, denial.headers)

    async def evaluate(self, decide: Callable[[Facts], T], client: str) -> T:
        """What a function makes of facts, with a question's share of the client, an IP address.

        Raises:
            RequestDenied: there are too many questions, or what the function raises.
            Unreadable: what the function raises.
        """
        now = asyncio.get_running_loop().time()
        if not await self._questions.take(client, now + PATIENCE_SECONDS):
            raise RequestDenied(429, "too many tokens are being reviewed; try again", _RETRY)
        try:
            facts = Facts(peek=self._cluster.peek)
            return await replay(decide, self._cluster, facts, now + DEADLINE_SECONDS, self._path)
        finally:
            self._questions.give(client)


class GuardedApplication(Application):
    """What answers the requests of one listener: the ladder, which has the same rungs for all.

    Args:
        path: names the listener where an exception is reported.
        traffic: gets exceptions.
        authorizer: checks tokens; None: none is needed.

    Attributes:
        methods: those that are answered.
        checks_host: whether a listener that needs no token is on a loopback address, so that requests must name one.
        max_in_flight: requests that are answered concurrently, shared by clients; 0: there is no limit.
    """

    methods: tuple[str, ...] = ("GET", "HEAD")
    checks_host = True
    max_in_flight = MAX_IN_FLIGHT

    def __init__(self, path: str, traffic: TrafficObserver, authorizer: Authorizer | None) -> None:
        self._path: Final = path
        self._traffic: Final = traffic
        self._authorizer: Final = authorizer
        self._in_flight: Final = FairQueue(self.max_in_flight) if self.max_in_flight else None

    def server(self) -> Server:
        """The server; make it inside the running loop."""
        return Server(self, Limits())

    @asynccontextmanager
    async def listening(self, address: str, tls: ssl.SSLContext, what: str, seconds: float) -> AsyncIterator[str]:
        """As `webhook.server.edge.serving`, with TLS where tokens are needed; gives the listener's URL."""
        context = tls if self._authorizer else None
        async with serving(self.server(), address, context, what, seconds) as bound:
            yield f"{'https' if context else 'http'}://{bound}"

    # What a listener has of its own; each of these may raise what `problem_of` knows.

    async def open_answer(self, request: HttpRequest) -> Answer | None:
        """The answer to a request that any client may send, at any pace; None: the others' rules apply."""

    async def authorize(self, request: HttpRequest, token: str) -> Any:
        """Find out whether the client, or the bearer of a token, may get an answer; what it may see is the result."""
        if self._authorizer:
            await self._authorizer.admit(token, request.connection.client)
        return token

    async def serve(self, request: HttpRequest, permission: Any) -> Answer:
        """The answer to a request whose client has got that far, with the result of `authorize`."""
        raise NotImplementedError

    async def problem(self, status: int, sentence: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a request that gets nothing else."""
        return Answer.text(status, sentence, headers)

    async def answer(self, request: HttpRequest) -> Answer:
        """The answer to any request; no exception but a cancellation leaves."""
        try:
            return await self._climb(request)
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            problem = problem_of(error, self._path, self._traffic)
        return await self.problem(*problem)

    async def _climb(self, request: HttpRequest) -> Answer:
        """Limit, authenticate, authorize, in flight, answer."""
        head, connection = request.head, request.connection
        client: str = connection.client
        misfit = self._misfit(request)
        if misfit is None and (answer := await self.open_answer(request)):
            return answer
        if not await connection.server.limiter.wait(client):
            raise RequestDenied(429, "this client sends more requests than are answered; try again", _RETRY)
        # Only now: a page that says what is missing costs as much as any other.
        if misfit:
            raise misfit
        permission = await self.authorize(request, token_of(head.headers) if self._authorizer else "")
        if self._in_flight is None:
            return await self.serve(request, permission)
        if not await self._in_flight.take(client, asyncio.get_running_loop().time() + PATIENCE_SECONDS):
            raise RequestDenied(429, "too many requests are being answered; try again", _RETRY)
        try:
            return await self.serve(request, permission)
        finally:
            self._in_flight.give(client)

    def _misfit(self, request: HttpRequest) -> RequestDenied | None:
        """Why a request is none of this listener's, of any client.

        A page in a user's browser can reach a loopback address under a name of its own that points there (DNS
        rebinding), so that the request must name such an address itself.
        """
        if request.head.method not in self.methods:
            allowed = {"Allow": ", ".join(self.methods)}
            return RequestDenied(405, f"this method is not answered here; use {self.methods[0]}", allowed)
        host = request.head.headers.get("host", "").lower()
        name, colon, port = host.rpartition(":")
        is_local = self.checks_host and not self._authorizer
        if is_local and (name if colon and port.isdigit() else host) not in _LOOPBACK_HOSTS:
            return RequestDenied(403, "the request names another host; use 127.0.0.1 or localhost")
        return None


def token_of(headers: Mapping[str, str]) -> str:
    """The bearer's token; `RequestDenied` where there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise RequestDenied(401, "the request has no token; send Authorization: Bearer TOKEN", _BEARER)
    return token


def user_of(token: str, facts: Facts) -> UserInfo:
    """The user of a bearer token.

    Raises:
        RequestDenied: the API server does not accept the token.
        Unreadable: the user is not known now.
    """
    user = read(facts, TokenKey(token), "whose token this is")
    if user is None:
        raise RequestDenied(401, "the API server does not accept this token; get a new one", _BEARER)
    return user


def authorize(user: UserInfo, rights: Sequence[AccessKey], facts: Facts, *, shown: str) -> None:
    """Check that a user has all permissions; ``shown`` says why they are needed, as a clause.

    Raises:
        RequestDenied: one is missing.
        Unreadable: whether the user has one is not known now.
    """
    facts.need(*rights)
    for right in rights:
        if not may(right, facts):
            raise RequestDenied(403, f"{user.username} may not {right}, {shown}; ask an administrator for it")


def may(right: AccessKey, facts: Facts) -> bool:
    """Whether the user of a permission has it; where that is not known now, it raises `Unreadable`."""
    answer: bool | None = read(facts, right, "what the bearer of this token may do")
    return bool(answer)
