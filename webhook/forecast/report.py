"""The shape of plans: what `explain drain -o json` and `explain update -o json` print.

Field names are camelCase; a field is never removed or given another meaning under the same `SCHEMA`, but more may come.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from webhook.k8s.types.meta import View
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.migrationpolicy import MigrationRules
from webhook.placement.machines import Migration

SCHEMA: Final = "kubevirt-webhook.github.io/explain-drain/v1alpha1"
UPDATE_SCHEMA: Final = "kubevirt-webhook.github.io/explain-update/v1alpha1"

# Outcomes of a VM.
MOVES: Final = "moves"
SHUTS_DOWN: Final = "shuts-down"
BLOCKS: Final = "blocks"
HANDED_OVER: Final = "handed-over"
STAYS: Final = "stays-outdated"
# Of a VM whose node is lost.
STARTS: Final = "starts-again"
WAITS: Final = "does-not-start"
DOWN: Final = "stays-down"
# Of a VM that is not moved to balance nodes.
STAYS_PUT: Final = "stays-put"

# Why, for programs: the codes of each outcome.
MIGRATES: Final = "migrates"
MIGRATES_IF_PACKED: Final = "migrates-if-packed"
MAY_NOT_FIT: Final = "may-not-fit"
WAITS_FOR_QUOTA: Final = "waits-for-quota"
MAY_NOT_ATTACH: Final = "may-not-attach"
MIGRATES_LATER: Final = "migrates-later"
DEPENDS_ON_ORDER: Final = "depends-on-order"
ALREADY_MIGRATING: Final = "already-migrating"
PREEMPTS: Final = "preempts"
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
# The code with which the groups policy denies the eviction.
GROUP_RULES: Final = "group-rules-leave-no-node"
QUOTA: Final = "quota"
MOVES_WITHIN_DRAIN: Final = "moves-within-drain"
NO_ATTACHMENT: Final = "no-attachment"
VIRT_HANDLER_GONE: Final = "virt-handler-gone"
STALE_EVACUATION: Final = "stale-evacuation"
NO_PRIORITY_CLASS: Final = "no-priority-class"
SCHEDULER_DOWN: Final = "scheduler-down"
HOST_CPU_UNKNOWN: Final = "host-cpu-unknown"
LIVE_MIGRATE_NOT_CONFIGURED: Final = "live-migrate-not-configured"
EVICT_NOT_CONFIGURED: Final = "evict-not-configured"
HAS_ROOM: Final = "has-room"
MAY_NOT_START: Final = "may-not-start"
NO_VMI: Final = "no-vmi"
RUN_STRATEGY: Final = "run-strategy"
NO_VM: Final = "no-vm"
BEING_DELETED: Final = "being-deleted"
OWNER_SAYS_NO: Final = "owner-says-no"
NO_BETTER_NODE: Final = "no-better-node"
JUST_MOVED: Final = "just-moved"
CODES: Final = {
    MOVES: (
        *(MIGRATES, MIGRATES_IF_PACKED, MIGRATES_LATER, DEPENDS_ON_ORDER, MAY_NOT_FIT, MAY_NOT_ATTACH),
        *(WAITS_FOR_QUOTA, ALREADY_MIGRATING, PREEMPTS),
    ),
    SHUTS_DOWN: (STRATEGY_NONE, NOT_MIGRATABLE_IF_POSSIBLE),
    BLOCKS: (
        *(NOT_MIGRATABLE, UNKNOWN_STRATEGY, NAME_TOO_LONG, MIGRATION_STUCK, NO_MIGRATIONS),
        *(DISRUPTION_BUDGET, NO_ELIGIBLE_NODE, NO_ROOM, PODS_APART, GROUP_RULES, QUOTA, NO_ATTACHMENT),
        *(VIRT_HANDLER_GONE, STALE_EVACUATION, NO_PRIORITY_CLASS, HOST_CPU_UNKNOWN, MOVES_WITHIN_DRAIN),
        SCHEDULER_DOWN,
    ),
    HANDED_OVER: (EXTERNAL_STRATEGY,),
    STAYS: (LIVE_MIGRATE_NOT_CONFIGURED, EVICT_NOT_CONFIGURED),  # and those of `BLOCKS`
    STARTS: (HAS_ROOM, MAY_NOT_START, MAY_NOT_FIT, MAY_NOT_ATTACH, PREEMPTS),
    WAITS: (NO_ELIGIBLE_NODE, NO_ROOM, PODS_APART, QUOTA, NO_ATTACHMENT, NO_PRIORITY_CLASS, SCHEDULER_DOWN, NO_VMI),
    DOWN: (RUN_STRATEGY, NO_VM, BEING_DELETED),
    STAYS_PUT: (OWNER_SAYS_NO, NO_BETTER_NODE, JUST_MOVED),  # and those of `BLOCKS`
}
# What each means, for people; a plan's own reason names the objects. Some words are reason codes of policies, too.
MEANINGS: Final[Mapping[str, str]] = {
    MIGRATES: "There is room for the VM if VMs go where kube-scheduler's scores send them.",
    MIGRATES_IF_PACKED: "There is room only if VMs fill nodes tightly; the scheduler may leave this VM without a node.",
    MIGRATES_LATER: "No node has room now; one has after other VMs or pods have gone. The first attempt may fail.",
    DEPENDS_ON_ORDER: (
        "In one order of migrations the VM finds a node, in another it does not, and KubeVirt chooses VMs at random."
    ),
    MAY_NOT_FIT: (
        "The sum fits, but the VM has dedicated CPUs, NUMA pass-through or realtime CPUs: the kubelet decides by"
        " NUMA node, and may reject the pod."
    ),
    MAY_NOT_ATTACH: (
        "A node has room for the VM and reaches its hotplugged volumes. Other nodes with room do not reach them,"
        " which kube-scheduler does not know."
    ),
    WAITS_FOR_QUOTA: (
        "There is room, but a ResourceQuota of the namespace keeps the VM waiting until other VMs have moved, or"
        " have shut down."
    ),
    ALREADY_MIGRATING: "A migration in flight moves the VM to another node already.",
    PREEMPTS: "No node has room, and kube-scheduler deletes pods of lower priority for the VM.",
    STRATEGY_NONE: "The eviction strategy is None: the pod is evicted, and the guest shuts down.",
    NOT_MIGRATABLE_IF_POSSIBLE: (
        "The VM cannot be migrated, and its eviction strategy is LiveMigrateIfPossible: the guest shuts down."
    ),
    NOT_MIGRATABLE: (
        "The VM cannot be migrated, because of its volumes, devices or network, and its eviction strategy is"
        " LiveMigrate: virt-api denies its eviction."
    ),
    EXTERNAL_STRATEGY: (
        "The eviction strategy is External: KubeVirt only marks the VM, and another controller moves or ends it."
    ),
    UNKNOWN_STRATEGY: "Only a newer KubeVirt accepts the VM's eviction strategy. What becomes of the VM is not known.",
    NAME_TOO_LONG: "KubeVirt cannot migrate a VM with so long a name.",
    MIGRATION_STUCK: "An unfinished migration of the VM can never end, and KubeVirt begins no other.",
    NO_MIGRATIONS: "KubeVirt's configuration allows no migrations.",
    DISRUPTION_BUDGET: "The VM would shut down, but a PodDisruptionBudget does not allow it.",
    NO_ELIGIBLE_NODE: "No other node meets the VM's requirements.",
    NO_ROOM: "Nodes meet the VM's requirements, but none has enough free.",
    PODS_APART: "Pod affinity, pod anti-affinity or topology spread constraints exclude all nodes with room.",
    GROUP_RULES: (
        "The policy groups denies the VM's eviction, with this code, until what its group requires leaves it a node."
    ),
    QUOTA: (
        "A ResourceQuota of the namespace does not allow the VM's next pod. The target pod of a migration requests all"
        " that the VM has again."
    ),
    MOVES_WITHIN_DRAIN: (
        "The VM tolerates cordoned nodes, and kube-scheduler sends it to a node that is drained at the same time,"
        " which is then not empty."
    ),
    NO_ATTACHMENT: "Nodes can take the VM's pod, but none of them the pod that attaches its hotplugged volumes.",
    VIRT_HANDLER_GONE: "virt-handler of the VM's node, which has to send the guest, is gone.",
    STALE_EVACUATION: (
        "The VM is marked for the evacuation of a node where it does not run: virt-api denies its evictions, and"
        " KubeVirt creates no migration."
    ),
    SCHEDULER_DOWN: "The scheduler that the VM names is unavailable, and its next pod waits for it.",
    NO_PRIORITY_CLASS: (
        "The VM names a PriorityClass that does not exist, so that the API server denies its next pod."
    ),
    HOST_CPU_UNKNOWN: (
        "The VM has the CPU model host-model, and no label of its node names that model, so that KubeVirt creates"
        " no target pod."
    ),
    LIVE_MIGRATE_NOT_CONFIGURED: (
        "The VM can be migrated, but KubeVirt's workloadUpdateMethods does not have LiveMigrate."
    ),
    EVICT_NOT_CONFIGURED: (
        "Only an eviction would update the VM, but KubeVirt's workloadUpdateMethods does not have Evict, or"
        " batchEvictionSize is 0."
    ),
    HAS_ROOM: "There is room for the VM beside all other pods that are created anew.",
    MAY_NOT_START: "The VM finds a node in the plan's order of starts, and none if the smallest VMs start first.",
    NO_VMI: "KubeVirt makes no VirtualMachineInstance of the VM as its template is now.",
    RUN_STRATEGY: "KubeVirt does not start the VM again by itself, because of its runStrategy.",
    NO_VM: "A VirtualMachineInstance without a VirtualMachine: KubeVirt does not start it again.",
    BEING_DELETED: "The VM is being deleted, and does not start again.",
    OWNER_SAYS_NO: "The VM's evictionStrategy, or an annotation for the descheduler, says that it is not to be moved.",
    JUST_MOVED: "A migration of the VM has just ended; --cool-down says for how long it stays then.",
    NO_BETTER_NODE: "No node that can take the VM would stand out less than the one where it runs.",
}

# KubeVirt tries to migrate these all the same: their target pods are pending, and keep others waiting.
PENDING: Final = (NO_ELIGIBLE_NODE, NO_ROOM, PODS_APART)
# The same, also where no scheduler looks for a node.
UNSCHEDULED: Final = (*PENDING, SCHEDULER_DOWN)
# Their migrations have begun, wait without end, and count against the limits.
ENDLESS: Final = (NO_ATTACHMENT, VIRT_HANDLER_GONE)
# The plan has a node for these, and kube-scheduler, or the kubelet, may decide otherwise.
UNCERTAIN: Final = (MAY_NOT_FIT, MAY_NOT_ATTACH)
# KubeVirt limits no bandwidth by default. One encrypted stream of QEMU's is about as fast.
ASSUMED_BANDWIDTH: Final = 256 * 2**20
# To schedule the target pod, start its containers and connect both sides; with images that are there already.
START_SECONDS: Final = 15
# After so long KubeVirt deletes a target pod that a scheduler has found no node for; it tries again later.
PENDING_SECONDS: Final = 300
# After so long one of which no scheduler has said so, since none looks at it.
UNSEEN_SECONDS: Final = 900


class PreemptedPod(View, frozen=True):
    """A pod that kube-scheduler deletes to make room for the target pod of a VM.

    Attributes:
        priority: the pod's.
        vm: the VM that runs in it, which shuts down; empty: none does.
        violates_budget: whether a PodDisruptionBudget would not allow it, which kube-scheduler avoids where it can.
    """

    namespace: str
    name: str
    priority: int
    vm: str = ""
    violates_budget: bool = False


class VmPlan(View, frozen=True):
    """What a drain does to one VM.

    Attributes:
        code: why, one of `CODES`.
        reason: why, a clause; empty where there is nothing to add.
        to: a node that has room for it beside all others that move, which may be one that is drained, too; empty: it
            does not move.
        memory: what its target pod requests, in bytes.
        eligible: how many nodes meet all its requirements.
        with_room: how many of these have room before any other VM moves, and no pods that exclude it.
        candidates: their names, of many the first ones.
        turn: in which order the VMs of a step move, from 1; 0: it does not.
        controller: the object for which another controller acts on a VM that is handed over; empty: it is not known.
        preempts: the pods that kube-scheduler deletes on the node that it moves to, the most important first.
        stays_down: why nothing starts the VM again that shuts down, a clause; empty: KubeVirt does, it does not shut
            down, or that is not known.
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
    controller: str = ""
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    preempts: tuple[PreemptedPod, ...] = ()
    stays_down: str = ""


