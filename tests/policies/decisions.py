"""Decisions of any policy, a call each, with all facts in memory: no server, no loop, no cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import jsonpatch
import msgspec

from tests import builders
from tests.builders import Json, known
from webhook.admission.decision import Decision
from webhook.admission.patch import make_patch
from webhook.facts import Batch, Facts, Key, from_memory
from webhook.policies.registry import BY_PATH
from webhook.policy import Handler

T = TypeVar("T")


def answered(
    policy: Coroutine[Any, Any, T],
    answers: Mapping[Key[Any], object],
    meanwhile: Callable[[Batch], object] = lambda _: None,
) -> tuple[T, list[Batch]]:
    """What a policy returns whose facts are answered from a dictionary, and the batches in which it asked for them.

    ``meanwhile`` is called with each batch before it is answered.
    """
    batches: list[Batch] = []
    said: list[object] | None = None
    while True:
        try:
            batches.append(policy.send(said))
        except StopIteration as returned:
            return returned.value, batches
        meanwhile(batches[-1])
        said = [answers[key] for key in batches[-1]]


def always(decision: Decision) -> Handler[Any, Any]:
    """A policy that decides the same of all objects."""

    async def policy(*_: object) -> Decision:
        return decision

    return policy


def deciding(path: str, body: Json, facts: Facts, settings: Any) -> Coroutine[Any, Any, Decision]:
    """What the endpoint at a path does with a review, which awaits facts alone."""
    endpoint = BY_PATH[path]
    received = endpoint.codec.decode(msgspec.json.encode(body))
    assert not received.malformed
    request = received.request
    return endpoint.handler(endpoint.object_of(request), request, facts, settings)


def evaluate(path: str, body: Json, facts: Facts, settings: Any) -> Decision:
    """The decision of the endpoint at a path."""
    return from_memory(deciding(path, body, facts, settings))


def changes(decision: Decision) -> dict[tuple[str, ...], Any]:
    return {change.path: change.new for change in decision.changes}


def patched(obj: Json, decision: Decision) -> Json:
    """The object with a decision's patch applied, by a library that is independent of the webhook."""
    made = msgspec.json.decode(make_patch(obj, decision.changes).to_string())
    result: Json = jsonpatch.apply_patch(obj, made)
    return result


def declaring(obj: Json, *paths: tuple[str, ...]) -> Json:
    """A VM as a server-side apply leaves it that declares the fields at some paths."""
    tree: Json = {}
    for path in paths:
        inner = tree
        for segment in path:
            inner = inner.setdefault(segment if segment[1:2] == ":" else f"f:{segment}", {})
    obj["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": tree}]
    return obj


def decide_scheduling(body: Json, facts: dict[Any, object] | None = None, **settings: Any) -> Decision:
    """The scheduling policy's decision at the endpoint that serves the review's resource, and its idempotence."""
    request = body["request"]
    path = f"/mutate/scheduling/{request['resource']['resource']}/enforce"
    given = Facts.of(known() if facts is None else facts), builders.scheduling(**settings)
    decision = evaluate(path, body, *given)
    if decision.changes and request["operation"] == "CREATE":
        after = patched(request["object"], decision)
        repeated = evaluate(path, body | {"request": request | {"object": after}}, *given)
        assert not make_patch(after, repeated.changes), "a reinvocation must change nothing"
    return decision
