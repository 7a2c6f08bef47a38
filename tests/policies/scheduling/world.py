"""A decision of the scheduling policy."""

from __future__ import annotations

from typing import Any

from tests import builders
from tests.builders import Json, known
from tests.policies.decisions import evaluate, patched
from webhook.admission.decision import Decision
from webhook.admission.patch import operations
from webhook.facts import Facts


def decide(body: Json, facts: dict[Any, object] | None = None, **settings: Any) -> Decision:
    """The decision of the endpoint that serves the review's resource, and its idempotence."""
    request = body["request"]
    path = f"/mutate/scheduling/{request['resource']['resource']}/enforce"
    given = Facts.of(known() if facts is None else facts), builders.scheduling(**settings)
    decision = evaluate(path, body, *given)
    if decision.changes and request["operation"] == "CREATE":
        after = patched(request["object"], decision)
        repeated = evaluate(path, body | {"request": request | {"object": after}}, *given)
        assert not operations(after, repeated.changes), "a reinvocation must change nothing"
    return decision