class BlockedPod(View, frozen=True):
    """A pod without a VM that may not be evicted now."""

    namespace: str
    name: str
    reason: str


class PlannedTransfer(View, frozen=True):
    """A pod without a VM that copies a disk, which the drain cuts off.

    Attributes:
        what: what it is, for example ``CDI importer``.
        owner: what it works for, kind and name; empty: it has no controller, so that `kubectl drain` needs --force.
        running_seconds: since when it runs; null: it has not started.
        loss: what becomes of its work, a clause.
    """

    namespace: str
    name: str
    what: str
    owner: str
    running_seconds: int | None
    loss: str


class Step(View, frozen=True):
    """Nodes that are drained at the same time, and what that takes.

    Attributes:
        vms: every VM on them, by node, namespace and name.
        other_pods: how many pods without a VM are evicted, those of DaemonSets not counted.
        at_most_seconds: how long they take if each takes all the time that KubeVirt gives it; null: KubeVirt
            ends none, however long it takes.
        transfers: the pods without a VM among those that are evicted that copy a disk.
    """

    nodes: tuple[str, ...]
    vms: tuple[VmPlan, ...]
    other_pods: int
    blocked_pods: tuple[BlockedPod, ...]
    seconds: int
    at_most_seconds: int | None
    transfers: tuple[PlannedTransfer, ...] = ()


