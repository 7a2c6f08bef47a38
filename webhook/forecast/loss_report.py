"""The shape of what a loss of nodes leads to: what `explain loss -o json` prints.

Field names are camelCase; a field is never removed or given another meaning under the same `SCHEMA`, but more may come.
"""

from __future__ import annotations

from typing import Final

from webhook.forecast.report import PreemptedPod, Remedy
from webhook.k8s.types.meta import View

SCHEMA: Final = "kubevirt-webhook.github.io/explain-loss/v1alpha1"


class StartPlan(View, frozen=True):
    """What becomes of one VM.

    Attributes:
        node: where it runs now: a node that is lost, or one on which kube-scheduler deletes its pod for another.
        code: why, one of `webhook.forecast.report.CODES`.
        reason: why, a clause; empty where there is nothing to add.
        to: where it starts in the plan; empty: nowhere.
        ties: the nodes of which kube-scheduler may choose any there, where that are several.
        memory: what its next pod requests, in bytes.
        eligible: how many nodes meet all its requirements.
        with_room: how many of these have room before any other pod starts, and no pods that exclude it.
        turn: in which order pods get a node, from 1; 0: it gets none.
        priority: its pod's.
        preempts: the pods that kube-scheduler deletes where it starts, the most important first.
    """

    namespace: str
    name: str
    node: str
    outcome: str
    code: str
    reason: str = ""
    to: str = ""
    ties: tuple[str, ...] = ()
    memory: int = 0
    eligible: int = 0
    with_room: int = 0
    turn: int = 0
    priority: int = 0
    preempts: tuple[PreemptedPod, ...] = ()
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


class WaitingPod(View, frozen=True):
    """A pod without a VM that its controller creates anew, and that finds no node; ``owner``: kind and name."""

    namespace: str
    name: str
    owner: str
    reason: str


class FailingLoss(View, frozen=True):
    """Nodes whose loss leaves VMs down that KubeVirt would start again.

    Attributes:
        zone: the zone that these nodes are; empty: they are no whole zone.
        waits: how many VMs.
        vms: the first of them, ``NAMESPACE/NAME``.
    """

    nodes: tuple[str, ...]
    waits: int
    vms: tuple[str, ...]
    zone: str = ""


class Examined(View, frozen=True):
    """Which losses a search has looked at.

    Attributes:
        losses: how many there are to look at.
        by_room: for how many it is certain in any order of starts, because every pod has more nodes with room than
            pods start.
        simulated: how many were simulated, in the plan's order of starts.
        implied: how many contain a smaller one that fails already.
        left_out: how many were not looked at.
        stays_down: how many VMs nothing starts again, whichever node is lost: no search looks for them.
    """

    losses: int
    by_room: int
    simulated: int
    implied: int
    left_out: int
    stays_down: int = 0


class SpareNode(View, frozen=True):
    """What one more node would change: it is like another one, without any pod; ``waits`` as in `LossPlan`."""

    like: str
    waits: int


class LossPlan(View, frozen=True):
    """The whole plan.

    Attributes:
        any_of: how many nodes a search has lost at a time; 0: nodes were named, or zones searched.
        by_zone: whether zones were searched.
        nodes: the nodes that are lost in ``vms`` and all that follows: those that were named, or of a search the
            smallest loss that leaves most VMs down; empty: a search has found none that leaves any.
        starts: how many VMs start again, those that are preempted elsewhere among them.
        waits: how many VMs that KubeVirt would start again find no node, or get no pod.
        stays_down: how many VMs nothing starts again.
        preempted: how many pods kube-scheduler deletes so that those of higher priority find room.
        other_pods: how many pods without a VM are created anew.
        smallest: the smallest part of the nodes that were named whose loss leaves VMs down; empty: all of them,
            unless a gap says that not all parts were looked at.
        failing: losses that leave VMs down, of a search, the smallest and worst first.
        changes: what one change would do, the cheapest first, and the VMs that would start.
        spare: what one more node would change; None: nothing, or no VM lacks room.
    """

    schema: str
    any_of: int
    by_zone: bool
    nodes: tuple[str, ...]
    starts: int = 0
    waits: int = 0
    stays_down: int = 0
    preempted: int = 0
    other_pods: int = 0
    vms: tuple[StartPlan, ...] = ()
    waiting_pods: tuple[WaitingPod, ...] = ()
    smallest: tuple[str, ...] = ()
    failing: tuple[FailingLoss, ...] = ()
    examined: Examined | None = None
    changes: tuple[Remedy, ...] = ()
    spare: SpareNode | None = None
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
