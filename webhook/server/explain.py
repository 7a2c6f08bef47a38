"""Explanations of migrations over HTTP, on a listener of their own: they never take a review's turn or connection.

On a loopback address any client may send requests. On any other, only bearers of a token who may themselves see what
the answer shows: the VMI and the nodes. Every token is sent to the API server each time; none is kept, logged or
repeated.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from webhook import names
from webhook.admission.redaction import redact
from webhook.admission.wire import UserInfo
from webhook.cluster.source import Cluster
from webhook.errors import InputError, quote
from webhook.facts import Facts
from webhook.k8s.types.selectors import is_name, parse_selector
from webhook.placement.machines import CLAIMS, VOLUMES
from webhook.policies.common import accounts
from webhook.policies.common.required_facts import Unreadable, read
from webhook.policies.migration.answer import MigrationExplanation
from webhook.policies.migration.explanation import SERVER, FactPermissions, NotThere, explain
from webhook.review.replay import replay
from webhook.server.bearer import RequestDenied, authorize, require_loopback_host, token_of, user_of
from webhook.server.guests import Guests, TooManyRequests, turn
from webhook.server.lifecycle import finish, listen
from webhook.settings.address import is_loopback
from webhook.text import visible, visible_json

T = TypeVar("T")

PATH: Final = "/v1/explain/migration"
MAX_QUERY: Final = 4096
_MAX_PARAMETERS: Final = 32
# What one answer costs grows with the nodes, and reviews share the processor: a few concurrent ones are enough.
MAX_IN_FLIGHT: Final = 4
DEADLINE: Final = 10.0

_ONE: Final = ("namespace", "name", "node")


class ExplainObserver(Protocol):
    """Gets every request for an explanation."""

    def on_explained(self, status: int) -> None:
        """A request was answered."""

    def on_crash(self, path: str, error: BaseException) -> None:
        """An exception reached the edge of the server: a bug."""


class ExplainRequest(NamedTuple):
    """The question of a request, after its syntax has been checked."""

    namespace: str
    name: str
    added: dict[str, str]
    node: str


def question(query: str) -> ExplainRequest:
    """The question in a query string.

    Raises:
        InputError: nothing that can be answered.
    """
    if len(query) > MAX_QUERY:
        raise InputError(f"has {len(query)} characters, of which {MAX_QUERY} are allowed", "the query")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise InputError(f"has more than {_MAX_PARAMETERS} parameters", "the query", "ask for less") from None
    given: dict[str, str] = {}
    selector = []
    for parameter, value in pairs:
        if parameter == "to":
            selector.append(value)
        elif parameter not in _ONE:
            raise InputError(f"{quote(parameter)} is no parameter", "the query", f"use {', '.join(_ONE)} and to")
        elif given.setdefault(parameter, value) != value:
            raise InputError("is given twice", parameter, "keep one")
    for parameter in _ONE:
        value = given.get(parameter, "")
        if not value and parameter != "node":
            raise InputError("is missing", parameter, f"ask for {PATH}?namespace=NAME&name=VM&to=KEY=VALUE")
        if value and not is_name(value):
            raise InputError(f"{quote(value)} is no name", parameter, "use names as Kubernetes has them")
    return ExplainRequest(given["namespace"], given["name"], parse_selector(selector, "to"), given.get("node", ""))


class Explainer:
    """Answers requests for explanations.

    Args:
        cluster: the source of facts.
        traffic: gets every request.
        guarded: require a bearer token; False: any client may send requests whose ``Host`` is a loopback address.
    """

    def __init__(self, cluster: Cluster, traffic: ExplainObserver, *, guarded: bool) -> None:
        self._cluster: Final = cluster
        self._traffic: Final = traffic
        self._guarded: Final = guarded
        self.in_flight = 0

    def server(self) -> Guests:
        """The aiohttp server; make it inside the running loop."""
        return Guests(self.handle)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to any request; no exception but a cancellation leaves."""
        self.in_flight += 1
        try:
            answer = msgspec.to_builtins(await self._answer(request))
            response = _json(200, visible_json(msgspec.json.encode(redact(answer))))
        except RequestDenied as refused:
            response = _error(refused.status, refused.sentence, **refused.headers)
        except TooManyRequests as refused:
            response = _error(429, refused.sentence, **{"Retry-After": "1"})
        except NotThere as error:
            response = _error(404, str(error))
        except InputError as error:
            response = _error(400, str(error))
        except Unreadable as error:
            response = _error(503, f"the answer is not known now: {error.why}", **{"Retry-After": "5"})
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            self._traffic.on_crash(PATH, error)
            response = _error(500, "internal error; see the kubevirt-webhook log")
        finally:
            self.in_flight -= 1
        self._traffic.on_explained(response.status)
        return response

    async def _answer(self, request: web.BaseRequest) -> MigrationExplanation:
        path, _, query = request.raw_path.partition("?")
        if path != PATH:
            raise RequestDenied(404, f"there is nothing at this path; ask for {PATH}")
        if request.method != "GET":
            raise RequestDenied(405, "this method is not answered here; use GET", Allow="GET")
        token = self._token(request)
        await turn(request)
        if self.in_flight > MAX_IN_FLIGHT:
            raise RequestDenied(
                429, f"{MAX_IN_FLIGHT} questions are being answered already; try again", **{"Retry-After": "1"}
            )
        deadline = asyncio.get_running_loop().time() + DEADLINE
        user = await self._evaluate(lambda facts: user_of(token, facts), deadline) if token else None
        asked = question(query)
        reader = SERVER
        if user:
            reader = await self._evaluate(lambda facts: authorize_question(user, asked, facts), deadline)
        return await self._evaluate(
            lambda facts: explain(asked.namespace, asked.name, asked.added, facts, node=asked.node, reader=reader),
            deadline,
        )

    def _token(self, request: web.BaseRequest) -> str:
        """The bearer token; empty where none is needed."""
        if not self._guarded:
            require_loopback_host(request)
            return ""
        return token_of(request)

    async def _evaluate(self, decide: Callable[[Facts], T], deadline: float) -> T:
        facts = Facts(peek=self._cluster.peek)
        return await replay(decide, self._cluster, facts, deadline, PATH)


