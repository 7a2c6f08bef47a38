"""How many migrations run concurrently, and about how long all of them take."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from webhook.forecast.drain.report import Limits
from webhook.kubevirt.config import ClusterConfig
from webhook.placement.migrations import Migration

# KubeVirt limits no bandwidth by default. One encrypted stream of QEMU's is about as fast.
ASSUMED_BANDWIDTH: Final = 256 * 2**20
# To schedule the target pod, start its containers and connect both sides; with images that are there already.
START_SECONDS: Final = 15
# After so long KubeVirt deletes a target pod that the scheduler has found no node for; it tries again later.
PENDING_SECONDS: Final = 300

_GIB: Final = 2**30


class QueuedMigration(msgspec.Struct, frozen=True):
    """One migration.

    Attributes:
        node: where it starts.
        memory: how many bytes are copied.
        is_stuck: there is no node for its target pod, so that it ends when KubeVirt gives the pod up.
    """

    node: str
    memory: int
    is_stuck: bool = False


def limits_of(kubevirt: ClusterConfig, migrations: Iterable[Migration], bandwidth: int | None = None) -> Limits:
    """The limits of a cluster.

    Args:
        kubevirt: KubeVirt's configuration.
        migrations: all migrations, of which the unfinished ones count.
        bandwidth: assumed bytes per second where the cluster limits none; None: `ASSUMED_BANDWIDTH`.
    """
    limit = kubevirt.migration_bandwidth.value if kubevirt.migration_bandwidth else 0
    assumed = bandwidth or ASSUMED_BANDWIDTH
    return Limits(
        per_cluster=kubevirt.parallel_migrations,
        per_node=kubevirt.outbound_migrations,
        bandwidth=min(limit, bandwidth or limit) if limit > 0 else assumed,
        bandwidth_is_assumed=limit <= 0,
        timeout_seconds_per_gib=kubevirt.migration_timeout_seconds_per_gib,
        start_seconds=START_SECONDS,
        unfinished=sum(each.is_unfinished for each in migrations),
    )


def about(jobs: Sequence[QueuedMigration], limits: Limits) -> int:
    """Seconds until all that are not stuck have ended, if each copies its memory once."""
    return _makespan([(job, limits.start_seconds + -(-job.memory // limits.bandwidth)) for job in jobs], limits)


def at_most(jobs: Sequence[QueuedMigration], limits: Limits) -> int | None:
    """Seconds until all that are not stuck have ended, if each takes all the time that KubeVirt gives it.

    None: KubeVirt ends no migration, however long it takes (pkg/virt-launcher/virtwrap/live-migration-source.go).
    """
    timeout = limits.timeout_seconds_per_gib
    if not timeout and any(not job.is_stuck for job in jobs):
        return None
    return _makespan([(job, limits.start_seconds + -(-job.memory * timeout // _GIB)) for job in jobs], limits)


def _makespan(jobs: Sequence[tuple[QueuedMigration, int]], limits: Limits) -> int:
    """When the last of some jobs ends that begin as soon as there is a slot, in their order.

    Those that are stuck take a slot, too: a target pod that is pending counts as a migration that runs.
    """
    if limits.per_cluster < 1 or limits.per_node < 1:
        return 0
    waiting: dict[str, deque[tuple[int, bool]]] = {}
    for job, seconds in jobs:
        waiting.setdefault(job.node, deque()).append((PENDING_SECONDS if job.is_stuck else seconds, job.is_stuck))
    slots = deque(node for turn in range(limits.per_node) for node, queue in waiting.items() if turn < len(queue))
    pledged = Counter(slots)
    running: list[tuple[int, str]] = []
    now = last = 0
    while slots or running:
        while slots and len(running) < limits.per_cluster:
            node = slots.popleft()
            pledged[node] -= 1
            seconds, is_stuck = waiting[node].popleft()
            last = last if is_stuck else max(last, now + seconds)
            heapq.heappush(running, (now + seconds, node))
        now, node = heapq.heappop(running)
        if len(waiting[node]) > pledged[node]:
            slots.append(node)
            pledged[node] += 1
    return last
