"""What a node lacks for good: the resources that the target pod requests, and access to its volumes."""

from __future__ import annotations

from webhook.errors import quote
from webhook.placement import resources
from webhook.placement.node import Node
from webhook.placement.requirement import KVM, OneOf, Requirement, UnmetRequirement


class Allocatable(Requirement, frozen=True, gc=False):
    """So much of a resource on the whole node. What other pods use of it now is not taken into account.

    Attributes:
        amount: the requested amount, in kube-scheduler's unit.
    """

    resource: str
    amount: int

    @property
    def clause(self) -> str:
        """The requirement as a clause that names its origin."""
        if self.origin == KVM:
            return f"KubeVirt requests {self.resource} for every VM"
        return f"the VM's pod requests {self.amount_text} {self.resource}"

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return f"with insufficient allocatable {self.resource} (the VM's pod requests {self.amount_text})"

    @property
    def amount_text(self) -> str:
        """The amount with its unit, for people."""
        return resources.format_request(self.resource, self.amount)

    def reasons(self, node: Node) -> tuple[UnmetRequirement, ...]:
        """Why a node does not meet the requirement; empty if it does."""
        if not node.lacks(self.resource, self.amount):
            return ()
        has = (node.allocatable or {}).get(self.resource)
        told = "does not offer it" if has is None else f"has {resources.format_offer(self.resource, has)} allocatable"
        return (UnmetRequirement(self, told),)


class Reachable(OneOf, frozen=True, gc=False):
    """A node on which a volume can be used: one of the terms of its PersistentVolume's node affinity.

    Attributes:
        volume: its name in the VM.
    """

    volume: str

    @property
    def clause(self) -> str:
        """The requirement as a clause that names the volume."""
        return f"volume {quote(self.volume)} is only available where its PersistentVolume's node affinity allows it"

    @property
    def lacking(self) -> str:
        """The nodes that do not meet the requirement, to follow ``3 node(s)``."""
        return f"outside the node affinity of the PersistentVolume of volume {quote(self.volume)}"
