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
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

from webhook.admission.wire import UserInfo
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.facts import AccessKey, Facts, TokenKey
from webhook.policies.common.required_facts import Unreadable, access_to_path, read
from webhook.review.replay import replay
from webhook.server.edge import PATIENCE_SECONDS, Application, Limits, Server, serving
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


class RequestDenied(Exception):  # noqa: N818 - an answer
    """A request that gets nothing.

    Args:
        status: the HTTP status.
        sentence: why, and what to do.
        headers: of the answer.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status: Final = status
        self.sentence: Final = sentence
        self.headers: Final = headers or {}


class CrashObserver(Protocol):
    """Gets the exceptions of a listener."""

    def on_crash(self, path: str, error: BaseException) -> None:
        """An exception reached the edge of the server: a bug."""


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
        self._kept: Final[OrderedDict[bytes, tuple[float, RequestDenied | None]]] = OrderedDict()

    async def admit(self, token: str, client: str) -> None:
        """Return if the token's user may get the path.

        Args:
            token: the bearer's token.
            client: the client's IP address.

        Raises:
            RequestDenied: the user may not, or the client has too many tokens reviewed.
            Unreadable: the API server did not answer.
        """
        now = asyncio.get_running_loop().time()
        digest = hashlib.sha256(token.encode()).digest()
        until, denial = self._kept.get(digest, (0.0, None))
        if now >= until:
            denial = await self._ask(token, client)
            self._kept[digest] = now + KEPT_SECONDS, denial
            self._kept.move_to_end(digest)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        if denial:
            # Another one each time: an exception that is raised again keeps the frames of before.
            raise RequestDenied(denial.status, denial.sentence, denial.headers)

    async def evaluate(self, decide: Callable[[Facts], T], client: str) -> T:
        """What a function makes of facts, with a question's share of the client.

        Args:
            decide: the function.
            client: the client's IP address.

        Raises:
            RequestDenied: there are too many questions, or what the function raises.
            Unreadable: what the function raises.
        """
        now = asyncio.get_running_loop().time()
        if not await self._questions.take(client, now + PATIENCE_SECONDS):
            raise RequestDenied(429, "too many tokens are being reviewed; try again", _RETRY)
        try:
            return await replay(
                decide, self._cluster, Facts(peek=self._cluster.peek), now + DEADLINE_SECONDS, self._path
            )
        finally:
            self._questions.give(client)

    async def _ask(self, token: str, client: str) -> RequestDenied | None:
        """Why the API server says no; None: it says yes."""

        def check(facts: Facts) -> RequestDenied | None:
            try:
                user = user_of(token, facts)
                right = {f"get {self._path}": access_to_path(user, "get", self._path)}
                authorize(user, right, facts, shown="which this listener requires")
            except RequestDenied as denial:
                return denial.with_traceback(None)
            return None

        return await self.evaluate(check, client)


class GuardedApplication(Application):
    """What answers the requests of one listener: the ladder, which has the same rungs for all.

    Args:
        path: names the listener where an exception is reported.
        traffic: gets exceptions.
        authorizer: checks tokens; None: none is needed.
        loopback: whether the listener is on a loopback address, so that the request must name one.
        max_in_flight: requests that are answered concurrently, shared by clients; 0: there is no limit.

    Attributes:
        methods: those that are answered.
        limits: of the listener.
    """

    methods: tuple[str, ...] = ("GET", "HEAD")
    limits = Limits()

    def __init__(
        self,
        path: str,
        traffic: CrashObserver,
        *,
        authorizer: Authorizer | None = None,
        loopback: bool = False,
        max_in_flight: int = 0,
    ) -> None:
        self._path: Final = path
        self._traffic: Final = traffic
        self._authorizer: Final = authorizer
        self._loopback: Final = loopback
        self._in_flight: Final = FairQueue(max_in_flight) if max_in_flight else None

    def server(self) -> Server:
        """The server; make it inside the running loop."""
        return Server(self, self.limits)

    @asynccontextmanager
    async def listening(self, address: str, tls: ssl.SSLContext, what: str, seconds: float) -> AsyncIterator[str]:
        """As `webhook.server.edge.serving`, with TLS where tokens are needed; gives the listener's URL."""
        context = tls if self._authorizer else None
        async with serving(self.server(), address, context, what, seconds) as bound:
            yield f"{'https' if context else 'http'}://{bound}"

    # -- what a listener has of its own --------------------------------------------------------------------------------

    async def open_answer(self, request: HttpRequest) -> Answer | None:
        """The answer to a request that any client may send, at any pace; None: the others' rules apply.

        Raises:
            RequestDenied: there is nothing at the path.
        """
        del request
        return None

    async def authorize(self, request: HttpRequest, token: str) -> Any:
        """Find out whether the client may get an answer; what it may see is the result.

        Args:
            request: the request.
            token: the bearer's token; empty: none is needed.

        Raises:
            RequestDenied: it may not.
            InputError: the request is not valid.
            Unreadable: it is not known now.
        """
        if self._authorizer:
            await self._authorizer.admit(token, request.connection.client)
        return token

    async def serve(self, request: HttpRequest, permission: Any) -> Answer:
        """The answer to a request whose client has got that far.

        Args:
            request: the request.
            permission: the result of `authorize`.

        Raises:
            RequestDenied: the request is denied all the same.
            InputError: the request is not valid.
            Unreadable: the answer is not known now.
        """
        raise NotImplementedError

    async def problem(self, status: int, sentence: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a request that gets nothing else."""
        return Answer.text(status, sentence, headers)

    # -- the same for all ----------------------------------------------------------------------------------------------

    async def answer(self, request: HttpRequest) -> Answer:
        """The answer to any request; no exception but a cancellation leaves."""
        try:
            return await self._climb(request)
        except RequestDenied as denial:
            problem = denial.status, denial.sentence, denial.headers
        except InputError as error:
            problem = 400, str(error), {}
        except Unreadable as error:
            problem = 503, f"the answer is not known now: {error.why}", {"Retry-After": "5"}
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            self._traffic.on_crash(self._path, error)
            problem = 500, "internal error; see the kubevirt-webhook log", {}
        return await self.problem(*problem)

    async def _climb(self, request: HttpRequest) -> Answer:
        """Limit, authenticate, authorize, in flight, answer."""
        head, connection = request.head, request.connection
        client: str = connection.client
        if head.method not in self.methods:
            allowed = {"Allow": ", ".join(self.methods)}
            raise RequestDenied(405, f"this method is not answered here; use {self.methods[0]}", allowed)
        if self._loopback:
            require_loopback_host(head.headers)
        if answer := await self.open_answer(request):
            return answer
        token = token_of(head.headers) if self._authorizer else ""
        if not await connection.server.limiter.wait(client):
            raise RequestDenied(429, "this client sends more requests than are answered; try again", _RETRY)
        permission = await self.authorize(request, token)
        if self._in_flight is None:
            return await self.serve(request, permission)
        if not await self._in_flight.take(client, asyncio.get_running_loop().time() + PATIENCE_SECONDS):
            raise RequestDenied(429, "too many requests are being answered; try again", _RETRY)
        try:
            return await self.serve(request, permission)
        finally:
            self._in_flight.give(client)


def require_loopback_host(headers: Mapping[str, str]) -> None:
    """Check that a request to a loopback address names such an address itself.

    A page in a user's browser can reach this address under a name of its own that points here (DNS rebinding).

    Raises:
        RequestDenied: the request names another host.
    """
    host = headers.get("host", "").lower()
    name, colon, port = host.rpartition(":")
    if (name if colon and port.isdigit() else host) not in _LOOPBACK_HOSTS:
        raise RequestDenied(403, "the request names another host; use 127.0.0.1 or localhost")


def token_of(headers: Mapping[str, str]) -> str:
    """The bearer's token.

    Raises:
        RequestDenied: there is none.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise RequestDenied(401, "the request has no token; send Authorization: Bearer TOKEN", _BEARER)
    return token


def user_of(token: str, facts: Facts) -> UserInfo:
    """The user of a bearer token.

    Args:
        token: the token.
        facts: the facts of the request.

    Raises:
        RequestDenied: the API server does not accept the token.
        Unreadable: the user is not known now.
    """
    user = read(facts, TokenKey(token), "whose token this is")
    if user is None:
        raise RequestDenied(401, "the API server does not accept this token; get a new one", _BEARER)
    return user


def authorize(user: UserInfo, rights: Mapping[str, AccessKey], facts: Facts, *, shown: str) -> None:
    """Check that a user has all permissions.

    Args:
        user: the user of the token.
        rights: the permissions (RBAC), by their names in messages.
        facts: the facts of the request.
        shown: why they are needed, as a clause.

    Raises:
        RequestDenied: one is missing.
        Unreadable: whether the user has one is not known now.
    """
    facts.need(*rights.values())
    for right, key in rights.items():
        if not read(facts, key, "what the bearer of this token may do"):
            raise RequestDenied(403, f"{user.username} may not {right}, {shown}; ask an administrator for it")
