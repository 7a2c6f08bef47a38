"""Requirements that exclude each other, whatever nodes there are: a better explanation than a reason a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import msgspec

from webhook.admission.work import spend
from webhook.placement.expression import (
    DOES_NOT_EXIST,
    EXISTS,
    GREATER,
    IN,
    LESS,
    NAME_FIELD,
    NOT_IN,
    Expression,
    Term,
    integer,
)
from webhook.placement.generated import CPU_VENDOR
from webhook.placement.node import HOSTNAME
from webhook.placement.requirement import ADDED, VENDOR, Elsewhere, Label, OneOf, Requirement, Requirements

_Asked = tuple[Requirement, Expression]

_INT64: Final = range(-(2**63), 2**63)


class Contradiction(msgspec.Struct, frozen=True, gc=False):
    """Requirements that no node can have at once, or one that no node can have at all.

    Attributes:
        requirements: those, what the migration adds first.
    """

    requirements: Requirements

    @property
    def is_dropped(self) -> bool:
        """Whether KubeVirt itself drops what the migration adds, without a word, and migrates as if it were not there.

        Else the target pod would stay unschedulable until the migration fails.
        """
        first, *others = self.requirements
        return (
            isinstance(first, Label)
            and first.origin == ADDED
            and any(
                isinstance(other, Label)
                and other.expression.key == first.expression.key
                and other.expression.operator == IN
                and other.origin not in {ADDED, VENDOR}
                for other in others
            )
        )

    def __str__(self) -> str:
        return ", but ".join(requirement.clause for requirement in self.requirements)

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels that the migration adds and that take part in it."""
        return tuple(
            requirement.expression.key
            for requirement in self.requirements
            if isinstance(requirement, Label) and requirement.origin == ADDED
        )


# By itself.
_ALWAYS_POSSIBLE: Final = frozenset({NOT_IN, EXISTS, DOES_NOT_EXIST})


def contradictions(requirements: Requirements) -> tuple[Contradiction, ...]:
    """All of them, label by label in the order of the requirements, then those of node affinities."""
    asked: dict[str, list[_Asked]] = {}
    names: list[_Asked] = []
    spend(len(requirements), "requirements")
    for requirement in requirements:
        if isinstance(requirement, Label):
            asked.setdefault(requirement.expression.key, []).append((requirement, requirement.expression))
        elif isinstance(requirement, Elsewhere):
            names.append((requirement, Expression(NAME_FIELD, NOT_IN, (requirement.node,))))
            if requirement.hostname:
                expression = Expression(HOSTNAME, NOT_IN, (requirement.hostname,))
                asked.setdefault(HOSTNAME, []).append((requirement, expression))
    conflicts: list[Contradiction] = []
    for each in asked.values():
        # Most labels are required once, and one value, or any, is always possible.
        expression = each[0][1]
        if len(each) > 1 or (
            expression.operator not in _ALWAYS_POSSIBLE and not (expression.operator == IN and expression.values)
        ):
            conflicts += _of_one_label(each)
    for requirement in requirements:
        if isinstance(requirement, OneOf):
            conflicts += _of_affinity(requirement, asked, names)
    return tuple(conflicts)


def without_dropped(requirements: Requirements) -> Requirements:
    """The requirements without what the migration adds and KubeVirt drops."""
    dropped = {conflict.requirements[0] for conflict in contradictions(requirements) if conflict.is_dropped}
    return tuple(each for each in requirements if each not in dropped)


def kept_by_kubevirt(requirements: Requirements) -> Requirements:
    """What KubeVirt by itself requires of a target pod: without what it drops, or takes for its own rule."""
    guarded = not any(
        isinstance(each, Label) and each.origin == ADDED and each.expression.key.startswith(CPU_VENDOR)
        for each in requirements
    )
    return tuple(each for each in without_dropped(requirements) if guarded or each.origin != VENDOR)


def are_compatible(together: Sequence[Expression]) -> bool:
    """Whether any value of one label, or its absence, satisfies all these expressions."""
    return all(expression.accepts(None) for expression in together) or are_satisfiable(together)


