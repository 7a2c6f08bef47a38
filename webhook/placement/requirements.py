"""Requirements on nodes: where each comes from, why a node does not meet it, and which exclude each other.

A requirement gives a reason for each node that does not meet it. Where requirements exclude each other whatever nodes
there are, that is the better explanation (`contradictions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import ClassVar, Final, TypeAlias

import msgspec

from webhook.admission.step_budget import spend
from webhook.errors import quote
from webhook.k8s.types.scheduling import Toleration
from webhook.k8s.types.selectors import (
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
from webhook.placement.nodes import CORDON, CPU_VENDOR, HOSTNAME, KVM_DEVICE, ZONE, Node, Tolerated, format_amount


class Origin:
    """Where a requirement comes from."""

    ADDED: Final = "added"
    VM: Final = "vm"
    AFFINITY: Final = "affinity"
    CLUSTER: Final = "cluster"
    KUBEVIRT: Final = "kubevirt"
    SCHEDULABLE: Final = "schedulable"
    HOST_MODEL: Final = "host-model"
    VENDOR: Final = "vendor"
    TAINTS: Final = "taints"
    CORDONED: Final = "cordon"
    DEPARTURE: Final = "departure"
    SOURCE_NODE: Final = "source node"
    KVM: Final = "kvm"
    RESOURCES: Final = "resources"
    RUNTIME_CLASS: Final = "runtime class"
    NAMESPACE: Final = "namespace"
    VOLUMES: Final = "volumes"
    RESERVATION: Final = "reservation"
    SPREAD: Final = "spread"
    POD_AFFINITY: Final = "pod affinity"
    DEFAULT: Final = "default"
    GROUP: Final = "group"
    APART: Final = "apart"
    TOGETHER: Final = "together"


_SOURCES: Final = {
    Origin.ADDED: "addedNodeSelector",
    Origin.VM: "the VM's nodeSelector",
    Origin.AFFINITY: "the VM's node affinity",
    Origin.HOST_MODEL: "the CPU that the VM took over from its first host",
    Origin.VENDOR: "the CPU that the VM runs on now",
    Origin.RUNTIME_CLASS: "the RuntimeClass of the VM's pod",
    Origin.NAMESPACE: "the namespace's node selector",
    Origin.SPREAD: "a hard topology spread constraint of the VM",
    Origin.POD_AFFINITY: "the VM's pod affinity",
    Origin.DEFAULT: "a default of kubevirt-webhook",
    Origin.GROUP: "the VM's group",
}
# What requires a label, a clause, and why nodes are without it; of node affinities `OneOf.lacking` says that instead.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    **{origin: (f"{source} requires {{}}", f"required by {source}") for origin, source in _SOURCES.items()},
    Origin.CLUSTER: ("KubeVirt's configuration requires {} for every VM", "required by KubeVirt's configuration"),
    Origin.KUBEVIRT: ("KubeVirt requires {} for this VM", "required by KubeVirt for this VM"),
    Origin.SCHEDULABLE: (
        "KubeVirt requires {}, which virt-handler sets on nodes where it works",
        "no working virt-handler",
    ),
    # Of another cluster; nodes are named to those who may list them, and no user of this cluster can list this one.
    Origin.SOURCE_NODE: ("the migration must leave the node that the VM comes from", "where the VM comes from"),
    Origin.RESERVATION: (
        "VMs that may reserve the same volume must run on different nodes",
        "where another VM reserves the same volume",
    ),
    Origin.APART: ("the VMs of its group must be apart", "where another VM of its group runs"),
    Origin.TOGETHER: ("the VMs of its group must be together", "where no other VM of its group runs"),
}
_DOMAINS: Final = {HOSTNAME: "node", ZONE: "zone", "topology.kubernetes.io/region": "region"}
# These say which nodes they are about without naming a label.
_WITHOUT_LABEL: Final = (Origin.SOURCE_NODE, Origin.RESERVATION, Origin.APART, Origin.TOGETHER)


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """Base of all; immutable and hashable. ``origin`` is one of `Origin`'s."""

    origin: str

    @property
    def clause(self) -> str:
        """What requires what, as a clause: ``addedNodeSelector requires zone=b``."""
        raise NotImplementedError

    @property
    def lacking(self) -> str:
        """What nodes that fail are, to stand after their number: ``without zone=b (required by addedNodeSelector)``."""
        raise NotImplementedError

    def reasons(self, node: Node) -> tuple[UnmetRequirement, ...]:
        """Why a node does not fit; empty if it does."""
        return tuple(UnmetRequirement(self, has) for has in self._unmet(node))

    def _unmet(self, node: Node) -> Iterable[str]:
        raise NotImplementedError


