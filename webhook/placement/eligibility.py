"""Which nodes are eligible, what keeps the others out, and what may keep a VM from an eligible node.

The last is worth a note, but never a reason for a denial: it depends on other pods (affinity between pods, spread), or
on what becomes of the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from webhook.admission.step_budget import spend
from webhook.k8s.types.scheduling import Taint
from webhook.placement.machines import PlacedVmiSpec, Vmi
from webhook.placement.nodes import HOSTNAME, Node, bitset_items, bitset_positions, bitset_union
from webhook.placement.requirements import Elsewhere, Label, Origin, Requirement, Requirements, UnmetRequirement
from webhook.placement.target_pods import host_model_labels

# Sets of so few nodes are gone through one by one: where every node has a taint of its own there are thousands.
_FEW: Final = 32

# Noting one more failure for a part of the nodes takes a fraction of a step.
_PARTS_A_STEP: Final = 16

# Nodes that fail the same, by the failures' indexes in their order.
_Part: TypeAlias = tuple[tuple[int, ...], int]


class Failure(msgspec.Struct, frozen=True, gc=False):
    """One requirement, and of taints one that is not tolerated, with the nodes that fail it, as a bitset."""

    requirement: Requirement
    taint: Taint | None
    nodes: int

    @property
    def count(self) -> int:
        """How many nodes fail it."""
        return self.nodes.bit_count()

    @property
    def lacking(self) -> str:
        """What these nodes are, to stand behind their number."""
        if self.taint:
            return f"with the taint {self.taint}"
        # Only one of several is the VM's own node.
        has_twins = isinstance(self.requirement, Elsewhere) and self.count > 1
        return f"{self.requirement.lacking}, or with the same {HOSTNAME}" if has_twins else self.requirement.lacking

    def __str__(self) -> str:
        return f"{self.count} node(s) {self.lacking}"


class Group(msgspec.Struct, frozen=True, gc=False):
    """The nodes that fail exactly these requirements, as a bitset; eligible ones fail none."""

    failures: tuple[Failure, ...]
    nodes: int

    @property
    def count(self) -> int:
        """How many nodes are in the group."""
        return self.nodes.bit_count()


class Eligibility(msgspec.Struct, frozen=True, eq=False):
    """An immutable answer about all nodes at one moment. Only methods that return names cost more than a few µs.

    Attributes:
        nodes: the nodes by position.
        everyone: the positions that are taken.
        bitset: those of nodes that fail nothing, the eligible ones.
        failures: in the order of the requirements, of taints in theirs; only those that keep a node out.
    """

    nodes: Sequence[Node | None]
    everyone: int
    bitset: int
    failures: tuple[Failure, ...]

    @property
    def total(self) -> int:
        """How many nodes there are."""
        return self.everyone.bit_count()

    @property
    def count(self) -> int:
        """How many nodes are eligible."""
        return self.bitset.bit_count()

    def failing(self, failures: Iterable[Failure]) -> Eligibility:
        """The same nodes at the same moment, of which some fail something more."""
        more = tuple(failures)
        eligible = self.bitset & ~bitset_union(failure.nodes for failure in more)
        return Eligibility(self.nodes, self.everyone, eligible, (*self.failures, *more))

    def without(self, nodes: int) -> Eligibility:
        """The same at the same moment, if these nodes did not exist."""
        left = [msgspec.structs.replace(each, nodes=each.nodes & ~nodes) for each in self.failures]
        kept = tuple(each for each in left if each.nodes)
        return Eligibility(self.nodes, self.everyone & ~nodes, self.bitset & ~nodes, kept)

    def names(self, part: Failure | Group | None = None) -> list[str]:
        """The names of the eligible nodes, or of those that fail something; sorted."""
        bits = self.bitset if part is None else part.nodes
        if bits.bit_count() > _FEW:
            return sorted(node.name for node in bitset_items(bits, self.nodes) if node)
        return sorted(node.name for position in bitset_positions(bits) if (node := self.nodes[position]))

    def openings(self) -> tuple[Group, ...]:
        """The nodes that one failure alone keeps out, by each: to give up, tolerate or mend it makes them eligible.

        The most helpful change comes first.
        """
        once = twice = 0
        for failure in self.failures:
            twice |= once & failure.nodes
            once |= failure.nodes
        alone = once & ~twice
        candidates = [Group((failure,), failure.nodes & alone) for failure in self.failures]
        return tuple(sorted((opening for opening in candidates if opening.count), key=lambda o: -o.count))

    def groups(self) -> tuple[Group, ...]:
        """The nodes by what exactly they fail, the largest group first; each is in one."""
        parts = self._group_alike()
        together: dict[int, list[int]] = {}  # where a selector has thousands of keys that no node has
        for index, failure in enumerate(self.failures):
            if failure.count > _FEW:
                together.setdefault(failure.nodes, []).append(index)
        for nodes, indices in together.items():
            # Where each of thousands of nodes lacks something else, and all of them thousands of labels.
            spend(len(parts) * (1 + len(indices)) // _PARTS_A_STEP, "different ways in which nodes do not fit")
            parts = [
                half
                for failed, part in parts
                for half in (((*failed, *indices), part & nodes), (failed, part & ~nodes))
                if half[1]
            ]
        last = len(self.failures)
        ordered = sorted((-nodes.bit_count(), (*sorted(failed), last), nodes) for failed, nodes in parts)
        return tuple(Group(tuple(map(self.failures.__getitem__, failed[:-1])), nodes) for _, failed, nodes in ordered)

    def _group_alike(self) -> list[_Part]:
        """All nodes by which of the failures of a few they have."""
        failed: dict[int, list[int]] = {}
        for index, failure in enumerate(self.failures):
            if failure.count <= _FEW:
                for position in bitset_positions(failure.nodes):
                    failed.setdefault(position, []).append(index)
        parts: dict[tuple[int, ...], int] = {}
        for position, indices in failed.items():
            alike = tuple(indices)
            parts[alike] = parts.get(alike, 0) | 1 << position
        rest = self.everyone ^ bitset_union(parts.values())
        return [*parts.items(), ((), rest)] if rest else [*parts.items()]


def unmet_requirements(requirements: Requirements, node: Node) -> tuple[UnmetRequirement, ...]:
    """All that keeps a node out, in the order of the requirements; empty: it is eligible."""
    return tuple(reason for requirement in requirements for reason in requirement.reasons(node))


_MOST_DEPARTURES: Final = 3
_MOST_LOST: Final = 3


def eligibility_notes(vmi: Vmi, eligible: Iterable[Node], *, now: float = 0) -> tuple[str, ...]:
    """Notes about the eligible nodes, clauses.

    Args:
        vmi: the VMI that migrates.
        eligible: the nodes that meet all requirements.
        now: Unix time in seconds.
    """
    departing = [f"{node.name} {node.departure.clause(now)}" for node in eligible if node.departure]
    more = len(departing) - _MOST_DEPARTURES
    rest = [f"{more} more eligible nodes are or will be emptied"] if more > 0 else []
    return (*_unevaluated_rules(vmi.spec or PlacedVmiSpec()), *departing[:_MOST_DEPARTURES], *rest)


def source_notes(requirements: Requirements, source: Node) -> Iterator[str]:
    """Notes about the node that a VM leaves, clauses.

    Args:
        requirements: those of its target pod.
        source: the node that it runs on.
    """
    carried = (each for each in requirements if isinstance(each, Label) and each.origin == Origin.HOST_MODEL)
    # After a restart its CPU would be that of such a node again.
    own = host_model_labels(source.labels)
    if lost := [
        str(each.expression) for each in carried if any(each.reasons(source)) and each.expression.key not in own
    ]:
        more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
        yield (
            f"{source.name}, where the VM runs, lacks {', '.join(lost[:_MOST_LOST])}{more} itself by now: only a"
            " restart ends that, by which the VM takes over the CPU of the node that it then starts on"
        )
    if HOSTNAME not in source.labels and all(
        isinstance(each.requirement, Elsewhere) for each in unmet_requirements(requirements, source)
    ):
        yield (
            f"{source.name}, where the VM runs, has no label {HOSTNAME}, by which KubeVirt keeps the target pod away"
            " from it: kube-scheduler may choose it, and the migration then fails after 5 minutes"
        )


def _unevaluated_rules(spec: PlacedVmiSpec) -> Iterator[str]:
    affinity = spec.affinity
    if affinity and affinity.pod_affinity and affinity.pod_affinity.required:
        yield "of the VM's pod affinity, only the nodes' labels are evaluated here"
    if affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.required:
        yield "the VM's pod anti-affinity is not evaluated here"
    spread = (each for each in spec.topology_spread_constraints or () if isinstance(each, dict))
    if any(each.get("whenUnsatisfiable") == "DoNotSchedule" for each in spread):
        yield "of the VM's topology spread constraints, only the nodes' labels are evaluated here"
