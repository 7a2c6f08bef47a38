"""The nodes of a cluster, indexed by what placements require of them.

Each label, taint and flag has a set of the nodes that have it, as a bitset (`webhook.placement.nodes`). A requirement
becomes a few operations on such integers, whatever the number of nodes.

There is no lock: reviews and node events take turns on one event loop. An `Eligibility` is a snapshot, so one that is
still at hand when a node changes stays as it was.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from webhook.admission.step_budget import spend
from webhook.k8s.types.scheduling import Taint
from webhook.k8s.types.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    GREATER,
    IN,
    NAME_FIELD,
    NOT_IN,
    Expression,
    Term,
    field_value,
    integer,
)
from webhook.placement.eligibility import Eligibility, Failure
from webhook.placement.nodes import HOSTNAME, ZONE, Node, Tolerated, bitset_union, plain_labels
from webhook.placement.requirements import (
    Allocatable,
    Elsewhere,
    Kvm,
    Label,
    OneOf,
    Requirement,
    Requirements,
    Staying,
    Uncordoned,
    Untainted,
)

# A union is kept for every so many amounts: memory differs from node to node, and each union of 5000 nodes takes 625
# bytes. Of values that expressions are compared with, by the thousand, an answer adds up fewer.
_AMOUNTS_A_UNION: Final = 64
_VALUES_A_UNION: Final = 16


class NumberIndex:
    """Answers which nodes have less than a number, by a bisection and a few unions of sets.

    Args:
        nodes: the nodes that have each number, as bitsets; the attribute has those that have any, be it zero.
        step: for how many numbers a union is kept.
    """

    def __init__(self, nodes: Mapping[int, int] = MappingProxyType({}), step: int = _AMOUNTS_A_UNION) -> None:
        self._step: Final = step
        self._nodes = dict(nodes)
        self._numbers = sorted(nodes)
        self._unions: list[int] = [0]  # at index k: the nodes of the first k * step numbers; grows when it is needed
        self.nodes = bitset_union(nodes.values())

    def flip(self, number: int, bit: int) -> None:
        """Add a node with a number, or remove it where it has this number."""
        self.nodes ^= bit
        before = self._nodes.get(number, 0)
        after = before ^ bit
        if not before:
            insort(self._numbers, number)
        if len(self._unions) > 1:
            del self._unions[bisect_left(self._numbers, number) // self._step + 1 :]
        if after:
            self._nodes[number] = after
        else:
            del self._nodes[number], self._numbers[bisect_left(self._numbers, number)]

    def below(self, number: int) -> int:
        """The nodes that have less than a number, without those that have none at all."""
        index = bisect_left(self._numbers, number)
        if not index:
            return 0
        while len(self._unions) <= index // self._step:
            start = (len(self._unions) - 1) * self._step
            self._unions.append(self._unions[-1] | self._union(start, start + self._step))
        whole = index // self._step
        return self._unions[whole] | self._union(whole * self._step, index)

    def ascending(self, number: int) -> Iterator[int]:
        """The nodes that have at least a number, those of each together, the smallest number first."""
        return map(self._nodes.__getitem__, self._numbers[bisect_left(self._numbers, number) :])

    def descending(self) -> Iterator[int]:
        """All nodes, those of each number together, the largest first."""
        return map(self._nodes.__getitem__, reversed(self._numbers))

    def _union(self, start: int, end: int) -> int:
        return reduce(or_, map(self._nodes.__getitem__, self._numbers[start:end]), 0)


T = TypeVar("T")

_NO_LABELS: Final[Mapping[str, str]] = {}
_NO_VALUES: Final[Mapping[str, int]] = {}
_NO_AMOUNTS: Final = NumberIndex()

# Labels whose values are kept sorted, those last used. With values of their own on 5,000 nodes each takes 500 KB.
_MAX_THRESHOLDS: Final = 32


# What people choose nodes by comes first.
_FIRST: Final = (
    ZONE,
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/arch",
)
# Deprecated labels; those of the domains of KubeVirt are kept by programs.
_NOT_FOR_PEOPLE: Final = ("beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
# A label with more values names nodes rather than groups of them.
_MAX_VALUES: Final = 50
_MAX_KEYS: Final = 1000


class SuggestedSelector(msgspec.Struct, frozen=True):
    """A label that a migration could add to its selector, and how many eligible nodes have it."""

    key: str
    value: str
    count: int


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
        self._labeled: dict[str, int] = {}  # label -> nodes, for labels that were asked for
        self._thresholds: dict[str, NumberIndex] = {}  # label -> its values sorted; least recently used first
        self._taints: dict[Taint, int] = {}
        self._unschedulable = 0
        self._being_emptied = 0
        self._no_kvm = 0
        self._resource_indexes: dict[str, NumberIndex] = {}  # resource -> nodes by what is allocatable
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
        """The position of a node in bitsets, which it keeps until it is removed; None: there is no such node."""
        return self._positions.get(name)

    def put(self, node: Node) -> None:
        """Add a node or replace the one of its name; costs what has changed, so that heartbeats cost nothing."""
        position = self._positions.get(node.name)
        if position is None:
            if not self._free:
                self._free.append(len(self._nodes))
                self._nodes.append(None)
            position = self._positions[node.name] = self._free.pop()
            self._all |= 1 << position
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

    def reports(self, resource: str) -> bool:
        """Whether any node says how much of a resource it has, be it none."""
        return resource in self._resource_indexes

    def review(self, requirements: Requirements) -> Eligibility:
        """Which nodes have all that is required, and what the others fail."""
        if self._snapshot is None:
            self._snapshot = tuple(self._nodes)
        spend(len(requirements), "requirements")
        failures: list[Failure] = []
        everyone = eligible = self._all
        # `type(...) is` instead of `isinstance`, which makes a call where the class differs.
        for requirement in requirements:
            if type(requirement) is Label:
                expression = requirement.expression
                if expression.operator == IN and len(expression.values) == 1:
                    # So are nearly all.
                    nodes = everyone ^ self._values.get(expression.key, _NO_VALUES).get(expression.values[0], 0)
                else:
                    nodes = everyone ^ self._nodes_accepting(expression)
            elif type(requirement) is Untainted:
                failures += self._tainted(requirement)
                continue
            else:
                nodes = self._failing_nodes(requirement)
            if nodes:
                failures.append(Failure(requirement, None, nodes))
        for failure in failures:
            eligible &= ~failure.nodes
        return Eligibility(self._snapshot, everyone, eligible, tuple(failures))

    def spans(self, key: str, requirements: Requirements) -> bool:
        """Whether every node that meets requirements has a label, with at least two values among them."""
        nodes = self.review(requirements).bitset
        values = self._values.get(key, _NO_VALUES)
        spend(len(values), "zones")
        bitsets = [bits & nodes for bits in values.values()]
        return sum(map(bool, bitsets)) > 1 and bitset_union(bitsets) == nodes

    def suggest_selectors(self, eligible: int, *, most: int = 12) -> tuple[SuggestedSelector, ...]:
        """Labels by which a migration could choose among the eligible nodes, the usual ones first."""
        total = eligible.bit_count()
        suggested: list[SuggestedSelector] = []
        rest = (key for key in self._values if key not in (*_FIRST, HOSTNAME) and not key.startswith(_NOT_FOR_PEOPLE))
        usual = (key for key in rest if not key.partition("/")[0].endswith("kubevirt.io"))
        for key in (*filter(self._values.get, _FIRST), *sorted(usual)[:_MAX_KEYS]):
            values = self._values[key]
            spend(1, "labels of nodes")
            if len(values) > _MAX_VALUES:
                continue
            spend(len(values), "labels of nodes")
            counts = ((value, (bits & eligible).bit_count()) for value, bits in values.items())
            # One that all eligible nodes have changes nothing.
            useful = [SuggestedSelector(key, value, count) for value, count in counts if 0 < count < total]
            suggested += sorted(useful, key=lambda each: (-each.count, each.value))
            if len(suggested) >= most:
                break
        return tuple(suggested[:most])

    def _change(self, bit: int, old: Node | None, new: Node | None) -> None:
        if old is None:
            self._add_labels(bit, plain_labels(new.labels) if new else _NO_LABELS)
        elif new is None or (old.labels is not new.labels and old.labels != new.labels):
            self._change_labels(bit, plain_labels(old.labels), plain_labels(new.labels) if new else _NO_LABELS)
        had, has = old.taints if old else (), new.taints if new else ()
        if had is not has:
            for taint in {*had} ^ {*has}:
                _flip(self._taints, taint, bit)
        if bool(old and old.unschedulable) != bool(new and new.unschedulable):
            self._unschedulable ^= bit
        if bool(old and old.is_being_emptied) != bool(new and new.is_being_emptied):
            self._being_emptied ^= bit
        if bool(old and old.no_kvm) != bool(new and new.no_kvm):
            self._no_kvm ^= bit
        self._change_allocatable(bit, old, new)

    def _change_allocatable(self, bit: int, old: Node | None, new: Node | None) -> None:
        before, after = old.allocatable if old else None, new.allocatable if new else None
        if before is after is not None:
            return
        if bool(old and before is None) != bool(new and after is None):
            self._unreported ^= bit
        if before == after:
            return
        for resource, amount in (before or _NO_VALUES).items() ^ (after or _NO_VALUES).items():
            amounts = self._resource_indexes.get(resource)
            if amounts is None:
                amounts = self._resource_indexes[resource] = NumberIndex()
            amounts.flip(amount, bit)
        for resource in (before or _NO_VALUES).keys() - (after or _NO_VALUES).keys():
            if not self._resource_indexes[resource].nodes:
                del self._resource_indexes[resource]

    def _change_labels(self, bit: int, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        for key, value in before.items() ^ after.items():
            self._thresholds.pop(key, None)
            values = self._values.setdefault(key, {})
            _flip(values, value, bit)
            if not values:
                del self._values[key]
        for key in self._labeled.keys() & (before.keys() ^ after.keys()):
            _flip(self._labeled, key, bit)

    def _add_labels(self, bit: int, labels: Mapping[str, str]) -> None:
        """Those of a node that is new: at the start, all of them are."""
        for key in self._thresholds.keys() & labels.keys():
            del self._thresholds[key]
        for key in self._labeled.keys() & labels.keys():
            self._labeled[key] |= bit
        for key, value in labels.items():
            values = self._values.get(key)
            if values is None:
                values = self._values[key] = {}
            values[value] = values.get(value, 0) | bit

    def _failing_nodes(self, requirement: Requirement) -> int:
        """The nodes that a requirement of something else than labels and taints keeps out."""
        if type(requirement) is Allocatable:
            if requirement.amount <= 0:
                return 0
            amounts = self._resource_indexes.get(requirement.resource, _NO_AMOUNTS)
            return (self._all ^ self._unreported ^ amounts.nodes) | amounts.below(requirement.amount)
        if type(requirement) is Elsewhere:
            hostname = requirement.hostname
            same = self._values.get(HOSTNAME, _NO_VALUES).get(hostname, 0) if hostname else 0
            return same | self._bit_of(requirement.node)
        if type(requirement) is Uncordoned:
            return 0 if requirement.is_waived else self._unschedulable
        if type(requirement) is Staying:
            return self._being_emptied
        if type(requirement) is Kvm:
            return self._no_kvm
        if not isinstance(requirement, OneOf):
            raise TypeError(f"the index knows no {type(requirement).__name__}")
        matching = 0
        spend(len(requirement.terms), "terms of the node affinity")
        for term in requirement.terms:
            matching |= self._nodes_matching(term)
        return self._all ^ matching

    def _tainted(self, requirement: Untainted) -> list[Failure]:
        """The nodes that taints keep out, for each taint apart."""
        spend(len(requirement.tolerations) + len(self._taints), "tolerations")
        if not self._taints:
            return []
        tolerated = Tolerated(requirement.tolerations)
        kept = [taint for taint in self._taints if not tolerated.covers(taint)]
        return [Failure(requirement, taint, self._taints[taint]) for taint in sorted(kept)]

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
            return self._nodes_labeled(key)
        if operator == DOES_NOT_EXIST:
            return self._all ^ self._nodes_labeled(key)
        values = self._values.get(key, _NO_VALUES)
        nodes = 0
        if operator in {IN, NOT_IN}:
            operands = expression.values
            if len(operands) > 1:
                spend(len(operands), "values of the node affinity")
            for value in operands:
                nodes |= values.get(value, 0)
            return nodes if operator == IN else self._all ^ nodes
        bound = integer(expression.values[0])
        if bound is None:
            return 0
        index = self._sorted_values(key, values)
        return index.nodes & ~index.below(bound + 1) if operator == GREATER else index.below(bound)

    def _nodes_labeled(self, key: str) -> int:
        """The nodes that have a label, whatever its value; known from the first time on that it is asked for."""
        nodes = self._labeled.get(key)
        if nodes is None and key in self._values:
            nodes = self._labeled[key] = bitset_union(self._values[key].values())
        return nodes or 0

    def _sorted_values(self, key: str, values: Mapping[str, int]) -> NumberIndex:
        """The values of a label that are whole numbers of 64 bits; kept until the label changes on any node."""
        index = self._thresholds.pop(key, None)
        if index is None:
            spend(len(values), "labels that the node affinity compares with numbers")
            numbers: dict[int, int] = {}
            for value, nodes in values.items():
                if (number := integer(value)) is not None:
                    # Most numbers are written in one way: the same set, not an equal one.
                    numbers[number] = numbers[number] | nodes if number in numbers else nodes
            index = NumberIndex(numbers, _VALUES_A_UNION)
            if len(self._thresholds) >= _MAX_THRESHOLDS:
                del self._thresholds[next(iter(self._thresholds))]
        self._thresholds[key] = index
        return index

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