@asynccontextmanager
async def explaining(
    address: str, cluster: Cluster, traffic: ExplainObserver, tls: ssl.SSLContext, seconds: float
) -> AsyncIterator[str]:
    """A listener for as long as the context lasts; gives its URL.

    Args:
        address: ``HOST:PORT``; on a loopback address without TLS and tokens.
        cluster: the source of facts.
        traffic: gets every request.
        tls: the context for others.
        seconds: how long to wait at the end for requests that have begun.

    Raises:
        InputError: nothing can listen there.
    """
    alone = is_loopback(address)
    explainer = Explainer(cluster, traffic, guarded=not alone)
    runner = web.ServerRunner(explainer.server(), shutdown_timeout=seconds)
    bound = await listen(runner, address, None if alone else tls, "explain.listen")
    try:
        yield f"{'http' if alone else 'https'}://{bound}"
    finally:
        await finish(runner, lambda: explainer.in_flight, seconds)


def authorize_question(user: UserInfo, asked: ExplainRequest, facts: Facts) -> FactPermissions:
    """Check that a user may see what an explanation shows: the VMI and the nodes.

    Args:
        user: the user of the token.
        asked: the question.
        facts: the facts of the request.

    Returns:
        How the facts are to be read: with the VM's volumes if the user may get claims and volumes.

    Raises:
        RequestDenied: a permission is missing.
        Unreadable: whether the user has one is not known now.
    """
    vmis, claims, volumes = "virtualmachineinstances", CLAIMS.plural, VOLUMES.plural
    rights = {
        f"get {vmis}.{names.KUBEVIRT_GROUP} in {asked.namespace}": accounts.access(
            user, "get", names.KUBEVIRT_GROUP, vmis, asked.namespace, asked.name
        ),
        "list nodes": accounts.access(user, "list", "", "nodes"),
    }
    # Any claim, since the question does not say which ones the VM has.
    optional = {
        f"get {claims} in {asked.namespace}": accounts.access(user, "get", "", claims, asked.namespace),
        f"get {volumes}": accounts.access(user, "get", "", volumes),
    }
    facts.need(*rights.values(), *optional.values())
    authorize(user, rights, facts, shown="which the answer would show")
    for right, key in optional.items():
        if not read(facts, key, "what the bearer of this token may do"):
            return msgspec.structs.replace(SERVER, without_volumes=f"{user.username} may not {right}")
    return SERVER


def _error(status: int, sentence: str, **headers: str) -> web.Response:
    return _json(status, msgspec.json.encode({"error": visible(sentence)}), **headers)


def _json(status: int, body: bytes, **headers: str) -> web.Response:
    return web.Response(
        status=status, body=body, headers={"Content-Type": "application/json", "Cache-Control": "no-store"} | headers
    )