Requirements: TypeAlias = tuple[Requirement, ...]


class UnmetRequirement(msgspec.Struct, frozen=True, gc=False):
    """Why one node does not fit, and what it has instead, in words: ``has zone=a``, ``has no label zone``."""

    requirement: Requirement
    has: str

    def __str__(self) -> str:
        return f"{self.requirement.clause}; the node {self.has}"


class Label(Requirement, frozen=True, gc=False):
    """A requirement on one label of the node.

    Attributes:
        source: what requires it, a noun phrase, where that is more than its origin says.
    """

    expression: Expression
    source: str = ""

    @property
    def clause(self) -> str:
        """The requirement as a clause that names its origin."""
        if self.source:
            return f"{self.source} requires {self.expression}"
        words = _WORDS[self.origin][0].format(self.expression)
        return f"{words} by {self._domain}" if self._domain else words

    @property
    def _domain(self) -> str:
        """By what the VMs of a group are apart or together, where that is more than the node."""
        if self.origin not in (Origin.APART, Origin.TOGETHER) or self.expression.key == HOSTNAME:
            return ""
        return domain_word(self.expression.key)

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        if self._domain:
            which = "another" if self.origin == Origin.APART else "no other"
            return f"in whose {self._domain} {which} VM of its group runs"
        by = f"required by {self.source}" if self.source else _WORDS[self.origin][1]
        return by if self.origin in _WITHOUT_LABEL else f"{self.expression.lacking} ({by})"

    def _unmet(self, node: Node) -> Iterable[str]:
        value = node.labels.get(self.expression.key)
        return () if self.expression.accepts(value) else (f"has {_label(self.expression.key, value)}",)


def domain_word(key: str) -> str:
    """A topology key as people say it: ``zone``; a key that is not Kubernetes' own stays as it is."""
    return _DOMAINS.get(key, key)


def _label(key: str, value: str | None) -> str:
    return f"no label {key}" if value is None else f"{key}={value}"


class OneOf(Requirement, frozen=True, gc=False):
    """Required node affinity: one of several terms. Without any term nothing fits."""

    terms: tuple[Term, ...]

    @property
    def clause(self) -> str:
        """The requirement as a clause; where no term can match, with the mistakes in them."""
        if all(term.hopeless for term in self.terms):
            problems = "; ".join(problem for term in self.terms for problem in term.problems)
            why = f" ({problems})" if problems else ""
            return f"the VM's node affinity has no term that a node could match{why}"
        return _WORDS[self.origin][0].format(" or ".join(map(str, self.terms)))

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return "outside the VM's node affinity"

    def _unmet(self, node: Node) -> Iterable[str]:
        if any(term.matches(node.labels, node.name) for term in self.terms):
            return ()
        possible = [term for term in self.terms if not term.hopeless]
        keys = dict.fromkeys(expression.key for term in possible for expression in term.expressions)
        if not keys:
            return ("has another name" if possible else "cannot match",)
        return (f"has {', '.join(_label(key, node.labels.get(key)) for key in keys)}",)


