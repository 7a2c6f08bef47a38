"""The nodes of a cluster, indexed by what placements ask of them.

Each label, taint and flag has a set of the nodes that have it, as bits of an integer (`bits`). A requirement becomes a
few operations on such integers, whatever the number of nodes.

There is no lock: reviews and node events take turns on one event loop. A `Verdict` is a snapshot, so one that is still
at hand when a node changes stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from webhook.admission.work import spend
from webhook.placement.allocation import Allocatable
from webhook.placement.bits import union
from webhook.placement.expression import (
    DOES_NOT_EXIST,
    EXISTS,
    IN,
    NAME_FIELD,
    NOT_IN,
    Expression,
    Term,
    field_value,
    integer,
)
from webhook.placement.labels import plain
from webhook.placement.levels import Levels
from webhook.placement.node import HOSTNAME, Node, Taint
from webhook.placement.requirement import (
    Elsewhere,
    Kvm,
    Label,
    OneOf,
    Requirement,
    Requirements,
    Uncordoned,
    Untainted,
)
from webhook.placement.taints import Tolerated
from webhook.placement.thresholds import Thresholds
from webhook.placement.verdict import Failure, Verdict

T = TypeVar("T")

_NO_LABELS: Final[Mapping[str, str]] = {}
_NO_VALUES: Final[Mapping[str, int]] = {}
_NO_LEVELS: Final = Levels()

# Labels whose values are kept sorted, those last used. With values of their own on 5,000 nodes each takes 200 KB.
_MAX_THRESHOLDS: Final = 32


class NodeIndex:
    """Nodes by name, kept up to date with `put` and `remove`.

    Args:
        nodes: the nodes to begin with; of several with one name the last is kept.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: list[Node | None] = []  # by position; None: the position is free
        self._positions: dict[str, int] = {}
        self._free: list[int] = []
        self._all = 0
        self._values: dict[str, dict[str, int]] = {}  # label, value -> nodes
        self._labelled: dict[str, int] = {}  # label -> nodes, for labels that were asked for
        self._thresholds: dict[str, Thresholds] = {}  # label -> its values sorted; least recently used first
        self._taints: dict[Taint, int] = {}
        self._unschedulable = 0
        self._no_kvm = 0
        self._levels: dict[str, Levels] = {}  # resource -> nodes by what is allocatable
        self._unreported = 0  # nodes that have not said what is allocatable
        self._snapshot: tuple[Node | None, ...] | None = None
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[Node]:
        return (node for node in self._nodes if node is not None)

    def get(self, name: str) -> Node | None:
        """The node of this name."""
        position = self._positions.get(name)
        return None if position is None else self._nodes[position]

    def position(self, name: str) -> int | None:
        """The place of a node in `bits`, which it keeps until it is removed; None: there is no such node."""
        return self._positions.get(name)

    def keys(self) -> tuple[str, ...]:
        """The keys of all labels that nodes have."""
        return tuple(self._values)

    def values(self, key: str) -> Mapping[str, int]:
        """The nodes with each value of a label, as `bits`; not to be changed."""
        return self._values.get(key, _NO_VALUES)

    def put(self, node: Node) -> None:
        """Add a node or replace the one of its name; costs what has changed, so that heartbeats cost nothing."""
        position = self._positions.get(node.name)
        if position is None:
            position = self._place(node.name)
            old = None
        else:
            old = self._nodes[position]
            if old == node:
                return
        self._change(1 << position, old, node)
        self._nodes[position] = node
        self._snapshot = None

    def remove(self, name: str) -> None:
        """Remove a node; a missing one is not a mistake, since a watch may report a deletion twice."""
        position = self._positions.pop(name, None)
        if position is None:
            return
        self._change(1 << position, self._nodes[position], None)
        self._nodes[position] = None
        self._free.append(position)
        self._all ^= 1 << position
        self._snapshot = None

    def review(self, requirements: Requirements) -> Verdict:
        """Which nodes have all that is required, and what the others fail."""
        if self._snapshot is None:
            self._snapshot = tuple(self._nodes)
        spend(len(requirements), "requirements")
        failures: list[Failure] = []
        everyone = eligible = self._all
        for requirement in requirements:
            if type(requirement) is Untainted:
                failures += self._tainted(requirement)
                continue
            wanted = requirement.expression if isinstance(requirement, Label) else None
            if wanted and wanted.operator == IN and len(wanted.values) == 1:
                # So are nearly all.
                nodes = everyone ^ self._values.get(wanted.key, _NO_VALUES).get(wanted.values[0], 0)
            else:
                nodes = self._failing_nodes(requirement)
            if nodes:
                failures.append(Failure(requirement, None, nodes))
        for failure in failures:
            eligible &= ~failure.nodes
        return Verdict(self._snapshot, everyone, eligible, tuple(failures))

    def _place(self, name: str) -> int:
        if self._free:
            position = self._free.pop()
        else:
            position = len(self._nodes)
            self._nodes.append(None)
        self._positions[name] = position
        self._all |= 1 << position
        return position

    def _change(self, bit: int, old: Node | None, new: Node | None) -> None:
        if old is None:
            self._add_labels(bit, plain(new.labels) if new else _NO_LABELS)
        elif new is None or old.labels != new.labels:
            self._change_labels(bit, plain(old.labels), plain(new.labels) if new else _NO_LABELS)
        had, has = old.taints if old else (), new.taints if new else ()
        for taint in {*had} ^ {*has}:
            _flip(self._taints, taint, bit)
        if bool(old and old.unschedulable) != bool(new and new.unschedulable):
            self._unschedulable ^= bit
        if bool(old and old.no_kvm) != bool(new and new.no_kvm):
            self._no_kvm ^= bit
        self._change_allocatable(bit, old, new)

    def _change_allocatable(self, bit: int, old: Node | None, new: Node | None) -> None:
        before, after = (node.allocatable if node else None for node in (old, new))
        if bool(old and before is None) != bool(new and after is None):
            self._unreported ^= bit
        if before == after:
            return
        for resource, amount in (before or _NO_VALUES).items() ^ (after or _NO_VALUES).items():
            levels = self._levels.setdefault(resource, Levels())
            levels.flip(amount, bit)
        for resource in (before or _NO_VALUES).keys() - (after or _NO_VALUES).keys():
            if not self._levels[resource]:
                del self._levels[resource]

    def _change_labels(self, bit: int, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        for key, value in before.items() ^ after.items():
            self._thresholds.pop(key, None)
            values = self._values.setdefault(key, {})
            _flip(values, value, bit)
            if not values:
                del self._values[key]
        for key in self._labelled.keys() & (before.keys() ^ after.keys()):
            _flip(self._labelled, key, bit)

    def _add_labels(self, bit: int, labels: Mapping[str, str]) -> None:
        """Those of a node that is new: at the start, all of them are."""
        for key in self._thresholds.keys() & labels.keys():
            del self._thresholds[key]
        for key in self._labelled.keys() & labels.keys():
            self._labelled[key] |= bit
        for key, value in labels.items():
            values = self._values.get(key)
            if values is None:
                values = self._values[key] = {}
            values[value] = values.get(value, 0) | bit

    def _failing_nodes(self, requirement: Requirement) -> int:
        """The nodes that a requirement keeps out, whatever their taints."""
        match requirement:
            case Label():
                return self._all ^ self._nodes_accepting(requirement.expression)
            case OneOf():
                matching = 0
                spend(len(requirement.terms), "terms of the node affinity")
                for term in requirement.terms:
                    matching |= self._nodes_matching(term)
                return self._all ^ matching
            case Uncordoned():
                return self._unschedulable if self._unschedulable and not requirement.is_waived else 0
            case Elsewhere():
                hostname = requirement.hostname
                same = self._values.get(HOSTNAME, _NO_VALUES).get(hostname, 0) if hostname else 0
                return same | self._bit_of(requirement.node)
            case Kvm():
                return self._no_kvm
            case Allocatable():
                return self._nodes_lacking(requirement.resource, requirement.amount)
            case _:
                raise TypeError(f"the index knows no {type(requirement).__name__}")

    def _tainted(self, requirement: Untainted) -> list[Failure]:
        """The nodes that taints keep out, for each taint apart."""
        spend(len(requirement.tolerations) + len(self._taints), "tolerations")
        if not self._taints:
            return []
        tolerated = Tolerated(requirement.tolerations)
        kept = [taint for taint in self._taints if not tolerated.covers(taint)]
        return [Failure(requirement, taint, self._taints[taint]) for taint in sorted(kept)]

    def _nodes_lacking(self, resource: str, amount: int) -> int:
        levels = self._levels.get(resource, _NO_LEVELS)
        return (self._all ^ self._unreported ^ levels.nodes) | levels.below(amount)

    def _nodes_matching(self, term: Term) -> int:
        if term.hopeless:
            return 0
        spend(len(term.expressions) + len(term.fields), "expressions of the node affinity")
        nodes = self._all
        for expression in term.expressions:
            nodes &= self._nodes_accepting(expression)
        for field in term.fields:
            nodes &= self._nodes_accepting_field(field)
        return nodes

    def _nodes_accepting(self, expression: Expression) -> int:
        key, operator = expression.key, expression.operator
        if operator == EXISTS:
            return self._nodes_labelled(key)
        if operator == DOES_NOT_EXIST:
            return self._all ^ self._nodes_labelled(key)
        values = self._values.get(key, _NO_VALUES)
        nodes = 0
        if operator in {IN, NOT_IN}:
            wanted = expression.values
            if len(wanted) > 1:
                spend(len(wanted), "values of the node affinity")
            for value in wanted:
                nodes |= values.get(value, 0)
            return nodes if operator == IN else self._all ^ nodes
        bound = integer(expression.values[0])
        return 0 if bound is None else self._sorted_values(key, values).beyond(operator, bound)

    def _nodes_labelled(self, key: str) -> int:
        """The nodes that have a label, whatever its value; known from the first time on that it is asked for."""
        known = self._labelled.get(key)
        if known is None and key in self._values:
            known = self._labelled[key] = union(self._values[key].values())
        return known or 0

    def _sorted_values(self, key: str, values: Mapping[str, int]) -> Thresholds:
        """The values of a label, sorted; kept until the label changes on any node."""
        known = self._thresholds.pop(key, None)
        if known is None:
            spend(len(values), "labels that the node affinity compares with numbers")
            known = Thresholds(values)
            if len(self._thresholds) >= _MAX_THRESHOLDS:
                del self._thresholds[next(iter(self._thresholds))]
        self._thresholds[key] = known
        return known

    def _nodes_accepting_field(self, field: Expression) -> int:
        if field.key != NAME_FIELD:
            return self._all if field.accepts(field_value(field.key, "")) else 0
        named = 0
        for name in field.values:
            named |= self._bit_of(name)
        return named if field.operator == IN else self._all ^ named

    def _bit_of(self, name: str) -> int:
        position = self._positions.get(name)
        return 0 if position is None else 1 << position


def _flip(sets: dict[T, int], item: T, bit: int) -> None:
    """Put a node into an item's set, or take it out; empty sets are removed, or old labels would pile up."""
    nodes = sets.get(item, 0) ^ bit
    if nodes:
        sets[item] = nodes
    else:
        del sets[item]