class Remedy(View, frozen=True):
    """A single change, an imperative, and the VMs that would no longer block: ``NAMESPACE/NAME``, sorted."""

    change: str
    vms: tuple[str, ...]


class Limits(View, frozen=True):
    """How many migrations run concurrently, and how fast.

    Attributes:
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


class SpareNode(View, frozen=True):
    """What one more node would change.

    Attributes:
        like: the node that it is like, without any pod.
        moves: as in `DrainPlan`, as the other fields.
    """

    like: str
    moves: int
    blocks: int
    seconds: int


class DrainPlan(View, frozen=True):
    """The whole plan.

    Attributes:
        rolling: the steps follow each other, and after each its nodes take VMs again; else there is one step.
        parallel: how many nodes a rolling plan drains at the same time.
        moves: how many migrations there are, those of VMs that block where they end among them.
        order: an order of the nodes in which fewer VMs block, or fewer move; empty: none was found.
        spare: what one more node would change; None: nothing, or it was not computed, because no VM lacks room.
        preempted: how many pods kube-scheduler deletes so that VMs of higher priority find room.
        blocks: how many VMs and other pods keep a drain from ending.
        handed_over: how many VMs another controller moves or ends; a drain ends once it has.
        notes: what else decides over it, sentences.
        assumptions: what the plan takes for granted, sentences.
    """

    schema: str
    rolling: bool
    moves: int
    shuts_down: int
    blocks: int
    handed_over: int
    seconds: int
    at_most_seconds: int | None
    limits: Limits
    steps: tuple[Step, ...]
    changes: tuple[Remedy, ...]
    notes: tuple[str, ...]
    assumptions: tuple[str, ...]
    gaps: tuple[str, ...]
    parallel: int = 1
    order: tuple[str, ...] = ()
    spare: SpareNode | None = None
    preempted: int = 0


class Evictions(View, frozen=True):
    """The evictions of an update.

    Attributes:
        size: how many pods KubeVirt evicts in a batch.
        interval_seconds: between two batches.
        vms: how many VMs it evicts; some more than once, if their eviction is denied.
        at_most_seconds: null: denied ones, which it chooses again, keep others waiting.
    """

    size: int
    interval_seconds: int
    vms: int
    seconds: int
    at_most_seconds: int | None


class UpdatePlan(View, frozen=True):
    """What an update of KubeVirt does to the VMs whose launchers are then outdated.

    Attributes:
        methods: KubeVirt's ``workloadUpdateMethods``.
        shuts_down: how many VMs are evicted, and shut down.
        stays: how many VMs stay outdated.
        failing: for how many of these KubeVirt creates migrations all the same, which fail again and again.
        up_to_date: how many VMs that run are not outdated.
        seconds: how long the migrations take, which begin beside the evictions.
        at_most_seconds: null: not known.
        vms: every outdated VM, by namespace and name.
        preempted: as in `DrainPlan`.
    """

    schema: str
    from_version: str
    to_version: str
    methods: tuple[str, ...]
    moves: int
    shuts_down: int
    stays: int
    handed_over: int
    failing: int
    up_to_date: int
    seconds: int
    at_most_seconds: int | None
    limits: Limits
    evictions: Evictions
    vms: tuple[VmPlan, ...]
    changes: tuple[Remedy, ...]
    notes: tuple[str, ...]
    assumptions: tuple[str, ...]
    gaps: tuple[str, ...]
    preempted: int = 0


class QueuedMigration(msgspec.Struct, frozen=True):
    """One migration.

    Attributes:
        held: no node is found for its target pod, so that it ends when KubeVirt gives the pod up, after so many
            seconds; 0: one is found.
        at_once: how many target pods like its own the quotas of the namespace admit; None: no quota limits them.
        size: the bytes by which KubeVirt counts its time, the guest's memory; None: they are not known.
    """

    node: str
    memory: int
    held: int = 0
    namespace: str = ""
    at_once: int | None = None
    size: int | None = 0
    rules: MigrationRules | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether no node is found for its target pod."""
        return self.held > 0