class Untainted(Requirement, frozen=True, gc=False):
    """No taint with the effects NoSchedule or NoExecute but those that are tolerated."""

    tolerations: tuple[Toleration, ...]
    lacking: ClassVar[str] = "with taints that the VM does not tolerate"

    @property
    def clause(self) -> str:
        """The requirement as a clause."""
        return "the VM tolerates only some taints" if self.tolerations else "the VM tolerates no taints"

    def _unmet(self, node: Node) -> Iterable[str]:
        tolerated = Tolerated(self.tolerations)
        return (f"has the taint {taint}" for taint in node.taints if not tolerated.covers(taint))


class Uncordoned(Requirement, frozen=True, gc=False):
    """A node that is not cordoned, unless that is tolerated."""

    tolerations: tuple[Toleration, ...]
    clause: ClassVar[str] = "the VM does not tolerate cordoned nodes"
    lacking: ClassVar[str] = "cordoned"

    @property
    def is_waived(self) -> bool:
        """Whether cordoned nodes fit as well."""
        return Tolerated(self.tolerations).covers(CORDON)

    def _unmet(self, node: Node) -> Iterable[str]:
        return ("is cordoned",) if node.unschedulable and not self.is_waived else ()


class Staying(Requirement, frozen=True, gc=False):
    """A node that VMs do not leave now. kube-scheduler does not require it."""

    clause: ClassVar[str] = "the VM would soon have to leave nodes that are being emptied"
    lacking: ClassVar[str] = "being emptied"

    def _unmet(self, node: Node) -> Iterable[str]:
        return ("is being emptied",) if node.is_being_emptied else ()


class Elsewhere(Requirement, frozen=True, gc=False):
    """Not where the VM is now: neither that node nor any with its label ``hostname``; empty: that is not known."""

    node: str
    hostname: str = ""
    clause: ClassVar[str] = "the migration must leave the VM's current node"
    lacking: ClassVar[str] = "where the VM runs now"

    def _unmet(self, node: Node) -> Iterable[str]:
        if node.name == self.node:
            return ("is the current node",)
        same = self.hostname and node.labels.get(HOSTNAME) == self.hostname
        return (f"has the same {HOSTNAME}={self.hostname}",) if same else ()


class Kvm(Requirement, frozen=True, gc=False):
    """KubeVirt's device, without which the launcher pod is not scheduled unless emulation is allowed."""

    clause: ClassVar[str] = f"KubeVirt requests {KVM_DEVICE} for every VM"
    lacking: ClassVar[str] = f"without {KVM_DEVICE}"

    def _unmet(self, node: Node) -> Iterable[str]:
        return ("does not offer it",) if node.no_kvm else ()


class Allocatable(Requirement, frozen=True, gc=False):
    """So much of a resource on the whole node, in kube-scheduler's unit. What other pods use of it does not count."""

    resource: str
    amount: int

    @property
    def clause(self) -> str:
        """The requirement as a clause that names its origin."""
        if self.origin == Origin.KVM:
            return f"KubeVirt requests {self.resource} for every VM"
        return f"the VM's pod requests {self.amount_text} {self.resource}"

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return f"with insufficient allocatable {self.resource} (the VM's pod requests {self.amount_text})"

    @property
    def amount_text(self) -> str:
        """The amount with its unit, for people."""
        return format_amount(self.resource, self.amount)

    def _unmet(self, node: Node) -> Iterable[str]:
        if not node.lacks(self.resource, self.amount):
            return ()
        has = (node.allocatable or {}).get(self.resource)
        if has is None:
            return ("does not offer it",)
        return (f"has {format_amount(self.resource, has, is_offer=True)} allocatable",)


class Reachable(OneOf, frozen=True, gc=False):
    """A node on which a volume of the VM can be used: one of the terms of its PersistentVolume's node affinity.

    Attributes:
        storage_class: the StorageClass that is to provision the volume, whose ``allowedTopologies`` the terms are;
            empty: the volume exists, or is being provisioned for one node.
    """

    volume: str
    storage_class: str = ""

    @property
    def clause(self) -> str:
        """The requirement as a clause that names the volume."""
        if self.storage_class:
            made = f"provisions volume {quote(self.volume)} for certain nodes only"
            return f"StorageClass {quote(self.storage_class)} {made}"
        return f"volume {quote(self.volume)} is only available where its PersistentVolume's node affinity allows it"

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        volume = quote(self.volume)
        if self.storage_class:
            return f"outside the allowedTopologies of StorageClass {quote(self.storage_class)} of volume {volume}"
        return f"outside the node affinity of the PersistentVolume of volume {volume}"


