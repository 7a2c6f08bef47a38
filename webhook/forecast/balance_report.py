"""The shape of a plan that balances nodes: what `explain balance -o json` prints.

Field names are camelCase; a field is never removed or given another meaning under the same `SCHEMA`, but more may come.
"""

from __future__ import annotations

from typing import Any, Final

from webhook.k8s.types.meta import View
from webhook.placement.nodes import HOSTNAME

SCHEMA: Final = "kubevirt-webhook.github.io/explain-balance/v1alpha1"


BY_REQUESTS: Final = "requests"
BY_USAGE: Final = "usage"


class NodeLoad(View, frozen=True):
    """How much of a node is requested, or used, in percent of what is allocatable, before the plan and after it."""

    name: str
    cpu: float
    memory: float
    cpu_after: float
    memory_after: float


class Counted(View, frozen=True):
    """What a VM counts for on a node: what nodes are compared by, and what pods request.

    Attributes:
        cpu: in thousandths of a CPU.
        memory: in bytes.
        requested_cpu: in thousandths of a CPU.
        requested_memory: in bytes.
    """

    cpu: int
    memory: int
    requested_cpu: int
    requested_memory: int


class Move(View, frozen=True):
    """A migration of the plan, which fits when all before it have ended.

    Attributes:
        to: the node, and ``hostname`` its label, which the migration adds to the VM's node selector.
        gain: how many percentage points less of the source counts then, of the resource that stands out.
        deviation: that of the cluster then.
        memory: what is to be copied, in bytes.
        seconds: about how long it takes.
        leaves: what the VM counted for on its node. A plan that is made after the move counts the same.
        takes: what it counts for on the other node.
    """

    namespace: str
    name: str
    source: str
    to: str
    hostname: str
    gain: float
    deviation: float
    memory: int
    seconds: int
    leaves: Counted
    takes: Counted

    @property
    def migration(self) -> dict[str, Any]:
        """The object that `kubectl create -f` takes."""
        return {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"generateName": "balance-", "namespace": self.namespace},
            "spec": {"vmiName": self.name, "addedNodeSelector": {HOSTNAME: self.hostname}},
        }


class Staying(View, frozen=True):
    """VMs on nodes that stand out still, which stay there; ``reason``: why, a clause with its ``code``."""

    code: str
    reason: str
    vms: tuple[str, ...]


class BalancePlan(View, frozen=True):
    """The whole plan.

    Attributes:
        by: what nodes are compared by, `BY_REQUESTS` or `BY_USAGE`.
        target: how far above the mean a node may be, in percentage points.
        deviation: how far above the mean the node is that stands out most, of CPU or memory, before the plan.
        deviation_after: the same after it.
        is_reached: whether that is at most the target.
        seconds: about how long all moves take, one after the other.
        loads: the nodes that are compared, those first that stand out most.
        staying: what keeps it from being better.
    """

    schema: str
    by: str
    target: float
    deviation: float
    deviation_after: float
    is_reached: bool
    memory: int
    seconds: int
    moves: tuple[Move, ...]
    loads: tuple[NodeLoad, ...]
    staying: tuple[Staying, ...]
    notes: tuple[str, ...]
    assumptions: tuple[str, ...]
    gaps: tuple[str, ...]
