"""How many migrations a node is receiving: the side that KubeVirt does not limit.

KubeVirt limits how many migrations run in the cluster and leave one node (``parallelMigrationsPerCluster``,
``parallelOutboundMigrationsPerNode``), so that a drain of several nodes may send all of its VMs to one empty node at
once. A target pod is on its node from the moment that kube-scheduler binds it; the migration names that node later.

Of a target pod that is not bound yet, nobody knows where it goes. The next one stays apart from it by anti-affinity,
which kube-scheduler holds in both directions, whichever it binds first; or from as many as could exceed the limit.
virt-controller creates target pods one after the other. So of those on a node, the one that was created last has
counted all others, and none is one too many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from webhook.facts import Facts, ListKey
from webhook.placement.machines import JOB_UID, LAUNCHER_PODS, UNFINISHED, LauncherPod, Migration
from webhook.placement.migrations import target_pod_of
from webhook.placement.nodes import HOSTNAME
from webhook.policies.common.migration_targets import Target
from webhook.policies.common.required_facts import read, require

# virt-controller creates the target pod of such a migration before it reports another phase.
_WAITING: Final = ("", "Pending")
# Target pods that are looked for in one review; KubeVirt runs five migrations unless its administrator has more.
MOST: Final = 64


class Unbound(NamedTuple):
    """A migration whose target pod has no node yet."""

    uid: str
    namespace: str


class Receiving(NamedTuple):
    """The other migrations that are under way.

    Attributes:
        counts: how many each node receives, by its name.
        unbound: those of which nobody knows which node does.
    """

    counts: Mapping[str, int] = {}
    unbound: Sequence[Unbound] = ()


class Limit(NamedTuple):
    """What a target pod is to be held to.

    Attributes:
        hostnames: of the nodes that it is to leave out.
        apart: the migrations from whose target pods it is to stay apart.
        exceeds: whether it may be one too many on its node, since no node would be left for it.
    """

    hostnames: Sequence[str] = ()
    apart: Sequence[Unbound] = ()
    exceeds: bool = False


async def receiving(migration: Migration, facts: Facts) -> Receiving:
    """The other migrations that have a target pod.

    Raises:
        Unreadable: the migrations, or the pods of one of them, cannot be read.
    """
    unfinished = await read(facts, ListKey(UNFINISHED, ""), "the cluster's migrations") or ()
    others = [each for each in unfinished if each.meta.uid and each.meta.namespace and each.is_unfinished]
    others = [each for each in others if each.meta.uid != migration.meta.uid]
    looked_for = sorted(others, key=lambda each: each.phase in _WAITING)[:MOST]
    keys = [ListKey(LAUNCHER_PODS, each.meta.namespace or "", f"{JOB_UID}={each.meta.uid}") for each in looked_for]
    counts: Counter[str] = Counter()
    unbound = []
    for each, answer in zip(looked_for, await facts.all(*keys), strict=True):
        pods = require(answer, f"the target pod of migration {each.meta.name}") or ()
        if pod := target_pod_of(each, pods):
            counts[pod.node_name] += 1
        elif any(_waits_for_a_node(pod) for pod in pods):
            unbound.append(Unbound(each.meta.uid or "", each.meta.namespace or ""))
    return Receiving(counts, unbound)


def _waits_for_a_node(pod: LauncherPod) -> bool:
    return not pod.node_name and not pod.is_over


def may_reach(found: Receiving, most: int) -> bool:
    """Whether one more migration could be one too many anywhere."""
    return len(found.unbound) >= most or any(count + len(found.unbound) >= most for count in found.counts.values())


def limit(found: Receiving, target: Target, most: int) -> Limit:
    """What holds a node to its limit: that fewer migrations are bound to it, and that too few others can still be.

    Where that leaves no node for certain, the next higher limit counts that does.
    """
    for allowed in range(most, max(found.counts.values(), default=0) + len(found.unbound) + 2):
        # So many of those without a node may go where this one goes.
        beside = min(len(found.unbound), allowed - 1)
        apart = found.unbound[beside:]
        busy = [name for name, count in found.counts.items() if count >= allowed - beside]
        hostnames, left = _without(busy, target)
        # Each of the others takes one node at most.
        if left > len(apart):
            return Limit(hostnames, apart, exceeds=allowed > most)
    return Limit()


def _without(busy: Sequence[str], target: Target) -> tuple[list[str], int]:
    """The hostnames of nodes, and how many eligible hostnames there are beside them."""
    known = (target.nodes.get(name) for name in busy)
    named = {node.labels[HOSTNAME] for node in known if node and node.labels.get(HOSTNAME)}
    eligible = (target.nodes.get(name) for name in target.review().names())
    return sorted(named), len({node.labels.get(HOSTNAME) for node in eligible if node} - named)