_Restriction = tuple[Requirement, Expression]

_INT64: Final = range(-(2**63), 2**63)
# Origins whose labels never overwrite what a migration adds.
_WITHOUT_PRECEDENCE: Final = (Origin.ADDED, Origin.VENDOR)


class Contradiction(msgspec.Struct, frozen=True, gc=False):
    """Requirements that no node can have at once, or one that no node can have; what the migration adds first."""

    requirements: Requirements

    @property
    def is_dropped(self) -> bool:
        """Whether KubeVirt itself drops what the migration adds, without a word, and migrates as if it were not there.

        Else the target pod would stay unschedulable until the migration fails.
        """
        first, *others = self.requirements
        if not isinstance(first, Label) or first.origin != Origin.ADDED:
            return False
        labels = (each for each in others if isinstance(each, Label) and each.origin not in _WITHOUT_PRECEDENCE)
        return any((each.expression.key, each.expression.operator) == (first.expression.key, IN) for each in labels)

    def __str__(self) -> str:
        return ", but ".join(requirement.clause for requirement in self.requirements)

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels that the migration adds and that take part in it."""
        added = (each for each in self.requirements if isinstance(each, Label) and each.origin == Origin.ADDED)
        return tuple(each.expression.key for each in added)


# One expression with such an operator can always be met.
_ALWAYS_POSSIBLE: Final = frozenset({NOT_IN, EXISTS, DOES_NOT_EXIST})


def contradictions(requirements: Requirements) -> tuple[Contradiction, ...]:
    """All of them, label by label in the order of the requirements, then those of node affinities."""
    restrictions: dict[str, list[_Restriction]] = {}
    doubtful: set[str] = set()
    affinities: list[OneOf | Reachable] = []
    spend(len(requirements), "requirements")
    # `type(...) is` instead of `isinstance`, which makes a call where the class differs.
    for requirement in requirements:
        if type(requirement) is Label:
            expression = requirement.expression
        elif type(requirement) is Elsewhere and requirement.hostname:
            expression = Expression(HOSTNAME, NOT_IN, (requirement.hostname,))
        else:
            if type(requirement) is OneOf or type(requirement) is Reachable:
                affinities.append(requirement)
            continue
        key, operator = expression.key, expression.operator
        # Most labels are required once, and one value, or any, is always possible.
        possible = expression.values if operator == IN else operator in _ALWAYS_POSSIBLE
        if key in restrictions or not possible:
            doubtful.add(key)
        restrictions.setdefault(key, []).append((requirement, expression))
    if not doubtful and not affinities:
        return ()
    conflicts = [conflict for key in restrictions if key in doubtful for conflict in _of_one_label(restrictions[key])]
    elsewhere = [each for each in requirements if type(each) is Elsewhere] if affinities else []
    names: list[_Restriction] = [(each, Expression(NAME_FIELD, NOT_IN, (each.node,))) for each in elsewhere]
    for affinity in affinities:
        conflicts += _of_affinity(affinity, restrictions, names)
    return tuple(conflicts)


def without_dropped(requirements: Requirements) -> Requirements:
    """The requirements without what the migration adds and KubeVirt drops."""
    dropped = {conflict.requirements[0] for conflict in contradictions(requirements) if conflict.is_dropped}
    return tuple(each for each in requirements if each not in dropped)


def kept_by_kubevirt(requirements: Requirements) -> Requirements:
    """What KubeVirt by itself requires of a target pod: without what it drops, or takes for its own rule."""
    added = [each.expression for each in requirements if isinstance(each, Label) and each.origin == Origin.ADDED]
    guarded = not any(expression.key.startswith(CPU_VENDOR) for expression in added)
    return tuple(each for each in without_dropped(requirements) if guarded or each.origin != Origin.VENDOR)


def are_compatible(together: Sequence[Expression]) -> bool:
    """Whether any value of one label, or its absence, satisfies all these expressions."""
    return all(expression.accepts(None) for expression in together) or are_satisfiable(together)


def are_satisfiable(together: Sequence[Expression]) -> bool:
    """Whether any value does: as `are_compatible`, of what every node has."""
    if any(expression.operator == DOES_NOT_EXIST for expression in together):
        return False
    # Of all lower bounds the greatest, and of all upper ones the least: they say what all together say.
    lower = max((each for each in together if each.operator == GREATER), key=_bound, default=None)
    upper = min((each for each in together if each.operator == LESS), key=_bound, default=None)
    listed = [set(expression.values) for expression in together if expression.operator == IN]
    if listed:
        forbidden = {value for each in together if each.operator == NOT_IN for value in each.values}
        bounds = [each for each in (lower, upper) if each]
        return any(all(each.accepts(value) for each in bounds) for value in set.intersection(*listed) - forbidden)
    # Numbers are written in many ways and texts are endless, so a few forbidden ones never exhaust them.
    return (_bound(upper) if upper else _INT64.stop) - (_bound(lower) if lower else _INT64.start - 1) > 1


def _bound(expression: Expression) -> int:
    return integer(expression.values[0]) or 0


def _of_one_label(restrictions: Sequence[_Restriction]) -> Iterator[Contradiction]:
    # Every source of requirements asks for each label once: a handful of pairs, whatever the object.
    spend(len(restrictions) * len(restrictions), "requirements of one label")
    pairs = [(one[0], two[0]) for one, two in combinations(restrictions, 2) if not are_compatible((one[1], two[1]))]
    if pairs:
        yield from map(_contradiction, pairs)
    elif not are_compatible(tuple(expression for _, expression in restrictions)):
        yield _contradiction(requirement for requirement, _ in restrictions)


def _of_affinity(
    affinity: OneOf, restrictions: Mapping[str, Sequence[_Restriction]], names: Sequence[_Restriction]
) -> Iterator[Contradiction]:
    blockers: list[Requirement] = []
    for term in affinity.terms:
        if term.hopeless:
            continue
        against = _term_exclusions(term, restrictions, names)
        if against is None:
            return
        blockers += against
    yield _contradiction(dict.fromkeys((affinity, *blockers)))


def _term_exclusions(
    term: Term, restrictions: Mapping[str, Sequence[_Restriction]], names: Sequence[_Restriction]
) -> Sequence[Requirement] | None:
    """What excludes a term; empty if it excludes itself; None if nothing does."""
    spend(len(term.expressions) + len(term.fields), "expressions of the node affinity")
    if not all(field.accepts("") for field in term.fields if field.key != NAME_FIELD):
        return ()
    by_label: dict[str, list[Expression]] = {}
    for expression in term.expressions:
        by_label.setdefault(expression.key, []).append(expression)
    for key, inside in by_label.items():
        against = _label_exclusions(inside, restrictions.get(key, ()), are_compatible)
        if against is not None:
            return against
    return _label_exclusions([field for field in term.fields if field.key == NAME_FIELD], names, are_satisfiable)


def _label_exclusions(
    inside: Sequence[Expression], others: Sequence[_Restriction], possible: Callable[[Sequence[Expression]], bool]
) -> Sequence[Requirement] | None:
    """What a term's expressions over one label exclude, as `_term_exclusions` says it."""
    if not possible(inside):
        return ()
    single = [other for other, outside in others if not possible((*inside, outside))]
    if single or possible((*inside, *(outside for _, outside in others))):
        return single or None
    return [other for other, _ in others]


def _contradiction(requirements: Iterable[Requirement]) -> Contradiction:
    return Contradiction(tuple(sorted(requirements, key=lambda requirement: requirement.origin != Origin.ADDED)))
