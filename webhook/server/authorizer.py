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
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from cachetools import TLRUCache

from webhook.admission.wire import UserInfo
from webhook.cluster.source import Cluster
from webhook.facts import AccessKey, Facts, TokenKey
from webhook.policies.common.required_facts import read
from webhook.review.driver import drive
from webhook.server.answers import RequestDenied
from webhook.server.fair_queue import FairQueue
from webhook.server.guard import PATIENCE_SECONDS, guard_of

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
        # By the token's digest, until when it counts.
        self._kept: Final = TLRUCache[bytes, tuple[float, RequestDenied | None]](
            MAX_KEPT, lambda _, kept, _now: kept[0]
        )

    async def admit(self, token: str, client: str) -> None:
        """Return if the token's user may get the path.

        Raises:
            RequestDenied: the user may not, or the client has too many tokens reviewed.
            Unreadable: the API server did not answer.
        """

        async def check(facts: Facts) -> RequestDenied | None:
            try:
                user = await user_of(token, facts)
                required = [AccessKey.of_path(user, "get", self._path)]
                await authorize(user, required, facts, shown="which this listener requires")
            except RequestDenied as denied:
                return denied.with_traceback(None)
            return None

        digest = hashlib.sha256(token.encode()).digest()
        kept = self._kept.get(digest)
        if kept is None:
            until = time.monotonic() + KEPT_SECONDS
            kept = until, await self.evaluate(check, client)
            self._kept[digest] = kept
        if denial := kept[1]:
            # Another one each time: an exception that is raised again keeps the frames of before.
            raise RequestDenied(denial.status, denial.sentence, denial.headers)

    async def evaluate(self, question: Callable[[Facts], Coroutine[Any, Any, T]], client: str) -> T:
        """The answer of a coroutine that awaits facts, with a question's share of the client, an IP address.

        Raises:
            RequestDenied: there are too many questions, or what the coroutine raises.
            Unreadable: what the coroutine raises.
        """
        now = asyncio.get_running_loop().time()
        if not await self._questions.take(client, now + PATIENCE_SECONDS):
            raise RequestDenied(429, "too many tokens are being reviewed; try again", _RETRY)
        try:
            facts = Facts(peek=self._cluster.peek)
            return await drive(question(facts), self._cluster, facts, now + DEADLINE_SECONDS, self._path)
        finally:
            self._questions.give(client)


def limited(open_paths: Collection[str] = (), *, names_host: bool) -> Middleware:
    """A middleware: the limit of requests that cost something.

    Args:
        open_paths: those that any client may get, at any pace.
        names_host: whether requests must name a loopback address. A page in a user's browser can reach one under a name
            of its own that points there (DNS rebinding).
    """

    @web.middleware
    async def limit(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in open_paths or request.match_info.http_exception is not None:
            guard = guard_of(request)
            if not await guard.listener.limiter.wait(guard.client):
                raise RequestDenied(429, "this client sends more requests than are answered; try again", _RETRY)
        if names_host and not _is_loopback(request.headers.get("Host", "")):
            raise RequestDenied(403, "the request names another host; use 127.0.0.1 or localhost")
        return await handler(request)

    return limit


def _is_loopback(host: str) -> bool:
    name, colon, port = host.lower().rpartition(":")
    return (name if colon and port.isdigit() else host.lower()) in _LOOPBACK_HOSTS


class InFlight:
    """Bounds the requests that are answered at the same time, shared by clients."""

    def __init__(self) -> None:
        self._seats: Final = FairQueue(MAX_IN_FLIGHT)

    @asynccontextmanager
    async def seat(self, request: web.Request) -> AsyncIterator[None]:
        """A seat for a request; a `RequestDenied` where there is none in time."""
        client = guard_of(request).client
        if not await self._seats.take(client, asyncio.get_running_loop().time() + PATIENCE_SECONDS):
            raise RequestDenied(429, "too many requests are being answered; try again", _RETRY)
        try:
            yield
        finally:
            self._seats.give(client)


def token_of(headers: Mapping[str, str]) -> str:
    """The bearer's token; `RequestDenied` where there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise RequestDenied(401, "the request has no token; send Authorization: Bearer TOKEN", _BEARER)
    return token


async def user_of(token: str, facts: Facts) -> UserInfo:
    """The user of a bearer token.

    Raises:
        RequestDenied: the API server does not accept the token.
        Unreadable: the user is not known now.
    """
    user = await read(facts, TokenKey(token), "whose token this is")
    if user is None:
        raise RequestDenied(401, "the API server does not accept this token; get a new one", _BEARER)
    return user


async def authorize(user: UserInfo, rights: Sequence[AccessKey], facts: Facts, *, shown: str) -> None:
    """Check that a user has all permissions; ``shown`` says why they are needed, as a clause.

    Raises:
        RequestDenied: one is missing.
        Unreadable: whether the user has one is not known now.
    """
    await facts.prefetch(*rights)
    for right in rights:
        if not await may(right, facts):
            raise RequestDenied(403, f"{user.username} may not {right}, {shown}; ask an administrator for it")


async def may(right: AccessKey, facts: Facts) -> bool:
    """Whether the user of a permission has it; where that is not known now, it raises `Unreadable`."""
    answer: bool | None = await read(facts, right, "what the bearer of this token may do")
    return bool(answer)