def are_satisfiable(together: Sequence[Expression]) -> bool:
    """Whether any value does: as `are_compatible`, of what every node has."""
    if any(expression.operator == DOES_NOT_EXIST for expression in together):
        return False
    listed = [set(expression.values) for expression in together if expression.operator == IN]
    if listed:
        forbidden = {value for each in together if each.operator == NOT_IN for value in each.values}
        bounds = _tightest_bounds(together)
        return any(_all_accept(bounds, value) for value in set.intersection(*listed) - forbidden)
    # Numbers are written in many ways and texts are endless, so a few forbidden ones never exhaust them.
    above = max((_bound(each) for each in together if each.operator == GREATER), default=_INT64.start - 1)
    below = min((_bound(each) for each in together if each.operator == LESS), default=_INT64.stop)
    return below - above > 1


def _tightest_bounds(together: Sequence[Expression]) -> list[Expression]:
    """Of all lower bounds the greatest, and of all upper ones the least: they say what all together say."""
    lower = max((each for each in together if each.operator == GREATER), key=_bound, default=None)
    upper = min((each for each in together if each.operator == LESS), key=_bound, default=None)
    return [each for each in (lower, upper) if each is not None]


def _all_accept(bounds: Sequence[Expression], value: str) -> bool:
    return all(bound.accepts(value) for bound in bounds)


def _bound(expression: Expression) -> int:
    return integer(expression.values[0]) or 0


def _of_one_label(asked: Sequence[_Asked]) -> Iterator[Contradiction]:
    # Every source of requirements asks for each label once: a handful of pairs, whatever the object.
    spend(len(asked) * len(asked), "requirements of one label")
    pairs = [
        (first[0], second[0]) for first, second in combinations(asked, 2) if not are_compatible((first[1], second[1]))
    ]
    if pairs:
        yield from (_contradiction(pair) for pair in pairs)
    elif not are_compatible(tuple(expression for _, expression in asked)):
        yield _contradiction(requirement for requirement, _ in asked)


def _of_affinity(
    affinity: OneOf, asked: Mapping[str, Sequence[_Asked]], names: Sequence[_Asked]
) -> Iterator[Contradiction]:
    blockers: list[Requirement] = []
    for term in affinity.terms:
        if term.hopeless:
            continue
        against = _term_exclusions(term, asked, names)
        if against is None:
            return
        blockers += against
    yield _contradiction(dict.fromkeys((affinity, *blockers)))


def _term_exclusions(
    term: Term, asked: Mapping[str, Sequence[_Asked]], names: Sequence[_Asked]
) -> Sequence[Requirement] | None:
    """What excludes a term; empty if it excludes itself; None if nothing does."""
    spend(len(term.expressions) + len(term.fields), "expressions of the node affinity")
    if not all(field.accepts("") for field in term.fields if field.key != NAME_FIELD):
        return ()
    by_label: dict[str, list[Expression]] = {}
    for expression in term.expressions:
        by_label.setdefault(expression.key, []).append(expression)
    for key, inside in by_label.items():
        against = _label_exclusions(inside, asked.get(key, ()), are_compatible)
        if against is not None:
            return against
    return _label_exclusions([field for field in term.fields if field.key == NAME_FIELD], names, are_satisfiable)


def _label_exclusions(
    inside: Sequence[Expression], others: Sequence[_Asked], possible: Callable[[Sequence[Expression]], bool]
) -> Sequence[Requirement] | None:
    """What a term's expressions over one label exclude, as `_term_exclusions` says it."""
    if not possible(inside):
        return ()
    single = [other for other, outside in others if not possible((*inside, outside))]
    if single or possible((*inside, *(outside for _, outside in others))):
        return single or None
    return [other for other, _ in others]


def _contradiction(requirements: Iterable[Requirement]) -> Contradiction:
    return Contradiction(tuple(sorted(requirements, key=lambda requirement: requirement.origin != ADDED)))
