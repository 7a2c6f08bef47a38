"""Node selectors that are worth a try: labels that some of the eligible nodes have, and not all."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.admission.work import spend
from webhook.placement.index import NodeIndex
from webhook.placement.node import HOSTNAME

# What people choose nodes by comes first.
_FIRST: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/arch",
)
# Labels that KubeVirt keeps by itself, and deprecated ones.
_NOT_FOR_PEOPLE: Final = ("kubevirt.io", "beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
# A label with more values names nodes rather than groups of them.
_MAX_VALUES: Final = 50
_MAX_KEYS: Final = 1000
_STEPS_PER_VALUE: Final = 1


class SuggestedSelector(msgspec.Struct, frozen=True):
    """A label that a migration could add to its selector.

    Attributes:
        count: the eligible nodes that have it.
    """

    key: str
    value: str
    count: int


def suggestions(nodes: NodeIndex, eligible: int, *, most: int = 12) -> tuple[SuggestedSelector, ...]:
    """Labels by which a migration could choose among the eligible nodes, the usual ones first.

    Args:
        nodes: all nodes.
        eligible: the eligible ones, as `bits`.
        most: how many to suggest at most.
    """
    total = eligible.bit_count()
    suggested: list[SuggestedSelector] = []
    for key in _ordered(nodes):
        values = nodes.values(key)
        spend(1, "labels of nodes")
        if len(values) > _MAX_VALUES:
            continue
        spend(len(values) * _STEPS_PER_VALUE, "labels of nodes")
        counts = ((value, (bits & eligible).bit_count()) for value, bits in values.items())
        # One that all eligible nodes have changes nothing.
        useful = [SuggestedSelector(key, value, count) for value, count in counts if 0 < count < total]
        suggested += sorted(useful, key=lambda each: (-each.count, each.value))
        if len(suggested) >= most:
            break
    return tuple(suggested[:most])


def _ordered(nodes: NodeIndex) -> list[str]:
    keys = nodes.keys()
    first = [key for key in _FIRST if nodes.values(key)]
    rest = (key for key in keys if key not in _FIRST and key != HOSTNAME and not _is_of_a_program(key))
    return [*first, *sorted(rest)[:_MAX_KEYS]]


def _is_of_a_program(key: str) -> bool:
    prefix = key.partition("/")[0]
    return prefix.endswith(_NOT_FOR_PEOPLE[0]) or key.startswith(_NOT_FOR_PEOPLE[1:])
