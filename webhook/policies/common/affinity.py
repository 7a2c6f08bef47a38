"""How affinity is added to what a pod has: all that its owner wrote stays, and what is added is required beside it."""

from __future__ import annotations

from typing import Any

from webhook.admission.step_budget import spend

Json = dict[str, Any]


def add_missing(present: list[Json], added: list[Json]) -> list[Json]:
    """A list whose items count one by one, such as preferences and terms between pods, and what it lacks."""
    spend(len(present) * len(added), "terms of the affinity")
    return [*present, *(each for each in added if each not in present)]


def add_expressions(terms: list[Json], added: list[Json]) -> list[Json]:
    """The terms of required node affinity, each with what it lacks of the one that is added.

    Terms are alternatives, so there is never one more. One that matches no node stays as it is.
    """
    (term,) = added
    return [_add_to(each, term["matchExpressions"]) for each in terms]


def _add_to(term: Json, expressions: list[Json]) -> Json:
    present = term.get("matchExpressions") or []
    if not isinstance(present, list) or not (present or term.get("matchFields")):
        return term
    spend(len(present) * len(expressions), "expressions of the node affinity")
    missing = [each for each in expressions if each not in present]
    return {**term, "matchExpressions": [*present, *missing]} if missing else term
