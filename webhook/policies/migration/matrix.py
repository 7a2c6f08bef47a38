"""Nodes by requirements for one VM: a part of the rows at a time, made of the same eligibility as the explanation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.admission.step_budget import spend
from webhook.facts import Facts
from webhook.placement.eligibility import Eligibility, Failure, Group
from webhook.placement.index import SuggestedSelector, suggest_selectors
from webhook.placement.nodes import Node
from webhook.placement.requirements import Origin
from webhook.policies.migration.answer import MigrationExplanation
from webhook.policies.migration.explanation import SERVER, FactPermissions, MigrationSubject, explain, subject

# Where every node has a taint of its own there are thousands.
MAX_COLUMNS: Final = 12
_MAX_MET: Final = 40


class MatrixColumn(msgspec.Struct, frozen=True):
    """One requirement that some nodes do not meet.

    Attributes:
        origin: where it comes from, as in `requirement`.
        text: the requirement as a clause; of a taint, which one.
        count: the nodes that do not meet it.
    """

    origin: str
    text: str
    count: int


class MatrixRow(msgspec.Struct, frozen=True):
    """One node.

    Attributes:
        unmet: how many requirements it does not meet, those without a column too.
        cells: by column, what the node has instead; empty: it meets the requirement.
    """

    node: str
    unmet: int
    cells: tuple[str, ...]


class PlacementMatrix(msgspec.Struct, frozen=True):
    """A part of the matrix, and what belongs to all of it.

    Attributes:
        explanation: the same answer in words.
        columns: the requirements that most nodes do not meet first.
        more_columns: further ones that have no column.
        met: the requirements that every node meets, as clauses.
        first: the place of the first row among all nodes, from 0.
        rows: the eligible nodes first, then those that lack least.
        selectors: labels to try.
    """

    explanation: MigrationExplanation
    columns: tuple[MatrixColumn, ...]
    more_columns: int
    met: tuple[str, ...]
    first: int
    rows: tuple[MatrixRow, ...]
    selectors: tuple[SuggestedSelector, ...]


def matrix(  # noqa: PLR0913 - a question, and which part of the answer
    namespace: str,
    name: str,
    added: Mapping[str, str],
    facts: Facts,
    *,
    node: str = "",
    first: int = 0,
    count: int = 50,
    reader: FactPermissions = SERVER,
) -> PlacementMatrix:
    """The matrix of a VM's migration with an added selector.

    Args:
        namespace: the VM's namespace.
        name: the VM's name.
        added: the selector, whose syntax has been checked.
        facts: the facts of the request.
        node: a node to explain in full; empty: none.
        first: the place of the first row.
        count: how many rows.
        reader: with whose permissions facts are read.

    Raises:
        NotThere: there is nothing to explain.
        Unreadable: something that it depends on cannot be read.
        NotRead: a fact has not been read yet.
    """
    asked = subject(namespace, name, added, facts, reader=reader)
    eligibility = asked.eligibility
    failures = sorted(eligibility.failures, key=lambda failure: -failure.count)
    shown = failures[:MAX_COLUMNS]
    unmet = {failure.requirement for failure in failures}
    met = [each.clause for each in asked.target.requirements if each not in unmet]
    return PlacementMatrix(
        explanation=explain(namespace, name, added, facts, node=node, reader=reader),
        columns=tuple(_column(failure) for failure in shown),
        more_columns=len(failures) - len(shown),
        met=tuple(dict.fromkeys(met))[:_MAX_MET],
        first=first,
        rows=_rows(asked, tuple(shown), first, count),
        selectors=_selectors(asked, eligibility),
    )


def _column(failure: Failure) -> MatrixColumn:
    required = failure.requirement
    text = f"no taint {failure.taint}" if failure.taint else required.clause
    return MatrixColumn(required.origin, text, failure.count)


def _rows(asked: MigrationSubject, columns: tuple[Failure, ...], first: int, count: int) -> tuple[MatrixRow, ...]:
    """The rows of a part; of groups of nodes outside of it, only their sizes are looked at."""
    rows: list[MatrixRow] = []
    passed = 0
    groups = sorted(asked.eligibility.groups(), key=lambda group: len(group.failures))
    spend(len(groups), "different ways in which nodes do not fit")
    for group in groups:
        begin, passed = passed, passed + group.count
        if passed <= first:
            continue
        if begin >= first + count:
            break
        names = asked.eligibility.names(group)[max(0, first - begin) : first + count - begin]
        spend(len(names) * (1 + len(columns)), "nodes")
        rows += [_row(asked, group, columns, name) for name in names]
    return tuple(rows)


def _row(asked: MigrationSubject, group: Group, columns: tuple[Failure, ...], name: str) -> MatrixRow:
    node = asked.nodes.get(name)
    failing = {id(failure) for failure in group.failures}
    cells = (_has(failure, node) if id(failure) in failing else "" for failure in columns)
    return MatrixRow(name, len(group.failures), tuple(cells))


def _has(failure: Failure, node: Node | None) -> str:
    if failure.taint:
        return "has this taint"
    reasons = failure.requirement.reasons(node) if node else ()
    return reasons[0].has if reasons else failure.lacking


def _selectors(asked: MigrationSubject, eligibility: Eligibility) -> tuple[SuggestedSelector, ...]:
    """Labels to try instead of those that are added now."""
    alone = tuple(each for each in asked.target.requirements if each.origin != Origin.ADDED)
    if len(alone) != len(asked.target.requirements):
        eligibility = asked.nodes.review(alone)
    return suggest_selectors(asked.nodes, eligibility.bitset)
