"""How affinity is added to what a pod has: all that its owner wrote stays, and what is added is required beside it."""

from __future__ import annotations

from typing import Any

from webhook.admission.step_budget import spend

Json = dict[str, Any]


def missing(present: list[Json], added: list[Json], what: str = "terms of the affinity") -> list[Json]:
    """The items of a list that another one lacks, which is what a tenant may have made long."""
    spend(len(present) * len(added), what)
    return [each for each in added if each not in present]


def add_missing(present: list[Json], added: list[Json]) -> list[Json]:
    """A list whose items count one by one, such as preferences and terms between pods, and what it lacks."""
    return [*present, *missing(present, added)]


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
    lacking = missing(present, expressions, "expressions of the node affinity")
    return {**term, "matchExpressions": [*present, *lacking]} if lacking else term
