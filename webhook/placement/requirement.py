"""One thing that a launcher pod requires of a node, where it comes from, and why a node does not have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, TypeAlias

import msgspec

from webhook.placement.affinity import Toleration
from webhook.placement.expression import Expression, Term
from webhook.placement.node import CORDON, HOSTNAME, Node, Taint
from webhook.placement.taints import is_tolerated

# Where a requirement comes from.
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
SOURCE_NODE: Final = "source node"
KVM: Final = "kvm"
RESOURCES: Final = "resources"
RUNTIME_CLASS: Final = "runtime class"
NAMESPACE: Final = "namespace"
VOLUMES: Final = "volumes"
RESERVATION: Final = "reservation"

_CLAUSES: Final[Mapping[str, str]] = {
    ADDED: "addedNodeSelector requires {}",
    VM: "the VM's nodeSelector requires {}",
    AFFINITY: "the VM's node affinity requires {}",
    CLUSTER: "KubeVirt's configuration requires {} for every VM",
    KUBEVIRT: "KubeVirt requires {} for this VM",
    SCHEDULABLE: "KubeVirt requires {}, which virt-handler sets on nodes where it works",
    HOST_MODEL: "the CPU that the VM took over from its first host requires {}",
    VENDOR: "the CPU that the VM runs on now requires {}",
    # Of another cluster; nodes are named to those who may list them, and no user of this cluster can list this one.
    SOURCE_NODE: "the migration must leave the node that the VM comes from",
    RUNTIME_CLASS: "the RuntimeClass of the VM's pod requires {}",
    NAMESPACE: "the namespace's node selector requires {}",
    RESERVATION: "VMs that may reserve the same volume must run on different nodes",
}


_BY: Final[Mapping[str, str]] = {
    ADDED: "required by addedNodeSelector",
    VM: "required by the VM's nodeSelector",
    CLUSTER: "required by KubeVirt's configuration",
    KUBEVIRT: "required by KubeVirt for this VM",
    SCHEDULABLE: "no working virt-handler",
    HOST_MODEL: "required by the CPU that the VM took over from its first host",
    VENDOR: "required by the CPU that the VM runs on now",
    SOURCE_NODE: "where the VM comes from",
    RUNTIME_CLASS: "required by the RuntimeClass of the VM's pod",
    NAMESPACE: "required by the namespace's node selector",
    RESERVATION: "where another VM reserves the same volume",
}


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """Base of all; immutable and hashable.

    Attributes:
        origin: where it comes from, one of this module's constants.
    """

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
        raise NotImplementedError


class UnmetRequirement(msgspec.Struct, frozen=True, gc=False):
    """Why one node does not fit.

    Attributes:
        requirement: what it fails.
        has: what it has instead, in words: ``zone=a``, ``no label zone``.
    """

    requirement: Requirement
    has: str

    def __str__(self) -> str:
        return f"{self.requirement.clause}; the node {self.has}"


class Label(Requirement, frozen=True, gc=False):
    """A requirement on one label of the node."""

    expression: Expression

    @property
    def clause(self) -> str:
        """The requirement as a clause that names its origin."""
        return _CLAUSES[self.origin].format(self.expression)

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        by = _BY[self.origin]
        return by if self.origin in (SOURCE_NODE, RESERVATION) else f"{self.expression.lacking} ({by})"

    def reason(self, value: str | None) -> UnmetRequirement:
        """Why a node with this value of the label does not meet the requirement; None: it lacks the label."""
        return UnmetRequirement(self, f"has {_label(self.expression.key, value)}")

    def reasons(self, node: Node) -> tuple[UnmetRequirement, ...]:
        """Why a node does not meet the requirement; empty if it does."""
        value = node.labels.get(self.expression.key)
        return () if self.expression.accepts(value) else (self.reason(value),)


def _label(key: str, value: str | None) -> str:
    return f"no label {key}" if value is None else f"{key}={value}"


class OneOf(Requirement, frozen=True, gc=False):
    """Required node affinity: one of several terms. Without any term nothing fits."""

    terms: tuple[Term, ...]

    @property
    def clause(self) -> str:
        """The requirement as a clause; where no term can match, with the mistakes in them."""
        if all(term.hopeless for term in self.terms):
            why = f" ({'; '.join(self.problems)})" if self.problems else ""
            return f"the VM's node affinity has no term that a node could match{why}"
        return _CLAUSES[self.origin].format(" or ".join(map(str, self.terms)))

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return "outside the VM's node affinity"

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels that it looks at, each once, in their order."""
        terms = (term for term in self.terms if not term.hopeless)
        return tuple(dict.fromkeys(expression.key for term in terms for expression in term.expressions))

    @property
    def problems(self) -> tuple[str, ...]:
        """Why terms cannot be evaluated, each with its path."""
        return tuple(problem for term in self.terms for problem in term.problems)

    def reason(self, values: tuple[str | None, ...]) -> UnmetRequirement:
        """Why a node with these values of `keys` does not meet the requirement; None: it lacks the label."""
        if not values:
            return UnmetRequirement(
                self, "has another name" if any(not term.hopeless for term in self.terms) else "cannot match"
            )
        return UnmetRequirement(self, f"has {', '.join(map(_label, self.keys, values))}")

    def reasons(self, node: Node) -> tuple[UnmetRequirement, ...]:
        """Why a node does not meet the requirement; empty if it does."""
        if any(term.matches(node.labels, node.name) for term in self.terms):
            return ()
        return (self.reason(tuple(node.labels.get(key) for key in self.keys)),)


