"""Explanations of migrations over HTTP, on the admin listener.

On a loopback address any client may send requests. On any other, only bearers of a token who may themselves see what
the answer shows: the VMI and the nodes. Every token is sent to the API server each time; none is kept, logged or
repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from webhook import names
from webhook.admission.redaction import redact
from webhook.admission.wire import UserInfo
from webhook.cluster.source import Cluster
from webhook.errors import InputError, quote
from webhook.facts import AccessKey, Facts
from webhook.forecast.additions import additions_by
from webhook.k8s.types.selectors import is_name, parse_selector
from webhook.placement.machines import CLAIMS, VOLUMES
from webhook.policies.migration.explanation import SERVER, UNCHECKED, FactPermissions, NotThere, Question, explain
from webhook.review.driver import drive
from webhook.server.answers import (
    JSON,
    RequestDenied,
    TrafficObserver,
    errors_to_answers,
    response,
)
from webhook.server.authorizer import (
    DEADLINE_SECONDS,
    Authorizer,
    InFlight,
    authorize,
    limited,
    may,
    token_of,
    user_of,
)
from webhook.server.guard import guard_of
from webhook.settings.model import Settings
from webhook.text import visible, visible_json

PATH: Final = "/v1/explain/migration"
MAX_QUERY: Final = 4096
_MAX_PARAMETERS: Final = 32
_HEADERS: Final = {"Cache-Control": "no-store"}
_ONE: Final = ("namespace", "name", "node")


def parameters(query: str, *, keep_blank: bool) -> list[tuple[str, str]]:
    """The parameters of a query string: names and values in their order.

    Raises:
        InputError: it is too long, or has too many of them.
    """
    if len(query) > MAX_QUERY:
        raise InputError(f"has {len(query)} characters, of which {MAX_QUERY} are allowed", "the query")
    try:
        return parse_qsl(query, keep_blank_values=keep_blank, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise InputError(f"has more than {_MAX_PARAMETERS} parameters", "the query", "ask for less") from None


def parse_question(query: str) -> Question:
    """The question in a query string; an `InputError` where it is none that can be answered."""
    fields: dict[str, str] = {}
    selector = []
    for parameter, value in parameters(query, keep_blank=True):
        if parameter == "to":
            selector.append(value)
        elif parameter not in _ONE:
            what = f"{quote(parameter)} is not a parameter of this path"
            raise InputError(what, "the query", f"use {', '.join(_ONE)} and to")
        elif fields.setdefault(parameter, value) != value:
            raise InputError("is given twice", parameter, "keep one")
    return question_of(fields, selector, f"ask for {PATH}?namespace=NAME&name=VM&to=KEY=VALUE")


def question_of(fields: Mapping[str, str], selector: Sequence[str], fix: str) -> Question:
    """The question in the parameters ``namespace``, ``name``, ``node`` and ``to``; ``fix`` says how to ask.

    Raises:
        InputError: nothing that can be answered.
    """
    for parameter in _ONE:
        value = fields.get(parameter, "")
        if not value and parameter != "node":
            raise InputError("is missing", parameter, fix)
        if value and not is_name(value):
            raise InputError(f"{quote(value)} is not a valid name", parameter, "use names as Kubernetes has them")
    added = parse_selector(selector, "to")
    return Question(fields["namespace"], fields["name"], added, fields.get("node", ""), UNCHECKED)


class Explainer:
    """Answers requests for explanations.

    Args:
        cluster: the source of facts.
        traffic: gets every request.
        settings: returns those in force.
        guarded: require a bearer token; False: any client may send requests whose ``Host`` is a loopback address.
    """

    def __init__(
        self, cluster: Cluster, traffic: TrafficObserver, settings: Callable[[], Settings], *, guarded: bool
    ) -> None:
        self._cluster: Final = cluster
        self._settings: Final = settings
        self._traffic: Final = traffic
        self._authorizer: Final = Authorizer(cluster, PATH) if guarded else None
        self._in_flight: Final = InFlight()

    def application(self) -> web.Application:
        """The application below `PATH`."""
        errors = errors_to_answers(self._traffic, f"ask for {PATH}", _as_json, path=PATH)
        limit = limited(names_host=self._authorizer is None)
        application = web.Application(middlewares=[self._count, errors, limit])
        application.router.add_get("", self._explain, allow_head=False)
        return application

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        self._traffic.on_explained(answer.status)
        return answer

    async def _explain(self, request: web.Request) -> web.Response:
        """The explanation."""
        question = await self._authorize(request)
        async with self._in_flight.seat(request):
            try:
                deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
                facts = Facts(time.time(), self._cluster.peek, additions=additions_by(self._settings()))
                answer = await drive(explain(question, facts), self._cluster, facts, deadline, PATH)
            except NotThere as error:
                raise RequestDenied(404, str(error)) from None
        return response(200, visible_json(msgspec.json.encode(redact(msgspec.to_builtins(answer)))), JSON, _HEADERS)

    async def _authorize(self, request: web.Request) -> Question:
        """The question, with how the facts are to be read for the user of the token."""
        if (authorizer := self._authorizer) is None:
            return parse_question(request.rel_url.raw_query_string)._replace(reader=SERVER)
        client, token = guard_of(request).client, token_of(request.headers)
        # Who has no valid token learns nothing about questions.
        user = await authorizer.evaluate(lambda facts: user_of(token, facts), client)
        question = parse_question(request.rel_url.raw_query_string)
        reader = await authorizer.evaluate(lambda facts: authorize_question(user, question, facts), client)
        return question._replace(reader=reader)


async def _as_json(status: int, sentence: str, headers: Mapping[str, str]) -> web.Response:
    """The sentence as JSON."""
    return response(status, msgspec.json.encode({"error": visible(sentence)}), JSON, {**_HEADERS, **headers})


async def authorize_question(user: UserInfo, question: Question, facts: Facts) -> FactPermissions:
    """Check that a user may see what an explanation shows: the VMI and the nodes.

    Returns:
        How the facts are to be read: with the VM's volumes if the user may get claims and volumes.

    Raises:
        RequestDenied: a permission is missing.
        Unreadable: whether the user has one is not known now.
    """
    rights = [
        AccessKey.of(user, "get", names.KUBEVIRT_GROUP, "virtualmachineinstances", question.namespace, question.name),
        AccessKey.of(user, "list", "", "nodes"),
    ]
    # Any claim, since the question does not say which ones the VM has.
    optional = [
        AccessKey.of(user, "get", "", CLAIMS.plural, question.namespace),
        AccessKey.of(user, "get", "", VOLUMES.plural),
    ]
    await facts.prefetch(*rights, *optional)
    await authorize(user, rights, facts, shown="which the answer would show")
    for right in optional:
        if not await may(right, facts):
            return msgspec.structs.replace(SERVER, without_volumes=f"{user.username} may not {right}")
    return SERVER
