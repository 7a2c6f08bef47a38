"""The shape of a plan: what `explain drain -o json` prints.

Field names are camelCase; a field is never removed or given another meaning under the same `SCHEMA`, but more may come.
"""

from __future__ import annotations

from typing import Final

from webhook.k8s.views import View

SCHEMA: Final = "kubevirt-webhook.github.io/explain-drain/v1alpha1"

# Outcomes of a VM.
MOVES: Final = "moves"
SHUTS_DOWN: Final = "shuts-down"
BLOCKS: Final = "blocks"

# Why, for programs: the codes of each outcome.
MIGRATES: Final = "migrates"
MIGRATES_IF_PACKED: Final = "migrates-if-packed"
STRATEGY_NONE: Final = "strategy-none"
NOT_MIGRATABLE_IF_POSSIBLE: Final = "not-migratable-if-possible"
NOT_MIGRATABLE: Final = "not-migratable"
EXTERNAL_STRATEGY: Final = "external-strategy"
UNKNOWN_STRATEGY: Final = "unknown-strategy"
NAME_TOO_LONG: Final = "name-too-long"
MIGRATION_STUCK: Final = "migration-stuck"
NO_MIGRATIONS: Final = "no-migrations"
DISRUPTION_BUDGET: Final = "disruption-budget"
NO_ELIGIBLE_NODE: Final = "no-eligible-node"
NO_ROOM: Final = "no-room"
PODS_APART: Final = "pods-apart"
CODES: Final = {
    MOVES: (MIGRATES, MIGRATES_IF_PACKED),
    SHUTS_DOWN: (STRATEGY_NONE, NOT_MIGRATABLE_IF_POSSIBLE),
    BLOCKS: (
        NOT_MIGRATABLE,
        EXTERNAL_STRATEGY,
        UNKNOWN_STRATEGY,
        NAME_TOO_LONG,
        MIGRATION_STUCK,
        NO_MIGRATIONS,
        DISRUPTION_BUDGET,
        NO_ELIGIBLE_NODE,
        NO_ROOM,
        PODS_APART,
    ),
}

# KubeVirt tries to migrate these all the same: their target pods are pending, and keep others waiting.
PENDING: Final = (NO_ELIGIBLE_NODE, NO_ROOM, PODS_APART)


class VmPlan(View, frozen=True):
    """What a drain does to one VM.

    Attributes:
        node: the node that is drained.
        outcome: ``moves``, ``shuts-down`` or ``blocks``.
        code: why, one of `CODES`.
        reason: why, a clause; empty where there is nothing to add.
        to: a node that has room for it beside all others that move; empty: it does not move.
        memory: what its target pod requests, in bytes.
        eligible: how many nodes meet all its requirements.
        with_room: how many of these have room before any other VM moves, and no pods that exclude it.
        candidates: their names, of many the first ones.
        turn: in which order the VMs of a step move, from 1; 0: it does not.
        notes: what may come in between, clauses.
        gaps: what could not be taken into account, clauses.
    """

    namespace: str
    name: str
    node: str
    outcome: str
    code: str
    reason: str = ""
    to: str = ""
    memory: int = 0
    eligible: int = 0
    with_room: int = 0
    candidates: tuple[str, ...] = ()
    turn: int = 0
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


class BlockedPod(View, frozen=True):
    """A pod without a VM that may not be evicted now."""

    namespace: str
    name: str
    reason: str


class Step(View, frozen=True):
    """Nodes that are drained at the same time.

    Attributes:
        vms: every VM on them, by node, namespace and name.
        other_pods: how many pods without a VM are evicted, those of DaemonSets not counted.
        blocked_pods: those among them that may not be evicted now.
        seconds: about how long the migrations take.
        at_most_seconds: how long they take if each takes all the time that KubeVirt gives it; null: KubeVirt
            ends none, however long it takes.
    """

    nodes: tuple[str, ...]
    vms: tuple[VmPlan, ...]
    other_pods: int
    blocked_pods: tuple[BlockedPod, ...]
    seconds: int
    at_most_seconds: int | None


class Remedy(View, frozen=True):
    """A single change, and the VMs that would no longer block.

    Attributes:
        change: what to do, an imperative.
        vms: those VMs, as ``NAMESPACE/NAME``, sorted.
    """

    change: str
    vms: tuple[str, ...]


class Limits(View, frozen=True):
    """How many migrations run concurrently, and how fast.

    Attributes:
        per_cluster: KubeVirt's ``parallelMigrationsPerCluster``.
        per_node: KubeVirt's ``parallelOutboundMigrationsPerNode``.
        bandwidth: bytes per second of one migration.
        bandwidth_is_assumed: KubeVirt's configuration does not limit it.
        timeout_seconds_per_gib: KubeVirt's ``completionTimeoutPerGiB``; 0: no migration is ended.
        start_seconds: assumed for the target pod of each migration to start.
        unfinished: migrations that have not ended now; they take turns first.
    """

    per_cluster: int
    per_node: int
    bandwidth: int
    bandwidth_is_assumed: bool
    timeout_seconds_per_gib: int
    start_seconds: int
    unfinished: int


class DrainPlan(View, frozen=True):
    """The whole plan.

    Attributes:
        schema: `SCHEMA`.
        rolling: the steps follow each other, and after each its nodes take VMs again; else there is one step.
        moves: how many migrations there are in all steps.
        shuts_down: how many VMs shut down.
        blocks: how many VMs and other pods keep a drain from ending.
        seconds: about how long all migrations take.
        at_most_seconds: how long they take if each takes all the time that KubeVirt gives it; null: KubeVirt
            ends none, however long it takes.
        changes: the most helpful first.
        assumptions: what the plan takes for granted, sentences.
        gaps: what could not be taken into account, clauses.
    """

    schema: str
    rolling: bool
    moves: int
    shuts_down: int
    blocks: int
    seconds: int
    at_most_seconds: int | None
    limits: Limits
    steps: tuple[Step, ...]
    changes: tuple[Remedy, ...]
    assumptions: tuple[str, ...]
    gaps: tuple[str, ...]
