"""How many migrations a node is receiving: the side that KubeVirt does not limit.

KubeVirt limits how many migrations run in the cluster and leave one node (``parallelMigrationsPerCluster``,
``parallelOutboundMigrationsPerNode``), so that a drain of several nodes may send all of its VMs to one empty node at
once. A target pod is on its node from the moment that kube-scheduler binds it; the migration names that node later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from webhook.facts import Facts, ListKey
from webhook.placement.machines import JOB_UID, LAUNCHER_PODS, UNFINISHED, Migration
from webhook.placement.migrations import target_pod_of
from webhook.placement.nodes import HOSTNAME
from webhook.policies.common.migration_targets import Target
from webhook.policies.common.required_facts import read, require

# Before these phases a migration has no target pod that is bound.
_WAITING: Final = ("", "Pending")
# Target pods that are looked for in one review; KubeVirt runs five migrations unless its administrator has more.
MOST: Final = 64


async def receiving(migration: Migration, facts: Facts) -> Counter[str]:
    """How many of the other migrations that are under way each node receives, by its name.

    Raises:
        Unreadable: the migrations, or the pods of one of them, cannot be read.
    """
    unfinished = await read(facts, ListKey(UNFINISHED, ""), "the cluster's migrations") or ()
    others = [each for each in unfinished if each.meta.uid != migration.meta.uid and each.phase not in _WAITING]
    running = [each for each in others if each.is_unfinished and each.meta.uid and each.meta.namespace][:MOST]
    keys = [ListKey(LAUNCHER_PODS, each.meta.namespace or "", f"{JOB_UID}={each.meta.uid}") for each in running]
    found: Counter[str] = Counter()
    for each, answer in zip(running, await facts.all(*keys), strict=True):
        pod = target_pod_of(each, require(answer, f"the target pod of migration {each.meta.name}") or ())
        if pod:
            found[pod.node_name] += 1
    return found


def hostnames_to_leave_out(busy: Collection[str], target: Target) -> tuple[list[str], bool]:
    """The hostnames of the nodes that receive enough, and whether an eligible node is left without them."""
    known = (target.nodes.get(name) for name in busy)
    named = {node.labels[HOSTNAME] for node in known if node and node.labels.get(HOSTNAME)}
    eligible = (target.nodes.get(name) for name in target.review().names())
    return sorted(named), any(node is not None and node.labels.get(HOSTNAME) not in named for node in eligible)