class Untainted(Requirement, frozen=True, gc=False):
    """No taint with the effects NoSchedule or NoExecute but those that are tolerated."""

    tolerations: tuple[Toleration, ...]

    @property
    def clause(self) -> str:
        """The requirement as a clause."""
        return "the VM tolerates only some taints" if self.tolerations else "the VM tolerates no taints"

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return "with taints that the VM does not tolerate"

    def tolerates(self, taint: Taint) -> bool:
        """Whether one of the tolerations covers a taint."""
        return is_tolerated(taint, self.tolerations)

    def reason(self, taint: Taint) -> UnmetRequirement:
        """Why a node with this taint, which is not tolerated, does not meet the requirement."""
        return UnmetRequirement(self, f"has the taint {taint}")

    def reasons(self, node: Node) -> tuple[UnmetRequirement, ...]:
        """Why a node does not meet the requirement, one reason for each taint; empty if it does."""
        return tuple(self.reason(taint) for taint in node.taints if not self.tolerates(taint))


class Uncordoned(Requirement, frozen=True, gc=False):
    """A node that is not cordoned, unless that is tolerated."""

    tolerations: tuple[Toleration, ...]

    @property
    def clause(self) -> str:
        """The requirement as a clause."""
        return "the VM does not tolerate cordoned nodes"

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return "cordoned"

    @property
    def is_waived(self) -> bool:
        """Whether cordoned nodes fit as well."""
        return is_tolerated(CORDON, self.tolerations)

    def reason(self) -> UnmetRequirement:
        """Why a cordoned node does not meet the requirement."""
        return UnmetRequirement(self, "is cordoned")

    def reasons(self, node: Node) -> tuple[UnmetRequirement, ...]:
        """Why a node does not meet the requirement; empty if it does."""
        return (self.reason(),) if node.unschedulable and not self.is_waived else ()


class Elsewhere(Requirement, frozen=True, gc=False):
    """Not where the VM is now.

    Attributes:
        node: the name of the node.
        hostname: its label, by which the scheduler keeps the target away; empty if it is not known.
    """

    node: str
    hostname: str = ""

    @property
    def clause(self) -> str:
        """The requirement as a clause."""
        return "the migration must leave the VM's current node"

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return "where the VM runs now"

    def reason(self, *, same: bool) -> UnmetRequirement:
        """Why a node does not meet the requirement.

        Args:
            same: the node is the present one; False: it only shares the present node's hostname.
        """
        return UnmetRequirement(self, "is the current node" if same else f"has the same {HOSTNAME}={self.hostname}")

    def reasons(self, node: Node) -> tuple[UnmetRequirement, ...]:
        """Why a node does not meet the requirement; empty if it does."""
        if node.name == self.node:
            return (self.reason(same=True),)
        if self.hostname and node.labels.get(HOSTNAME) == self.hostname:
            return (self.reason(same=False),)
        return ()


class Kvm(Requirement, frozen=True, gc=False):
    """KubeVirt's device, without which the launcher pod is not scheduled unless emulation is allowed."""

    device: ClassVar[str] = "devices.kubevirt.io/kvm"

    @property
    def clause(self) -> str:
        """The requirement as a clause."""
        return f"KubeVirt requests {self.device} for every VM"

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return f"without {self.device}"

    def reason(self) -> UnmetRequirement:
        """Why a node without the device does not meet the requirement."""
        return UnmetRequirement(self, "does not offer it")

    def reasons(self, node: Node) -> tuple[UnmetRequirement, ...]:
        """Why a node does not meet the requirement; empty if it does."""
        return (self.reason(),) if node.no_kvm else ()


Requirements: TypeAlias = tuple[Requirement, ...]