def held_seconds(code: str) -> int:
    """How long KubeVirt keeps the target pod of a VM that has no node, by the code of its plan; 0: it has one."""
    if code == SCHEDULER_DOWN:
        return UNSEEN_SECONDS
    return PENDING_SECONDS if code in PENDING else 0


def waiting_times(codes: Iterable[str]) -> str:
    """How long KubeVirt keeps the target pods of VMs without a node, in minutes, as text."""
    times = sorted({held for code in codes if (held := held_seconds(code))})
    return " or ".join(f"{seconds // 60}m" for seconds in times)


def limits_of(kubevirt: ClusterConfig, migrations: Iterable[Migration], bandwidth: int | None = None) -> Limits:
    """The limits of a cluster; ``bandwidth`` is assumed where it limits none, None: `ASSUMED_BANDWIDTH`."""
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
    return _makespan([(job, limits.start_seconds + -(-job.memory // _bandwidth(job, limits))) for job in jobs], limits)


def _bandwidth(job: QueuedMigration, limits: Limits) -> int:
    """Bytes per second; a MigrationPolicy's limit counts instead of the cluster's."""
    own = job.rules.bandwidth if job.rules and job.rules.policy else 0
    return (min(own, limits.bandwidth) if limits.bandwidth_is_assumed else own) if own > 0 else limits.bandwidth


def at_most(jobs: Sequence[QueuedMigration], limits: Limits) -> int | None:
    """Seconds until all that are not stuck have ended, if each takes all the time that KubeVirt gives it.

    None: KubeVirt sets no end (pkg/virt-launcher/virtwrap/live-migration-source.go): the timeout is 0, post-copy is
    allowed, stalls are detected by deadlines of their own, or the size is not known.
    """
    times = [(job, 0 if job.is_stuck else _longest(job, limits)) for job in jobs]
    bounds = [(job, limits.start_seconds + seconds) for job, seconds in times if seconds is not None]
    return _makespan(bounds, limits) if len(bounds) == len(times) else None


def _longest(job: QueuedMigration, limits: Limits) -> int | None:
    """How many seconds KubeVirt gives a migration; None: as many as it takes, or that is not known."""
    rules = job.rules or MigrationRules(0, limits.timeout_seconds_per_gib)
    return rules.longest(job.memory if job.size == 0 else job.size)


def _makespan(jobs: Sequence[tuple[QueuedMigration, int]], limits: Limits) -> int:
    """When the last of some jobs ends that begin as soon as there is a slot, in their order.

    Those that are stuck take a slot, too: a target pod that is pending counts as a migration that runs. One whose
    target pod a quota denies takes none, and KubeVirt tries again until it is admitted.
    """
    if limits.per_cluster < 1 or limits.per_node < 1:
        return 0
    is_limited = any(job.at_once is not None for job, _ in jobs)
    if not is_limited and len(jobs) <= min(limits.per_cluster, limits.per_node):
        return max([0, *(seconds for job, seconds in jobs if not job.is_stuck)])
    waiting: dict[str, deque[tuple[QueuedMigration, int]]] = {}
    for job, seconds in jobs:
        waiting.setdefault(job.node, deque()).append((job, job.held or seconds))
    slots = deque(node for turn in range(limits.per_node) for node, queue in waiting.items() if turn < len(queue))
    pledged = Counter(slots)
    denied: list[str] = []
    inside: Counter[str] = Counter()
    running: list[tuple[int, str, str]] = []
    now = last = 0
    while slots or running:
        while slots and len(running) < limits.per_cluster:
            node = slots.popleft()
            # The quotas admit a target pod beside those of the namespace that run, or one alone.
            admitted = (job.at_once is None or inside[job.namespace] < max(1, job.at_once) for job, _ in waiting[node])
            place = next((at for at, is_admitted in enumerate(admitted) if is_admitted), None) if is_limited else 0
            if place is None:
                denied.append(node)
                continue
            job, seconds = waiting[node][place]
            del waiting[node][place]
            pledged[node] -= 1
            inside[job.namespace] += 1
            last = last if job.is_stuck else max(last, now + seconds)
            heapq.heappush(running, (now + seconds, node, job.namespace))
        now, node, namespace = heapq.heappop(running)
        inside[namespace] -= 1
        slots += denied
        denied.clear()
        if len(waiting[node]) > pledged[node]:
            slots.append(node)
            pledged[node] += 1
    return last
