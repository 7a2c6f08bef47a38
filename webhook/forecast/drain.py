"""The plan of a drain: every VM on the nodes, what becomes of it, and where it could go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import is_
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from webhook import names
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import InputError, quote
from webhook.facts import Facts, from_memory
from webhook.forecast import movers, report, starts
from webhook.forecast.inbound import InboundLimit
from webhook.forecast.movers import Mover
from webhook.forecast.moves import Moves
from webhook.forecast.preemption import Occupant, Preemption, Victims, lowest_priority
from webhook.forecast.priorities import priority_of
from webhook.forecast.report import (
    BlockedPod,
    DrainPlan,
    Limits,
    PlannedTransfer,
    PreemptedPod,
    Remedy,
    Step,
    VmPlan,
)
from webhook.forecast.snapshot import Arrival, ClusterObjects, PlannedCluster, group, namespaced_name
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.core import NodeWithoutImages
from webhook.k8s.types.selectors import key_problem, value_problem
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.kubevirt.migrationpolicy import MigrationRules, match_policy, migration_rules
from webhook.kubevirt.transfers import transfer_of
from webhook.placement.eligibility import Eligibility, Failure, Group, source_notes
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.machines import LauncherPod, Migration, Vmi
from webhook.placement.migrations import (
    CANCEL_EVACUATION,
    CANCEL_NEEDS,
    EvictionEffect,
    can_cancel_evacuations,
    cancel_evacuation,
    evacuated_node,
    eviction_effect,
    in_flight,
    own_strategy,
    stale_evacuation,
    target_pod_of,
)
from webhook.placement.nodes import (
    CORDON,
    HOST_MODEL_CPU,
    HOSTNAME,
    MEMORY,
    POD_SLOTS,
    Departure,
    bitset_positions,
    format_amount,
    is_of_lifecycle,
)
from webhook.placement.pod_rules import MOST_RULES, PodInfo, RuleIndex
from webhook.placement.quota import PodUsage, QuotaReview, add_usages, review_quotas, usage_of
from webhook.placement.requirements import Elsewhere, Origin, Reachable, Requirement, Uncordoned
from webhook.placement.scores import NodeResources
from webhook.placement.simulate import (
    MOST_SIZES,
    FilterResult,
    SimulatedPod,
    Simulation,
    allocatable_of,
    inclusion,
    nodes_to_score,
)
from webhook.policies.common import group_members, migration_targets
from webhook.policies.common.migration_targets import no_node
from webhook.policies.common.openings import change_of
from webhook.policies.defaults.rows import EVICTION_STRATEGY
from webhook.policies.groups import departures
from webhook.policies.migration.settings import MigrationSettings
from webhook.review.scope import enforces
from webhook.text import abbreviate, pluralize

# 5,000 nodes drained one after the other, with 10,000 VMs, take a twentieth of it.
MAX_STEPS: Final = 20_000_000

# A VM can be kept from a node by pods that move away themselves, so those that found none try again.
_MOST_ROUNDS: Final = 8
# The same in an update, where a VM that finds no node tries again as long as others move; this is no rule of
# KubeVirt's, but an end.
_MOST_ROUNDS_IN_TURN: Final = 50
# Of the nodes that could take a VM, in the report.
_MOST_CANDIDATES: Final = 20
_PACKED: Final = (
    "there is room only if VMs are packed tightly; kube-scheduler spreads them, and may leave this one without a node"
)
BY_SCORES: Final = (
    "Each VM goes where its scheduler's scores send it. Of nodes that tie, and of more than 100 nodes, kube-scheduler"
    " may choose others than the plan."
)
_ASSUMPTIONS: Final = (
    "Nothing else in the cluster changes meanwhile: no other pod starts.",
    BY_SCORES,
    "Pods without a VM that are evicted need room elsewhere, too, which is not set aside for them.",
    "VMs that shut down are not placed again: whatever starts them needs room for them.",
    "Each migration copies the VM's memory once; a guest that writes faster than that takes longer.",
)
# virt-handler's pods pull it to every node, but a node lists its 50 largest images only.
_ANY_LAUNCHER: Final = "All nodes list the image of the new launchers, which is not known, or none does."
_CANNOT_ATTACH: Final = "cannot; the migration would wait without end"
_ATTACHES: Final = "can; the migration waits without end, and counts against the limits"
_BY_ORDER: Final = "it finds a node in the plan's order, and none in another; KubeVirt chooses VMs at random"
_OTHER_ORDER: Final = "if KubeVirt happens to move VMs in another order, it finds a node"
_LATER: Final = "no node has room for it now; one has after other VMs have moved"
# The answer of virt-api (pod-eviction-admitter.go).
_TARGET_POD: Final = '"Eviction request for target Pod"'
_ONCE_GONE: Final = "KubeVirt begins no other meanwhile; if it fails, or you delete it"
_KUBELET: Final = "the kubelet of the node decides by NUMA node whether there is room"
# The VMs that KubeVirt is to evacuate, and that stay where they are, or are handed over.
_MARKED: Final = (
    *(*report.UNSCHEDULED, report.QUOTA, *report.ENDLESS, report.MIGRATION_STUCK, report.STALE_EVACUATION),
    *(report.NAME_TOO_LONG, report.NO_MIGRATIONS, report.EXTERNAL_STRATEGY, report.NO_PRIORITY_CLASS),
    report.HOST_CPU_UNKNOWN,
)
_CANCEL: Final = (
    "VMs that do not move keep status.evacuationNodeName after the drain, and KubeVirt tries to migrate them, until"
    f" `{CANCEL_EVACUATION.format(namespace='NAMESPACE', name='NAME', node='NODE')}` removes it. Only a"
    f" cluster admin may do that: {CANCEL_NEEDS}."
)
_TOGETHER: Final = (
    "The next nodes are drained when all nodes before them take VMs again; a MachineConfigPool begins with the next one"
    " as soon as one is ready."
)
_ELSEWHERE: Final = "Where other controllers start the VMs that they take over is not known; they need room there."
_UNKNOWN_STRATEGY: Final = (
    "whether KubeVirt starts VMs again that shut down, where their VirtualMachine (runStrategy) was not read"
)
SUCCEEDS: Final = "Migrations that are in flight succeed."
_MOST_CHANGES: Final = 10
_UPDATE_METHODS: Final = "spec.workloadUpdateStrategy.workloadUpdateMethods of KubeVirt"
_SOME_IN_A_BATCH: Final = "set spec.workloadUpdateStrategy.batchEvictionSize of KubeVirt to 1 or more"
_MIGRATABLE: Final = "LiveMigratable"
# What KubeVirt writes as the reason of the condition LiveMigratable.
_BY_REASON: Final = {
    "DisksNotLiveMigratable": "give the VMs whose disks cannot be migrated shared volumes (ReadWriteMany)",
    "InterfaceNotLiveMigratable": "give the VMs whose interfaces cannot be migrated a binding that can",
    "HostDeviceNotLiveMigratable": "remove the host devices of the VMs that have any",
    "HotplugNotLiveMigratable": "unplug the hotplugged volumes that cannot be migrated",
    "CPUModeLiveMigratable": "give the VMs whose CPU model cannot be migrated one that can",
    "SecureExecutionNotLiveMigratable": "shut down the VMs with secure execution yourself",
    "SEVNotLiveMigratable": "shut down the VMs with SEV yourself",
}
_BY_CODE: Final = {
    report.NOT_MIGRATABLE: "set evictionStrategy LiveMigrateIfPossible on VMs that cannot be migrated; once they have"
    " been restarted, evictions shut them down",
    report.MIGRATION_STUCK: "delete the migrations that never end",
    report.QUOTA: "raise the ResourceQuotas, or count VMs with the Application Aware Quota operator, which does not"
    " count the target pods of migrations",
    report.NO_MIGRATIONS: "raise the limits of migrations in KubeVirt's configuration",
    report.DISRUPTION_BUDGET: "have PodDisruptionBudgets allow disruptions of VMs that shut down",
    report.NAME_TOO_LONG: "shut down the VMs with names that are too long for a migration yourself",
    report.UNKNOWN_STRATEGY: "set an evictionStrategy that kubevirt-webhook knows, and restart the VMs",
    report.LIVE_MIGRATE_NOT_CONFIGURED: f"add LiveMigrate to {_UPDATE_METHODS}",
    report.EVICT_NOT_CONFIGURED: f"add Evict to {_UPDATE_METHODS}; VMs that cannot be migrated then shut down",
    report.NO_ATTACHMENT: "unplug the hotplugged volumes that no other node can attach",
    report.VIRT_HANDLER_GONE: "get virt-handler working on the nodes of these VMs; if a node is lost, power it off and"
    " taint it with node.kubernetes.io/out-of-service, so that its VMs start elsewhere",
    report.STALE_EVACUATION: "remove marks of evacuations that name another node than the VM's",
    report.NO_PRIORITY_CLASS: "create the PriorityClasses that VMs name",
    report.SCHEDULER_DOWN: "start the schedulers that VMs name",
    report.HOST_CPU_UNKNOWN: f"have virt-handler label the nodes of these VMs with their CPU model"
    f" ({HOST_MODEL_CPU}…), which the annotation node-labeller.kubevirt.io/skip-node on a node keeps it from",
    report.MOVES_WITHIN_DRAIN: "drain the nodes one after the other, or remove the tolerations of cordoned nodes"
    f" ({CORDON.key}) from VMs",
    report.PODS_APART: "relax the rules between pods (affinity, anti-affinity, topology spread) of the VMs that they"
    " block",
    report.GROUP_RULES: "prefer the rules of the VMs' groups instead of requiring them, and restart the other VMs of"
    " groups that are apart",
}
# Labels that Cluster API's KubeVirt provider writes into the templates of VMs (its pkg/kubevirt/machine.go, utils.go).
_CLUSTER_NAME: Final = "cluster.x-k8s.io/cluster-name"
_MACHINE_NAME: Final = "capk.cluster.x-k8s.io/kubevirt-machine-name"
_MACHINE_NAMESPACE: Final = "capk.cluster.x-k8s.io/kubevirt-machine-namespace"
_GUEST_DRAIN_SECONDS: Final = 600
# What each VM requires for itself, or what depends on the nodes that are drained now.
_OF_NOW: Final = (Elsewhere, Reachable, Uncordoned)
_FEW: Final = 3
_Usages: TypeAlias = Mapping[str, Sequence[PodUsage]]  # by namespace


def plan(
    objects: ClusterObjects,
    nodes: Sequence[str],
    *,
    rolling: bool = False,
    parallel: int = 1,
    bandwidth: int | None = None,
) -> DrainPlan:
    """What draining nodes would do.

    Args:
        objects: the cluster.
        nodes: the nodes to drain, all at the same time; with ``rolling``, in this order, and empty for all nodes.
        rolling: drain nodes one after the other, each of which takes VMs again when the next one is drained.
        parallel: how many nodes a rolling plan drains at the same time.
        bandwidth: assumed bytes per second of one migration where KubeVirt limits none.

    Raises:
        InputError: a node does not exist or is named twice, or the cluster's objects are too complex.
    """
    try:
        budget = StepBudget(MAX_STEPS)
        return budget.run(_plan, objects, nodes, rolling=rolling, parallel=parallel, bandwidth=bandwidth)
    except TooComplex as error:
        raise InputError(f"{error.what} take more than {MAX_STEPS} steps", "the plan", "drain fewer nodes") from None


def _plan(
    objects: ClusterObjects, nodes: Sequence[str], *, rolling: bool, parallel: int, bandwidth: int | None
) -> DrainPlan:
    cluster = PlannedCluster(objects)
    named = list(nodes) or (sorted(cluster.views) if rolling else [])
    for name, times in Counter(named).items():
        if name not in cluster.views:
            raise InputError(f"node {quote(name)} does not exist", fix="kubectl get nodes lists them")
        if times > 1:
            raise InputError(f"node {quote(name)} is named twice", fix="name it once")
    limits = report.limits_of(objects.kubevirt, objects.migrations, bandwidth)
    planner = Planner(cluster, limits)
    order = sorted(named, key=planner.occupied().__getitem__) if rolling else named
    groups = _in_groups(named, parallel) if rolling else [named]
    drain_plan = planner.plan(groups, rolling=rolling, parallel=parallel)
    if not rolling and len(named) < 2:
        return drain_plan
    if drain_plan.blocks and order != named:
        in_order = _in_groups(order, parallel)
        other = Planner(PlannedCluster(objects), limits).plan(in_order, rolling=rolling, parallel=parallel)
        if (other.blocks, other.moves) < (drain_plan.blocks, drain_plan.moves):
            drain_plan = replace(drain_plan, order=tuple(order))
    like = next((each for each in planner.blocked if each.code in report.PENDING), None)
    if like is None:
        return drain_plan
    enlarged = PlannedCluster(with_spare(objects, like.vmi.node_name))
    other = Planner(enlarged, limits).plan(groups, rolling=rolling, parallel=parallel)
    if other.blocks >= drain_plan.blocks:
        return drain_plan
    spare = report.SpareNode(like.vmi.node_name, other.moves, other.blocks, other.seconds)
    return replace(drain_plan, spare=spare)


def _in_groups(nodes: Sequence[str], parallel: int) -> list[Sequence[str]]:
    """The nodes by the steps in which they are drained."""
    return [nodes[at : at + parallel] for at in range(0, len(nodes), parallel)]


def with_spare(objects: ClusterObjects, like: str) -> ClusterObjects:
    """The cluster with one more node, without pods, that is like another one but for its name.

    The new one is not cordoned, down or being emptied, whatever happens to the other.
    """
    (model,) = (each for each in objects.nodes if each.meta.name == like)
    taken = {each.meta.name for each in objects.nodes}
    name = next(name for number in range(len(taken) + 1) if (name := f"spare-{number}") not in taken)
    meta = replace(model.meta, name=name, labels={**(model.meta.labels or {}), HOSTNAME: name})
    spec = model.spec
    if spec:
        taints = [each for each in spec.taints or () if not is_of_lifecycle(each)]
        spec = replace(spec, unschedulable=None, taints=taints)
    spare = replace(model, metadata=meta, spec=spec)
    return replace(objects, nodes=(*objects.nodes, spare))


class Planner:
    """Moves VMs from the nodes of a cluster to others, step by step.

    Where a pod or a VM is stands in several places, which agree after each method that changes one of them (`_land`,
    `_remove`, `_leave`, `_settle`, `_delete`): in ``cluster`` (``vmis``, ``launchers``), by node in ``_on`` and
    ``_vms``, and in the simulation. `Moves` has bound a VM that moves there before `_leave` and `_settle`.

    Args:
        cluster: it is changed as drains or an update would change it.
        limits: how many migrations run concurrently.
        together: whether all VMs of a step move at the same time, and where that fails, a tight packing is tried; else
            each leaves its node before others need it.
        renews_launchers: whether target pods have another launcher image than all pods that run now.

    Attributes:
        blocked: the VMs that block, with what could be done about each.
    """

    def __init__(
        self, cluster: PlannedCluster, limits: Limits, *, together: bool = True, renews_launchers: bool = False
    ) -> None:
        self._cluster: Final = cluster
        self._classes: Final = movers.EquivalenceClasses(cluster, renews_launchers=renews_launchers)
        self._limits: Final = limits
        self._together: Final = together
        self.blocked: Final[list[Blocked]] = []
        self._on: Final[dict[str, dict[NamespacedName, LauncherPod]]] = {}
        self._vms: Final[dict[str, dict[NamespacedName, Vmi]]] = {}
        index = cluster.index
        self._names: Final = {index.position(name): name for name in cluster.views}
        # How many VMs of each namespace have migrated: the pods that they left count in quotas until they are deleted.
        self._moved: Final[Counter[str]] = Counter()
        # How many VMs of each namespace stay because others move: it is not known which do.
        self._contested: Final[Counter[str]] = Counter()
        self._quota_reviews: Final[dict[NamespacedName, QuotaReview]] = {}
        self._rules: Final[dict[NamespacedName, MigrationRules]] = {}
        # The nodes that do not meet what a VM requires, for what VMs that are alike share and no cordon changes.
        self._failures: Final[dict[Requirement, tuple[Failure, ...]]] = {}
        # The quotas that leave room for fewer target pods at a time than KubeVirt would create, with how many.
        self._narrow: Final[dict[tuple[str, str], int]] = {}
        # The PodDisruptionBudgets that allow fewer evictions at a time than a step has, with how many it has.
        self._disrupted: Final[dict[tuple[str, str, int], int]] = {}
        # What is counted on the nodes of the VMs that the plan has moved.
        self._settled: Final[dict[NamespacedName, SimulatedPod]] = {}
        self._simulation: Final = Simulation(index, cluster.views, cluster.objects.kubernetes)
        self._inbound: Final = _inbound_limit(cluster, limits)
        self._moves: Final = Moves(self._simulation, index, self._inbound)
        # The VMs by their launcher pods, and the pods beside those that attach hotplugged volumes.
        own = {vmi.meta.uid: key for key, vmi in cluster.vmis.items()}
        self._carried: Final = {
            namespaced_name(pod): own[uid] for uid, pods in cluster.launchers.items() for pod in pods
        }
        self._attached: Final = frozenset(namespaced_name(pod) for pods in cluster.attachments.values() for pod in pods)
        # The UIDs of the VMs in groups, by the group's name.
        labelled = ((pods[0].meta.label(GROUP_LABEL), uid) for uid, pods in cluster.launchers.items())
        self._members: Final = group((name, uid) for name, uid in labelled if name)
        running = [pod for pod in cluster.objects.pods if pod.node_name and not pod.is_over]
        for pod in running:
            self._on.setdefault(pod.node_name, {})[namespaced_name(pod)] = pod
        # The migrations whose target pods stay where they are: they never end, or end with the eviction of the pod.
        self._stuck_targets: Final[list[tuple[Vmi, Migration, LauncherPod]]] = []
        left_behind: list[LauncherPod] = []
        for key, vmi in [*cluster.vmis.items()]:
            if vmi.node_name and not vmi.has_ended:
                left_behind += self._land(vmi)
                landed = cluster.vmis[key]
                self._vms.setdefault(landed.node_name, {})[key] = landed
        # The simulation knows all rules first, and then all pods.
        simulated = [self._classes.running(pod) for pod in running]
        targets = (self._classes.target_pod(vmi) for vms in self._vms.values() for vmi in vms.values())
        for each in (*simulated, *targets):
            self._simulation.rules.track(each.info)
        for each, pod in zip(simulated, running, strict=True):
            if (position := index.position(pod.node_name)) is not None:
                self._simulation.bind(each, position)
        for gone in left_behind:
            self._remove(gone)
        self._lowest_priority: Final = lowest_priority(self._on)
        self._preemption: Final = Preemption(
            self._simulation, self._occupants, cluster.budgets_of, cluster.objects.kubernetes
        )

    def _land(self, vmi: Vmi) -> list[LauncherPod]:
        """Have a VM be where a migration in flight moves it, and what that leaves on the source node.

        It stays where it is if the target pod has no node yet, if the migration never ends, or if an eviction shuts
        the VM down.
        """
        cluster, key = self._cluster, namespaced_name(vmi)
        migration = in_flight(vmi, cluster.unfinished.get(key, ()))
        target = target_pod_of(migration, cluster.launchers.get(vmi.meta.uid or "", ())) if migration else None
        if migration is None or target is None or target.node_name in ("", vmi.node_name):
            return []
        is_lost = target.node_name not in cluster.views or _handler_problem(vmi, cluster)
        if is_lost or eviction_plan(vmi, cluster).outcome == report.SHUTS_DOWN:
            self._stuck_targets.append((vmi, migration, target))
            return []
        source = cluster.pod_of(vmi)
        cluster.vmis[key] = movers.moved(vmi, target.node_name)
        cluster.arrivals[key] = Arrival(migration.meta.name or "", vmi.node_name, target.node_name)
        cluster.launchers[vmi.meta.uid or ""] = [target]
        cluster.unfinished[key] = []
        return [source, *cluster.attachments.get(namespaced_name(source), ())] if source else []

    def _remove(self, pod: LauncherPod) -> None:
        """Have a pod be gone that is where it was at the beginning."""
        position = self._cluster.index.position(pod.node_name)
        if self._on.get(pod.node_name, {}).pop(namespaced_name(pod), None) and position is not None:
            self._simulation.unbind(self._classes.running(pod), position)

    def vms_on(self, node: str) -> list[Vmi]:
        """The VMs that are on a node in the plan now, sorted by name."""
        return [vmi for _, vmi in sorted(self._vms.get(node, {}).items())]

    def resources(self, node: str) -> NodeResources:
        """What pods can request of a node, and what is left of it now."""
        return self._simulation.resources(self._cluster.index.position(node) or 0)

    def mover(self, vmi: Vmi) -> Mover:
        """What the next target pod of a VM requires."""
        return movers.mover_of(vmi, self._classes, self._present(vmi))

    def pod_info(self, vmi: Vmi) -> PodInfo:
        """The target pod of a VM as rules see it."""
        return self._classes.target_pod(vmi).info

    def filter(self, mover: Mover) -> FilterResult:
        """Which nodes can take the target pod of a VM now, beside the pod that it runs in."""
        ((_, eligibility),) = self._with_eligibility([mover])
        return self._simulation.filter(mover.pod, eligibility)

    @property
    def rules(self) -> RuleIndex:
        """The pods by their rules, where they are in the plan now."""
        return self._simulation.rules

    def scope_of(self, mover: Mover) -> tuple[int, int]:
        """The nodes that a VM's selector and affinity allow, and those whose taints it tolerates, as bitsets."""
        return inclusion(self._eligibility(mover))

    @contextmanager
    def trying(self, mover: Mover, node: str) -> Iterator[None]:
        """Have a VM be on another node meanwhile."""
        position = self._cluster.index.position(node) or 0
        self._moves.make(mover, position)
        self._moved[mover.key[0]] += 1
        self._cluster.vmis[mover.key] = movers.moved(mover.vmi, node)
        try:
            yield
        finally:
            self._cluster.vmis[mover.key] = mover.vmi
            self._moved[mover.key[0]] -= 1
            self._moves.undo(mover, position)

    def nodes_for(self, mover: Mover, *, whatever: Collection[str]) -> int:
        """Which nodes can take the target pod of a VM, as a bitset, however much of some resources they have free."""
        filtered = self.filter(mover)
        nodes = filtered.eligibility.bitset & ~filtered.forbidden
        for resource, amount in mover.requests.items():
            nodes &= -1 if resource in whatever else self._simulation.with_free(resource, amount)
        return nodes

    def quota_problem(self, mover: Mover) -> str:
        """Why the namespace's quotas deny the target pod of a VM now, a clause; empty: they do not."""
        quotas = self._cluster.quotas.get(mover.key[0])
        if not quotas:
            return ""
        return review_quotas(quotas, mover.usage, left_behind=self._moved[mover.key[0]]).problem

    def move(self, mover: Mover, node: str) -> None:
        """Have a VM migrate to a node."""
        self._moves.make(mover, self._cluster.index.position(node) or 0)
        self._moved[mover.key[0]] += 1
        self._leave(mover.vmi, mover.vmi.node_name, moves=True)
        self._settle(mover, node)

    def occupied(self) -> Counter[str]:
        """How much memory the launcher pods on each node request, in bytes."""
        occupied = Counter(dict.fromkeys(self._cluster.views, 0))
        for pods in self._cluster.launchers.values():
            for pod in pods:
                occupied[pod.node_name] += self._classes.load_of(pod).requests.get(MEMORY, 0)
        return occupied

    def gaps(self) -> Iterator[str]:
        """What could not be taken into account of the whole cluster, clauses."""
        if left_out := self._simulation.rules.left_out:
            yield f"{pluralize(left_out, 'rule')} between pods beyond the first {MOST_RULES} about the same pods"
        if self._simulation.has_sampled:
            count = pluralize(nodes_to_score(len(self._cluster.views)), "node")
            yield (
                f"VMs have more than {MOST_SIZES} sizes: for those of any further size, scores are compared only among"
                f" {count}, as many as kube-scheduler scores"
            )
        yield from dict.fromkeys(gap for review in self._quota_reviews.values() for gap in review.gaps)

    def assumptions(self, vms: Iterable[VmPlan]) -> Iterator[str]:
        """What the plans of VMs take for granted beside what all do, sentences."""
        unknown = self._classes.unknown_launchers
        if any(vm.outcome == report.MOVES and (vm.namespace, vm.name) in unknown for vm in vms):
            yield _ANY_LAUNCHER

    def plan(self, groups: Sequence[Sequence[str]], *, rolling: bool, parallel: int) -> DrainPlan:
        """The plan of draining groups of nodes, one after the other; of one group if it is not ``rolling``."""
        objects, about = self._cluster.objects, [*self._present_notes(groups)]
        in_flight_now = bool(self._cluster.arrivals)
        steps = tuple([self.step(nodes) for nodes in groups])
        vms = [vm for step in steps for vm in step.vms]
        outcomes = Counter(vm.outcome for vm in vms)
        longest = [step.at_most_seconds for step in steps if step.at_most_seconds is not None]
        stays = any(vm.code in _MARKED for vm in vms)
        more = (
            (_TOGETHER, rolling and parallel > 1),
            (_ELSEWHERE, outcomes[report.HANDED_OVER]),
            (SUCCEEDS, in_flight_now),
        )
        return DrainPlan(
            schema=report.SCHEMA,
            rolling=rolling,
            parallel=parallel if rolling else 1,
            moves=sum(bool(vm.to) for vm in vms),
            shuts_down=outcomes[report.SHUTS_DOWN],
            blocks=outcomes[report.BLOCKS] + sum(len(step.blocked_pods) for step in steps),
            handed_over=outcomes[report.HANDED_OVER],
            preempted=sum(len(vm.preempts) for vm in vms),
            seconds=sum(step.seconds for step in steps),
            at_most_seconds=None if len(longest) < len(steps) else sum(longest),
            limits=self._limits,
            steps=steps,
            changes=rank(self.blocked, frozenset() if rolling else frozenset(groups[0]), objects.kubevirt.owner),
            notes=(
                *about,
                *self.notes(),
                *([_CANCEL] if stays and can_cancel_evacuations(objects.kubevirt.release) else []),
            ),
            assumptions=(*_ASSUMPTIONS, *self.assumptions(vms), *(text for text, holds in more if holds)),
            gaps=(*objects.gaps, *self.gaps()),
        )

    def step(self, nodes: Sequence[str]) -> Step:
        """Drain nodes at the same time; those that were not cordoned before take VMs again afterwards."""
        index = self._cluster.index
        before = [node for name in nodes if (node := index.get(name))]
        for node in before:
            index.put(replace(node, unschedulable=True))
        leaving = [vmi for name in nodes for _, vmi in sorted(self._vms.get(name, {}).items())]
        in_flight_vms = [*self._already_migrating(nodes)]
        held_up = [*self._held_up(nodes)]
        vms, jobs = self.carry_out([(vmi, eviction_plan(vmi, self._cluster)) for vmi in leaving], nodes)
        both = zip(leaving, vms, strict=True)
        ending = [self._cluster.pod_of(vmi) for vmi, vm in both if vm.outcome == report.SHUTS_DOWN]
        vms = sorted([*vms, *in_flight_vms, *held_up], key=lambda vm: (nodes.index(vm.node), vm.namespace, vm.name))
        # All of them have ended when the next nodes are drained.
        self._cluster.arrivals.clear()
        for node in before:
            index.put(node)
        others, blocked, transfers = self._others(nodes)
        self._count_disruptions([*filter(None, ending), *others])
        seconds, at_most = report.about(jobs, self._limits), report.at_most(jobs, self._limits)
        return Step(tuple(nodes), tuple(vms), len(others), tuple(blocked), seconds, at_most, tuple(transfers))

    def _present_notes(self, groups: Sequence[Sequence[str]]) -> Iterator[str]:
        """What goes on in the cluster before the first drain, sentences."""
        first, every = frozenset(groups[0] if groups else ()), {name for nodes in groups for name in nodes}
        for vmi, migration, target in self._stuck_targets:
            if target.node_name in first and not _handler_problem(vmi, self._cluster):
                ended = f"migration {migration.meta.name or ''} of {'/'.join(namespaced_name(vmi))}"
                yield (
                    f"The eviction of the target pod on {target.node_name} ends {ended}, and the VM stays on"
                    f" {vmi.node_name}."
                )
        others = [(key, node) for key, vmi in sorted(self._cluster.vmis.items()) if (node := evacuated_node(vmi))]
        if elsewhere := [f"{'/'.join(key)} from {node}" for key, node in others if node not in every]:
            yield (
                f"KubeVirt still evacuates VMs from nodes that are not drained here, which may take room meanwhile:"
                f" {abbreviate(elsewhere)}."
            )
        for name in sorted(every):
            if silent := _kubelet_problem(self._cluster.views[name]):
                yield (
                    f"The kubelet of {name} is not ready ({silent}): pods that are evicted there may stay Terminating,"
                    " and kubectl drain waits for them without end."
                )

    def _already_migrating(self, nodes: Sequence[str]) -> Iterator[VmPlan]:
        """The VMs that leave nodes by migrations in flight, which need no other one."""
        for key, arrival in self._cluster.arrivals.items():
            if arrival.source not in nodes:
                continue
            vmi = self._cluster.vmis[key]
            mover = movers.mover_of(vmi, self._classes, self._present(vmi))
            plan = plan_of(
                vmi, report.MOVES, report.ALREADY_MIGRATING, f"migration {arrival.migration} moves it there already"
            )
            yield replace(plan, node=arrival.source, to=arrival.target, memory=mover.memory)

    def _held_up(self, nodes: Sequence[str]) -> Iterator[VmPlan]:
        """The VMs whose target pods keep nodes from being drained, because their migrations never end."""
        for vmi, migration, target in self._stuck_targets:
            if target.node_name in nodes and (problem := _handler_problem(vmi, self._cluster)):
                reason = (
                    f"virt-api denies the eviction of its target pod ({_TARGET_POD}) until migration"
                    f" {migration.meta.name or ''} has ended; {problem}"
                )
                self.blocked.append(Blocked(report.VIRT_HANDLER_GONE, vmi))
                yield replace(plan_of(vmi, report.BLOCKS, report.VIRT_HANDLER_GONE, reason), node=target.node_name)

    def carry_out(
        self, decided: Iterable[tuple[Vmi, VmPlan]], nodes: Sequence[str] = ()
    ) -> tuple[list[VmPlan], list[report.QueuedMigration]]:
        """Have VMs move and shut down as it is decided of each, and its plan; those that find no node block.

        ``nodes`` are those that are drained: their pods without a VM are evicted, too, and a VM that ends there blocks.

        Returns:
            the plans in the same order, and the migrations that KubeVirt creates.
        """
        plans: dict[NamespacedName, VmPlan] = {}
        migrating = []
        shutting_down: dict[str, list[PodUsage]] = {}
        for vmi, decision in decided:
            key = namespaced_name(vmi)
            plans[key] = decision
            if decision.outcome == report.MOVES:
                migrating.append(vmi)
            elif decision.outcome == report.BLOCKS:
                self.blocked.append(Blocked(decision.code, vmi))
            elif decision.outcome == report.SHUTS_DOWN and self._together:
                if key[0] in self._cluster.quotas:
                    mover = movers.mover_of(vmi, self._classes, self._present(vmi))
                    shutting_down.setdefault(key[0], []).append(mover.usage.negated)
                self._leave(vmi, vmi.node_name, moves=False)
        freed = {namespace: add_usages(usages) for namespace, usages in shutting_down.items()}
        others = self._evicted_others(nodes) if self._cluster.quotas and migrating else ()
        freeing = ((key[0], usage_of(pod, self._classes.load_of(pod).requests, ()).negated) for key, pod in others)
        evicted = {namespace: add_usages(gone) for namespace, gone in group(freeing).items()}
        to_move = []
        for vmi in migrating:
            mover = movers.mover_of(vmi, self._classes, self._present(vmi))
            namespace = mover.key[0]
            if problem := self._quota_problem(mover, freed.get(namespace, ()), evicted.get(namespace, ())):
                plans[mover.key] = plan_of(vmi, report.BLOCKS, report.QUOTA, problem, notes=plans[mover.key].notes)
                self.blocked.append(Blocked(report.QUOTA, vmi))
            else:
                to_move.append(mover)
        plans.update(self._find_nodes(to_move, plans, freed, evicted=bool(nodes)))
        for key, plan in plans.items():
            if plan.outcome == report.MOVES and plan.to in nodes:
                reason = (
                    f"it tolerates cordoned nodes, and kube-scheduler sends it to {plan.to}, which is drained at the"
                    " same time, and is then not empty"
                )
                self.blocked.append(Blocked(report.MOVES_WITHIN_DRAIN, self._cluster.vmis[key]))
                plans[key] = replace(plan, outcome=report.BLOCKS, code=report.MOVES_WITHIN_DRAIN, reason=reason)
        jobs = [
            report.QueuedMigration(
                each.node,
                each.memory,
                report.held_seconds(each.code),
                each.namespace,
                review.at_once if (review := self._quota_reviews.get((each.namespace, each.name))) else None,
                *self._time_of(self._cluster.vmis[each.namespace, each.name], each.code),
            )
            for each in plans.values()
            if each.to or each.code in (*report.UNSCHEDULED, *report.ENDLESS)
        ]
        return list(plans.values()), jobs

    def _time_of(self, vmi: Vmi, code: str) -> tuple[int | None, MigrationRules]:
        """The bytes by which KubeVirt counts the time of a VM's migration, and the rules of it; None: not known."""
        rules = _rules_of(vmi, self._cluster)
        self._rules[namespaced_name(vmi)] = rules
        # A volume that is never attached has no end.
        return None if code in (*report.ENDLESS, report.MAY_NOT_ATTACH) else vmi.copied_bytes, rules

    def notes(self) -> Iterator[str]:
        """What else decides over the whole plan, sentences."""
        for name, number in sorted(Counter(each.policy for each in self._rules.values() if each.policy).items()):
            yield f"MigrationPolicy {name} applies to {pluralize(number, 'VM')}."
        by_copy = Counter(each.allows_post_copy for each in self._rules.values() if each.allows_disruption)
        if paused := by_copy[False]:
            yield f"Past its time KubeVirt pauses the guest ({pluralize(paused, 'VM')}), for at most as long again."
        if by_copy[True]:
            vms = pluralize(by_copy[True], "VM")
            yield f"Past its time KubeVirt switches a migration to post-copy ({vms}), which it never cancels."
        if any(each.detects_stalls for each in self._rules.values()):
            yield "Stall detection (experimental) is configured; when it ends a migration is not known."
        for namespace, number in sorted(self._contested.items()):
            vms = pluralize(number + self._moved[namespace], "VM")
            yield f"The quotas of {namespace} let at most {self._moved[namespace]} of {vms} move; which is not known."
        for (namespace, name, allowed), number in sorted(self._disrupted.items()):
            yield (
                f"PodDisruptionBudget {namespace}/{name} allows {pluralize(allowed, 'disruption')} now, and selects"
                f" {number} pods that are evicted together: the others wait until it allows more, which is not in the"
                " times."
            )
        if self._inbound:
            yield from self._inbound.notes()
        for (namespace, name), number in sorted(self._narrow.items()):
            pods = pluralize(number, "target pod")
            yield f"ResourceQuota {namespace}/{name} leaves room for {pods} concurrently; other migrations wait."

    def _quota_problem(self, mover: Mover, freed: Sequence[PodUsage], evicted: Sequence[PodUsage]) -> str:
        """Why the namespace's quotas deny the target pod of a VM, a clause.

        What earlier migrations needed is free again, except for the pods that they leave, and so is what VMs that shut
        down have freed; what other ``evicted`` pods free, their controllers may take again.
        """
        namespace = mover.key[0]
        quotas = self._cluster.quotas.get(namespace)
        if not quotas:
            return ""
        review = review_quotas(quotas, mover.usage, left_behind=self._moved[namespace], beside=freed)
        self._quota_reviews[mover.key] = review
        if not review.problem and review.at_once is not None and review.at_once < self._limits.per_cluster:
            key = (namespace, review.limited_by)
            self._narrow[key] = min(review.at_once, self._narrow.get(key, review.at_once))
        if review.problem and not review_quotas(quotas, mover.usage, beside=freed).problem:
            self._contested[namespace] += 1
        self._moved[namespace] += not review.problem
        if not review.problem:
            return ""
        # In the words of the API server now, which counts what is not freed yet.
        now = review_quotas(quotas, mover.usage).problem or review.problem
        reason = f"the target pod of its migration would be denied: {now}"
        if not evicted or review_quotas(quotas, mover.usage, beside=(*freed, *evicted)).problem:
            return reason
        pods = pluralize(sum(each.pods for each in evicted), "other pod")
        return f"{reason}; whether {pods} evicted there leave enough is not known"

    def _find_nodes(
        self, vms: Sequence[Mover], plans: Mapping[NamespacedName, VmPlan], freed: _Usages, *, evicted: bool
    ) -> dict[NamespacedName, VmPlan]:
        """The plans of the VMs that migrate if there is a node, and have them migrate.

        Args:
            vms: the VMs.
            plans: what is decided of each.
            freed: what VMs that shut down free in the quotas of their namespaces.
            evicted: whether a drain evicts them, which policies may deny; what KubeVirt itself does they let pass.
        """
        with_eligibility = list(self._with_eligibility(vms))
        alone = {mover.key: self._simulation.filter(mover.pod, eligibility) for mover, eligibility in with_eligibility}
        strays = {mover.key: self._strays(mover) & ~alone[mover.key].feasible for mover in vms if mover.scheduled}
        placed, packed = self._move_all(with_eligibility)
        turns = {key: turn for turn, key in enumerate(placed, 1)}
        departures = {at: Departure.of(self._cluster.views[self._names[at]]) for at in {*placed.values()}}
        move_plans = {}
        for mover, eligibility in with_eligibility:
            key, nodes = mover.key, alone[mover.key].feasible
            source = self._cluster.index.get(plans[key].node)
            plan = replace(
                plans[key],
                notes=(*plans[key].notes, *(source_notes(mover.requirements, source) if source else ())),
                memory=mover.memory,
                eligible=eligibility.count,
                with_room=nodes.bit_count(),
                candidates=tuple(self._names[at] for at in islice(bitset_positions(nodes), _MOST_CANDIDATES)),
                gaps=mover.gaps,
            )
            if key not in placed:
                left = self._simulation.filter(mover.pod, eligibility)
                move_plans[key] = self._blocked_plan(plan, mover, alone[key], left)
                if key in packed:
                    move_plans[key] = replace(move_plans[key], notes=(*plan.notes, _OTHER_ORDER))
                continue
            node = self._names[placed[key]]
            notes = plan.notes
            if departure := departures[placed[key]]:
                notes = (*notes, f"{node} {departure.clause(self._cluster.objects.now)}")
            code, reason = self._doubt(mover, nodes, strays.get(key, 0), is_packed=key in packed)
            move_plans[key] = replace(plan, to=node, turn=turns[key], notes=notes, code=code, reason=reason)
        astray = {key for key, others in strays.items() if others}
        self._wait_for_quotas([mover for mover, _ in with_eligibility], move_plans, freed, astray)
        for mover in vms:
            if mover.key in placed:
                self._leave(mover.vmi, plans[mover.key].node, moves=True)
                self._settle(mover, move_plans[mover.key].to)
        self._preempt(with_eligibility, move_plans, evicted=evicted)
        if evicted:
            for mover in vms:
                self._name_group(mover, move_plans)
        return move_plans

    def _denied_by_group(self, mover: Mover) -> str:
        """Why the groups policy denies a VM's eviction, with the others where they are in the plan now; empty: not."""
        placement = mover.group
        if placement is None or not placement.is_required:
            return ""
        namespace, uid = mover.key[0], mover.vmi.meta.uid or ""
        spaces = placement.namespaces or (namespace,)
        launchers = (pod for each in self._members.get(placement.group, ()) for pod in self._cluster.launchers[each])
        members = [pod for pod in launchers if namespaced_name(pod) in self._on.get(pod.node_name, {})]
        members = [pod for pod in members if pod.meta.namespace in spaces]
        target, _ = self._classes.target_of(mover.vmi)
        target = replace(target, requirements=mover.requirements)
        reason, _ = departures.judge(placement, namespace, group_members.others_of(members, uid), target)
        return reason.text if reason.code == report.GROUP_RULES else ""

    def _name_group(self, mover: Mover, move_plans: dict[NamespacedName, VmPlan]) -> None:
        """Say of a VM without a node that its eviction is denied, if it is: no migration of it begins."""
        plan = move_plans[mover.key]
        if plan.outcome != report.BLOCKS or not (denied := self._denied_by_group(mover)):
            return
        reason = f"the policy groups denies its eviction: {denied}"
        move_plans[mover.key] = replace(plan, code=report.GROUP_RULES, reason=reason)
        self.blocked[:] = [
            replace(each, code=report.GROUP_RULES) if namespaced_name(each.vmi) == mover.key else each
            for each in self.blocked
        ]

    def _preempt(
        self,
        with_eligibility: Sequence[tuple[Mover, Eligibility]],
        move_plans: dict[NamespacedName, VmPlan],
        *,
        evicted: bool,
    ) -> None:
        """Have VMs move for which kube-scheduler deletes pods of lower priority, the highest priority first.

        What such pods leave may be room for others that block. Nothing is deleted for a VM whose eviction is denied.
        """
        lowest = self._lowest_priority
        waiting: list[tuple[int, Mover, Eligibility]] = []
        for mover, eligibility in with_eligibility:
            plan = move_plans[mover.key]
            if plan.code not in (report.NO_ROOM, report.PODS_APART):
                continue
            priority = self._cluster.priorities.of_target_pod(mover.vmi, self._cluster.pod_of(mover.vmi))
            if priority.gap:
                move_plans[mover.key] = replace(plan, gaps=(*plan.gaps, priority.gap))
            elif priority.value > lowest and not priority.preempts:
                why = f"its PriorityClass {priority.class_name} has the preemptionPolicy Never"
                move_plans[mover.key] = replace(plan, notes=(*plan.notes, f"kube-scheduler preempts no pod: {why}"))
            waiting.append((priority.value if priority.preempts else lowest, mover, eligibility))
        if not any(value > lowest for value, _, _ in waiting):
            return
        waiting.sort(key=lambda each: (-each[0], each[1].key))
        hopeless: set[Hashable] = set()
        for _ in range(_MOST_ROUNDS):
            left = [
                each
                for each in waiting
                if (evicted and self._denied_by_group(each[1])) or not self._force(*each, hopeless, move_plans)
            ]
            if not left or len(left) == len(waiting):
                break
            waiting = left

    def _force(
        self,
        value: int,
        mover: Mover,
        eligibility: Eligibility,
        hopeless: set[Hashable],
        move_plans: dict[NamespacedName, VmPlan],
    ) -> bool:
        """Have a VM with a priority move to a node that has room by now, or has after a preemption; whether it does.

        ``hopeless`` are the VMs, by what decides, for which that failed since the last one moved.
        """
        info = mover.pod.info
        alike = (
            *(value, eligibility.bitset, info.namespace, info.rules),
            *(tuple(sorted(mover.requests.items())), tuple(sorted(info.labels.items()))),
        )
        if alike in hopeless or mover.key not in self._vms.get(move_plans[mover.key].node, {}):
            # The second: it has been preempted itself.
            return False
        code, reason, preempted = report.MIGRATES_LATER, _LATER, tuple[PreemptedPod, ...]()
        if result := self._simulation.schedule(mover.pod, eligibility):
            position = result.position
        elif value > self._lowest_priority and (victims := self._preemption.victims(mover.pod, eligibility, value)):
            position, code = victims.position, report.PREEMPTS
            preempted = tuple([self._preempted(each, victims) for each in victims.pods])
            reason = (
                f"no node has room for it, so kube-scheduler deletes pods on {self._names[position]} whose priority is"
                f" lower than {value}: {abbreviate([_named(each) for each in preempted])}"
            )
            for each in victims.pods:
                self._delete(each, position, mover, move_plans)
        else:
            hopeless.add(alike)
            return False
        hopeless.clear()
        self.blocked[:] = [each for each in self.blocked if namespaced_name(each.vmi) != mover.key]
        plan, turn = move_plans[mover.key], max(plan.turn for plan in move_plans.values()) + 1
        self._moves.make(mover, position)
        self._leave(mover.vmi, plan.node, moves=True)
        self._settle(mover, self._names[position])
        changed = {"outcome": report.MOVES, "code": code, "reason": reason, "preempts": preempted}
        move_plans[mover.key] = replace(plan, to=self._names[position], turn=turn, **changed)
        return True

    def _occupants(self, position: int, priority: int) -> Iterator[Occupant]:
        """The pods on a node now that have a lower priority; with the pod of a VM go those that attach its volumes."""
        node = self._names[position]
        attached = self._attached
        for key, pod in self._on.get(node, {}).items():
            if priority_of(pod) >= priority or key in attached:
                continue
            vm = self._vms.get(node, {}).get(self._carried.get(key, ("", "")))
            own = self._cluster.pod_of(vm) if vm else None
            present = self._present(vm) if vm and own and namespaced_name(own) == key else None
            yield Occupant(pod, present or self._classes.running(pod))

    def _preempted(self, occupant: Occupant, victims: Victims) -> PreemptedPod:
        key = namespaced_name(occupant.pod)
        vm = self._carried.get(key)
        return PreemptedPod(*key, occupant.priority, vm[1] if vm else "", key in victims.protected)

    def _delete(
        self, occupant: Occupant, position: int, mover: Mover, move_plans: dict[NamespacedName, VmPlan]
    ) -> None:
        """Have a pod be gone that is preempted for a VM, and the VM that runs in it with it."""
        node, key = self._names[position], namespaced_name(occupant.pod)
        self._simulation.unbind(occupant.simulated, position)
        self._on[node].pop(key, None)
        vm = self._carried.get(key)
        if vm is None:
            return
        self._vms.get(node, {}).pop(vm, None)
        if plan := move_plans.get(vm):
            note = f"kube-scheduler preempts it there for {'/'.join(mover.key)}, and it shuts down"
            move_plans[vm] = replace(plan, notes=(*plan.notes, note))

    def _with_eligibility(self, vms: Iterable[Mover]) -> Iterator[tuple[Mover, Eligibility]]:
        """Which nodes meet what VMs require; of a node, a plan changes nothing but whether it is cordoned."""
        index, now = self._cluster.index, dict[Requirement, tuple[Failure, ...]]()
        everything = index.review(())
        for mover in vms:
            failures: list[Failure] = []
            for each in mover.requirements:
                cache = now if type(each) in _OF_NOW else self._failures
                if each not in cache:
                    cache[each] = index.review((each,)).failures
                failures += cache[each]
            yield mover, everything.failing(failures)

    def _wait_for_quotas(
        self,
        vms: Sequence[Mover],
        move_plans: dict[NamespacedName, VmPlan],
        freed: _Usages,
        astray: set[NamespacedName],
    ) -> None:
        """Say of VMs with a node that quotas may keep them waiting; those astray may be sent where no volume follows.

        Target pods without a node count while they are pending, those that wait for their volumes without end, and VMs
        that shut down until they have.
        """
        if not self._cluster.quotas:
            return
        waiting: dict[str, list[PodUsage]] = {}
        endless = set()
        for mover in vms:
            code = move_plans[mover.key].code
            if code == report.NO_ATTACHMENT or mover.key in astray:
                endless.add(mover.key[0])
            elif code not in report.PENDING:
                continue
            waiting.setdefault(mover.key[0], []).append(mover.usage)
        pending = {namespace: add_usages(usages) for namespace, usages in waiting.items()}
        minutes = report.PENDING_SECONDS // 60
        for mover in vms:
            namespace, plan = mover.key[0], move_plans[mover.key]
            quotas = self._cluster.quotas.get(namespace)
            if plan.outcome != report.MOVES or not quotas:
                continue
            # What may wait itself is not beside itself.
            beside = () if mover.key in astray else pending.get(namespace, ())
            whose = f"the target pods of {pluralize(sum(each.pods for each in beside), 'VM')}"
            if namespace in endless:
                whose += " that may wait without end take the quota"
            else:
                whose += f" without a node take the quota for {minutes}m at a time"
            ending = ((), "VMs that shut down count in the quota until they have")
            for others, why in (((*beside, *freed.get(namespace, ())), whose), ending):
                if problem := review_quotas(quotas, mover.usage, beside=others).problem:
                    reason = f"{plan.reason}; it" if plan.reason else "it"
                    reason += f" may wait, because {why}: {problem}"
                    move_plans[mover.key] = replace(plan, code=report.WAITS_FOR_QUOTA, reason=reason)
                    break

    def _strays(self, mover: Mover) -> int:
        """The nodes that kube-scheduler may choose now for the target pod alone of a VM with hotplugged volumes."""
        if mover.scheduled is None:
            return 0
        return self._simulation.filter(mover.scheduled.pod, self._eligibility(mover.scheduled)).feasible

    def _eligibility(self, mover: Mover) -> Eligibility:
        return self._cluster.index.review(mover.requirements)

    def _doubt(self, mover: Mover, nodes: int, strays: int, *, is_packed: bool) -> tuple[str, str]:
        """The code of a VM that has a node, and why it may not get there, a clause; empty: it will.

        Args:
            mover: the VM.
            nodes: where it could go before any other VM moved, as a bitset.
            strays: where else kube-scheduler could send it then.
            is_packed: whether it depends on how VMs are packed.
        """
        if by_kubelet := mover.vmi.cpu.decided_by_kubelet:
            reason = f"it may not fit, because it has {' and '.join(by_kubelet)}, for which {_KUBELET}"
            return report.MAY_NOT_FIT, reason
        if strays:
            count = f"{strays.bit_count()} of the {(strays | nodes).bit_count()} nodes with room"
            reason = f"it may not get there, because {attaching(mover.vmi)}, and {count} {_CANNOT_ATTACH}"
            return report.MAY_NOT_ATTACH, reason
        if not self._together and not nodes:
            return report.MIGRATES_LATER, _LATER
        if is_packed:
            return (report.MIGRATES_IF_PACKED, _PACKED) if self._together else (report.DEPENDS_ON_ORDER, _BY_ORDER)
        return report.MIGRATES, ""

    def _move_all(
        self, with_eligibility: Sequence[tuple[Mover, Eligibility]]
    ) -> tuple[dict[NamespacedName, int], set[NamespacedName]]:
        """Nodes for VMs, and the VMs that only a tight packing leaves room for."""
        if not self._together:
            return self._move_in_turn(with_eligibility)
        by_score = self._moves.move_all(with_eligibility, _MOST_ROUNDS, tightly=False)
        if len(by_score) == len(with_eligibility):
            return by_score, set()
        self._moves.undo_all(with_eligibility, by_score)
        hardest_first = sorted(with_eligibility, key=lambda each: (each[1].count, -each[0].memory, each[0].key))
        tight = self._moves.move_all(hardest_first, _MOST_ROUNDS, tightly=True)
        if len(tight) > len(by_score):
            return tight, tight.keys() - by_score.keys()
        self._moves.undo_all(with_eligibility, tight)
        self._moves.make_all(with_eligibility, by_score)
        return by_score, set()

    def _move_in_turn(
        self, with_eligibility: Sequence[tuple[Mover, Eligibility]]
    ) -> tuple[dict[NamespacedName, int], set[NamespacedName]]:
        """Nodes for VMs that move one after the other, in two orders, and the VMs that only one has a node for.

        By name, and the smallest first, which leaves least for large ones; the order that moves more VMs counts.
        """
        by_name = self._moves.move_all(with_eligibility, _MOST_ROUNDS_IN_TURN, tightly=False)
        smallest_first = sorted(with_eligibility, key=lambda each: each[0].memory)
        if all(map(is_, smallest_first, with_eligibility)):
            return by_name, set()
        self._moves.undo_all(with_eligibility, by_name)
        by_size = self._moves.move_all(smallest_first, _MOST_ROUNDS_IN_TURN, tightly=False)
        contested = by_name.keys() ^ by_size.keys()
        if len(by_size) > len(by_name):
            return by_size, contested
        self._moves.undo_all(with_eligibility, by_size)
        self._moves.make_all(with_eligibility, by_name)
        return by_name, contested

    def _blocked_plan(self, about: VmPlan, mover: Mover, alone: FilterResult, left: FilterResult) -> VmPlan:
        """The plan of a VM that has found no node, of those before any other VM has moved and those that are left."""
        if strays := self._strays(mover):
            count = pluralize(strays.bit_count(), "node")
            code, reason = (
                report.NO_ATTACHMENT,
                f"{attaching(mover.vmi)}, and none of the {count} with room {_ATTACHES}",
            )
        elif not alone.eligibility.count and mover.scheduled and (sent := self._eligibility(mover.scheduled).count):
            # Which of them have room depends on where other VMs go; that none of them can attach does not.
            count = pluralize(sent, "node")
            code, reason = (
                report.NO_ATTACHMENT,
                f"{attaching(mover.vmi)}, and none of the {count} to choose {_ATTACHES}",
            )
        elif not alone.eligibility.count:
            code, reason = report.NO_ELIGIBLE_NODE, no_node(alone.eligibility).text
        else:
            code, reason = _no_node_left(mover, alone, left, self._simulation)
        allocatable = allocatable_of(self._cluster.views[about.node]) if code == report.NO_ROOM else None
        position = self._cluster.index.position(about.node) or 0
        self.blocked.append(Blocked(code, mover.vmi, mover, alone, allocatable, position))
        return replace(about, outcome=report.BLOCKS, code=code, reason=reason)

    def _present(self, vmi: Vmi) -> SimulatedPod | None:
        """The pod that a VM runs in, as the simulation has it in the plan now; None: there is none to be seen.

        It takes what the pods take, too, that attach the VM's hotplugged volumes.
        """
        if settled := self._settled.get(namespaced_name(vmi)):
            return settled
        pod = self._cluster.pod_of(vmi)
        if pod is None:
            return None
        present = self._classes.running(pod)
        for each in self._cluster.attachments.get(namespaced_name(pod), ()):
            present = replace(present, load=present.load + self._classes.load_of(each))
        return present

    def _leave(self, vmi: Vmi, node: str, *, moves: bool) -> None:
        """Have a VM no longer be on its node. If it moves, its room is free already."""
        del self._vms[node][namespaced_name(vmi)]
        pod, position = self._cluster.pod_of(vmi), self._cluster.index.position(node)
        if pod is None or position is None:
            return
        self._on[node].pop(namespaced_name(pod), None)
        present = None if moves else self._present(vmi)
        if present is not None:
            self._simulation.unbind(present, position)

    def _settle(self, mover: Mover, node: str) -> None:
        """Have a VM run where it has moved to."""
        vmi, pod = movers.after_migration(mover, node, self._cluster)
        self._settled[mover.key] = mover.pod
        self._vms.setdefault(node, {})[mover.key] = vmi
        self._cluster.vmis[mover.key] = vmi
        if pod is not None and vmi.meta.uid:
            self._cluster.launchers[vmi.meta.uid] = [pod]
            self._on.setdefault(node, {})[namespaced_name(pod)] = pod

    def _count_disruptions(self, pods: Iterable[LauncherPod]) -> None:
        """Note the PodDisruptionBudgets that do not allow all evictions of a step at once."""
        if not self._cluster.objects.budgets:
            return
        budgets_by_pod = map(self._cluster.budgets_of_eviction, pods)
        counts = Counter((*namespaced_name(each[0]), each[0].allowed) for each in budgets_by_pod if len(each) == 1)
        for key, number in counts.items():
            if 0 < key[2] < number:
                self._disrupted[key] = max(number, self._disrupted.get(key, 0))

    def _others(self, nodes: Sequence[str]) -> tuple[list[LauncherPod], list[BlockedPod], list[PlannedTransfer]]:
        """The pods without a VM that are evicted, those of them that may not be, and those that copy a disk."""
        others, blocked, transfers = [], [], []
        for (namespace, name), pod in self._evicted_others(nodes):
            others.append(pod)
            if reason := _budget_problem(pod, self._cluster):
                blocked.append(BlockedPod(namespace, name, reason))
            elif transfer := transfer_of(pod):
                started = pod.started_at
                since = None if started is None else max(0, int(self._cluster.objects.now - started))
                transfers.append(PlannedTransfer(namespace, name, transfer.what, transfer.owner, since, transfer.loss))
        return others, blocked, transfers

    def _evicted_others(self, nodes: Sequence[str]) -> Iterator[tuple[NamespacedName, LauncherPod]]:
        for node in nodes:
            for key, pod in sorted(self._on.get(node, {}).items()):
                owner = pod.meta.controller_owner()
                if key in self._cluster.carriers or (owner and owner.kind in ("DaemonSet", "Node")):
                    continue
                if (key[0], pod.launcher) not in self._cluster.attachments:
                    yield key, pod


def _inbound_limit(cluster: PlannedCluster, limits: Limits) -> InboundLimit | None:
    """The limit of the settings for migrations that a node receives; None: there is none."""
    settings = cluster.objects.settings
    section = settings.of(MigrationSettings) if settings else MigrationSettings()
    if settings is None or not section.max_inbound_per_node:
        return None
    excluded, facts = settings.every_excluded_namespace, Facts(peek=cluster.peek)
    namespaces = {
        name
        for name, namespace in cluster.namespaces.items()
        if from_memory(enforces(names.MIGRATION, namespace, facts, section.cluster_wide, excluded))
    }
    return InboundLimit(section.max_inbound_per_node, namespaces.__contains__, limits)


class Blocked(msgspec.Struct, frozen=True):
    """A VM that blocks a drain.

    Attributes:
        mover: what it requires; None: its eviction already leads to no migration.
        alone: the nodes for it before any other VM moved; None like ``mover``.
    """

    code: str
    vmi: Vmi
    mover: Mover | None = None
    alone: FilterResult | None = None
    allocatable: Mapping[str, int] | None = None
    position: int = 0


def rank(
    blocked: Sequence[Blocked], drained: frozenset[str], owner: HyperConverged | None = None, *, evicts: bool = True
) -> tuple[Remedy, ...]:
    """The changes that free VMs, those first that free most.

    Args:
        blocked: the VMs.
        drained: the nodes that must stay cordoned.
        owner: what overwrites the KubeVirt object, so that its configuration is changed there.
        evicts: whether VMs that cannot be migrated are evicted.
    """
    freed: dict[str, set[NamespacedName]] = {}
    field = owner.field("migrations") if owner else ""
    own = {_BY_CODE[report.NO_MIGRATIONS]: f"raise the limits in {field} of {owner.title}"} if owner and field else {}
    if owner:
        codes = (report.LIVE_MIGRATE_NOT_CONFIGURED, report.EVICT_NOT_CONFIGURED)
        for text in (*map(_BY_CODE.__getitem__, codes), _SOME_IN_A_BATCH):
            own[text] = text.replace("spec.workload", "workload").replace("of KubeVirt", f"of {owner.title}")
    for each in blocked:
        for change in _changes(each, drained, owner, evicts):
            freed.setdefault(own.get(change, change), set()).add(namespaced_name(each.vmi))
    for change, vms in _another_node(blocked):
        freed.setdefault(change, set()).update(vms)
    ranked = sorted(freed.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Remedy(change, tuple(map("/".join, sorted(vms)))) for change, vms in ranked[:_MOST_CHANGES])


def _changes(blocked: Blocked, drained: frozenset[str], owner: HyperConverged | None, evicts: bool) -> Iterator[str]:
    """The single changes after which this VM would not block."""
    if blocked.code in (report.NO_ELIGIBLE_NODE, report.GROUP_RULES):
        yield from _openings(blocked, drained, owner)
    if blocked.code == report.NOT_MIGRATABLE:
        condition = blocked.vmi.condition(_MIGRATABLE)
        if fix := _BY_REASON.get((condition.reason if condition else None) or ""):
            yield fix
    change = _BY_CODE.get(blocked.code)
    if evicts and blocked.code == report.EVICT_NOT_CONFIGURED:
        change = _SOME_IN_A_BATCH
    if change and (evicts or blocked.code != report.NOT_MIGRATABLE):
        yield change


def _openings(blocked: Blocked, drained: frozenset[str], owner: HyperConverged | None) -> Iterator[str]:
    """The changes of a requirement that open a node with room."""
    alone = blocked.alone
    if alone is None:
        return
    for opening in alone.eligibility.openings():
        required = opening.failures[0].requirement
        usable = opening.nodes & alone.with_free & ~alone.forbidden
        if isinstance(required, Elsewhere) or not usable:
            continue
        if required.origin == Origin.CORDONED:
            # The nodes that are being drained are cordoned, too.
            reached = alone.eligibility.names(Group((), usable))
            others = [name for name in reached if name not in drained | {blocked.vmi.node_name}]
            if others:
                yield f"uncordon {quote(others[0])}" if len(others) == 1 else "uncordon a node that is not drained"
        elif change := change_of(opening.failures[0], owner):
            yield change


def _fits_beside(blocked: Blocked) -> bool:
    """Whether nothing but room keeps a VM from a node like the one that it is on."""
    mover, alone, here = blocked.mover, blocked.alone, 1 << blocked.position
    if mover is None or alone is None or mover.pod.info.rules or alone.forbidden & here:
        return False
    failing = (failure.requirement for failure in alone.eligibility.failures if failure.nodes & here)
    return all(isinstance(required, Elsewhere | Uncordoned) for required in failing)


def _another_node(blocked: Sequence[Blocked]) -> Iterator[tuple[str, set[NamespacedName]]]:
    """A further, empty node like each of those that are drained, and the VMs that it would hold."""
    fitting = (each for each in blocked if each.code == report.NO_ROOM and _fits_beside(each))
    for node, vms in group((each.vmi.node_name, each) for each in fitting).items():
        free = Counter(vms[0].allocatable or {})
        held = set()
        for each in vms:
            requests = Counter(each.mover.requests if each.mover else {})
            if all(free.get(resource, 0) >= amount for resource, amount in requests.items()):
                held.add(namespaced_name(each.vmi))
                free.subtract(requests)
        if held:
            yield f"add an empty node like {node}", held


def eviction_plan(vmi: Vmi, cluster: PlannedCluster) -> VmPlan:
    """What becomes of a running VM when the pod that it runs in is evicted; ``moves`` means: if there is a node."""
    plan = _plan_by_strategy(vmi, cluster)
    return replace(plan, notes=(*plan.notes, *_eviction_notes(vmi, cluster)))


def _plan_by_strategy(vmi: Vmi, cluster: PlannedCluster) -> VmPlan:
    own, default = own_strategy(vmi), cluster.objects.kubevirt.eviction_strategy
    strategy, effect = own or default, eviction_effect(vmi, default)
    origin = "its evictionStrategy" if own else "KubeVirt's evictionStrategy for VMIs that have none"
    if own and vmi.meta.annotation(EVICTION_STRATEGY.annotation) == own:
        origin = "the default evictionStrategy that it got at its start"
    if effect is EvictionEffect.STOPS:
        return _shutdown_plan(vmi, cluster, report.STRATEGY_NONE, f"{origin} is None")
    if effect is EvictionEffect.HANDED_OVER:
        return _handover_plan(vmi, origin)
    if effect is EvictionEffect.UNKNOWN:
        reason = f"{origin} is {quote(strategy)}, which kubevirt-webhook does not know"
        return plan_of(vmi, report.BLOCKS, report.UNKNOWN_STRATEGY, reason)
    if effect is EvictionEffect.MIGRATES:
        marked = stale_evacuation(vmi)
        if not marked:
            return migration_plan(vmi, cluster)
        reason = (
            f"status.evacuationNodeName is {quote(marked)} while it runs on {vmi.node_name}: virt-api denies its"
            f' eviction ("Evacuation in progress"), and KubeVirt creates no migration;'
            f" {cancel_evacuation(vmi, cluster.objects.kubevirt.release)}"
        )
        return plan_of(vmi, report.BLOCKS, report.STALE_EVACUATION, reason)
    condition, why = vmi.condition(_MIGRATABLE), " (KubeVirt has not written whether it can)"
    if condition:
        parts = ": ".join(filter(None, (condition.reason, condition.message)))
        why = f" ({parts})" if parts else ""
    reason = f"it cannot be live-migrated{why}, and {origin} is {strategy}"
    if effect is EvictionEffect.STOPS_UNMIGRATABLE:
        return _shutdown_plan(vmi, cluster, report.NOT_MIGRATABLE_IF_POSSIBLE, reason)
    # Of its volumes, or to another cluster, which virt-api and the workload updater allow all the same.
    unfinished = cluster.unfinished.get(namespaced_name(vmi), ())
    notes = tuple([_not_ended(each, "if it succeeds, the VM leaves the node") for each in unfinished])
    return plan_of(vmi, report.BLOCKS, report.NOT_MIGRATABLE, reason, notes=notes)


def plan_of(
    vmi: Vmi, outcome: str, code: str, reason: str = "", *, controller: str = "", notes: tuple[str, ...] = ()
) -> VmPlan:
    """The plan of a VM on its node, with the fields that `VmPlan` has."""
    return VmPlan(*namespaced_name(vmi), vmi.node_name, outcome, code, reason, controller=controller, notes=notes)


def _handover_plan(vmi: Vmi, origin: str) -> VmPlan:
    """A VM that KubeVirt marks (``status.evacuationNodeName``), and that another controller moves or ends.

    Cluster API's KubeVirt provider drains the guest's own node for at most `_GUEST_DRAIN_SECONDS`, and then deletes the
    VMI (cluster-api-provider-kubevirt v0.11, pkg/kubevirt/machine.go). It labels the VMs, which have no owner of its.
    """
    meta, owner = vmi.meta, vmi.meta.controller_owner()
    what = "KubeVirt only sets status.evacuationNodeName, and another controller moves or ends it"
    reason = f"{origin} is External: {what}"
    if machine := meta.label(_MACHINE_NAME):
        kubevirt_machine = f"{meta.label(_MACHINE_NAMESPACE) or meta.namespace}/{machine}"
        controller = f"KubevirtMachine {kubevirt_machine} of cluster {meta.label(_CLUSTER_NAME) or 'unknown'}"
        reason += (
            f"; its labels name {controller}, for which Cluster API's KubeVirt provider drains the guest's node for at"
            f" most {_GUEST_DRAIN_SECONDS // 60}m, and then deletes the VirtualMachineInstance"
        )
    elif owner and owner.group != names.KUBEVIRT_GROUP:
        controller = f"{owner.kind or ''} {owner.name or ''}"
        reason += f"; its owner is {controller}"
    else:
        controller = ""
        reason += "; which one is not known, because neither its labels nor its owners name it"
    return plan_of(vmi, report.HANDED_OVER, report.EXTERNAL_STRATEGY, reason, controller=controller)


def _budget_problem(pod: LauncherPod, cluster: PlannedCluster) -> str:
    """Why the PodDisruptionBudgets of its namespace do not allow a pod's eviction now, a clause; empty: they do."""
    budgets = cluster.budgets_of_eviction(pod)
    names = abbreviate([each.meta.name or "" for each in budgets])
    if len(budgets) > 1:
        return f"{len(budgets)} PodDisruptionBudgets select its pod ({names}), which the API server does not support"
    if not budgets or budgets[0].allowed > 0:
        return ""
    why = budgets[0].sync_problem
    if why is None:
        return f"PodDisruptionBudget {names} allows no disruption now"
    # As of VMs, whose VirtualMachineInstance has no scale (kubevirt 18063).
    return (
        f"PodDisruptionBudget {names} allows no disruption, because kube-controller-manager cannot compute how many"
        f" there may be ({why or 'SyncFailed'}); it needs no scale for a minAvailable that is a number"
    )


def _shutdown_plan(vmi: Vmi, cluster: PlannedCluster, code: str, reason: str) -> VmPlan:
    pod = cluster.pod_of(vmi)
    if pod and (problem := _budget_problem(pod, cluster)):
        return plan_of(vmi, report.BLOCKS, report.DISRUPTION_BUDGET, f"{reason}, but {problem}")
    notes = [
        f"migration {each.meta.name or ''}, which sends it to another namespace or cluster, ends with it"
        for each in cluster.unfinished.get(namespaced_name(vmi), ())
        if each.sends
    ]
    plan = plan_of(vmi, report.SHUTS_DOWN, code, reason, notes=tuple(notes))
    if starts.has_unknown_strategy(vmi, cluster):
        return replace(plan, gaps=(_UNKNOWN_STRATEGY,))
    _, why = starts.staying_down(vmi, cluster, has_failed=False) or ("", "")
    return replace(plan, stays_down=why)


def migration_plan(vmi: Vmi, cluster: PlannedCluster, afterwards: str = "it is evacuated afterwards") -> VmPlan:
    """What becomes of a VM for which KubeVirt is to create a migration; ``moves`` means: if there is a node.

    ``afterwards`` is what happens to it once a migration has ended that runs now, a clause.
    """
    if obstacle := _obstacle(vmi, cluster):
        return plan_of(vmi, report.BLOCKS, *obstacle)
    notes = []
    if arrival := cluster.arrivals.get(namespaced_name(vmi)):
        notes.append(
            f"migration {arrival.migration}, which is in flight, brings it here from {arrival.source}; {afterwards}"
        )
    unfinished = cluster.unfinished.get(namespaced_name(vmi), ())
    notes += [_not_ended(each, f"{_ONCE_GONE}, {afterwards}" if each.sends else afterwards) for each in unfinished]
    if migration_targets.DURING_BACKUP in migration_targets.holding_back(vmi, cluster.objects.kubevirt):
        notes.append("its backup runs, which holds migrations back, or which the evacuation ends")
    return plan_of(vmi, report.MOVES, report.MIGRATES, notes=tuple(notes))


def _obstacle(vmi: Vmi, cluster: PlannedCluster) -> tuple[str, str] | None:
    """Why no migration of a VM begins or ends, whatever nodes there are: the code and a clause; None: one could."""
    if problem := migration_targets.name_problem(vmi.meta.name or ""):
        return report.NAME_TOO_LONG, problem
    kubevirt, rules = cluster.objects.kubevirt, _rules_of(vmi, cluster)
    if problem := migration_targets.state_problem(vmi, kubevirt.release):
        return report.NAME_TOO_LONG, problem
    for limit, field in (
        (kubevirt.parallel_migrations, "parallelMigrationsPerCluster"),
        (kubevirt.outbound_migrations, "parallelOutboundMigrationsPerNode"),
    ):
        if limit < 1:
            reason = f"KubeVirt's {field} is {limit}, so no migration begins"
            return report.NO_MIGRATIONS, reason
    if rules.timeout_seconds_per_gib < 0:
        owner = f"MigrationPolicy {rules.policy}'s" if rules.policy else "KubeVirt's"
        reason = f"{owner} completionTimeoutPerGiB is negative, so KubeVirt aborts every migration"
        return report.NO_MIGRATIONS, reason
    if reason := _handler_problem(vmi, cluster):
        return report.VIRT_HANDLER_GONE, reason
    if why := migration_targets.cpu_problem(vmi, cluster.pod_of(vmi), cluster.index.get(vmi.node_name)):
        return report.HOST_CPU_UNKNOWN, why
    if problem := cluster.priorities.of_target_pod(vmi, cluster.pod_of(vmi)).problem:
        reason = f"the target pod of its migration would be denied: {problem}"
        return report.NO_PRIORITY_CLASS, reason
    if why := cluster.scheduler_problem(vmi, cluster.pod_of(vmi)):
        return report.SCHEDULER_DOWN, f"{why}; the target pod of its migration waits for it"
    for each in cluster.unfinished.get(namespaced_name(vmi), ()):
        # The one that sends a VM ignores the selector, and creates no pod.
        if not each.sends and (problem := _selector_problem(each.added_selector)):
            reason = f"migration {each.meta.name or ''} never ends ({problem}), and KubeVirt begins no other; delete it"
            return report.MIGRATION_STUCK, reason
    return None


def _not_ended(migration: Migration, afterwards: str) -> str:
    """That a migration of a VM has not ended, and what follows then, a clause."""
    whose = ", which sends it to another namespace or cluster," if migration.sends else " of it"
    return f"migration {migration.meta.name or ''}{whose} has not ended; {afterwards}"


def evacuation_notes(vmi: Vmi, cluster: PlannedCluster) -> Iterator[str]:
    """That KubeVirt has not finished the evacuation of a VM, and how to end it, a clause."""
    if marked := evacuated_node(vmi):
        yield (
            f"KubeVirt evacuates it from {marked} already (status.evacuationNodeName), and virt-api denies its"
            f' eviction ("Evacuation in progress"); {cancel_evacuation(vmi, cluster.objects.kubevirt.release)}'
        )


def _eviction_notes(vmi: Vmi, cluster: PlannedCluster) -> Iterator[str]:
    """What keeps KubeVirt from acting on an eviction of a VM at once, clauses."""
    if cluster.arrivals.get(namespaced_name(vmi)):
        yield f"until then virt-api denies the eviction of its target pod ({_TARGET_POD})"
    yield from evacuation_notes(vmi, cluster)
    state = vmi.status.migration_state if vmi.status else None
    if state and state.start_timestamp and not state.end_timestamp and not cluster.unfinished.get(namespaced_name(vmi)):
        yield (
            "KubeVirt takes it for migrating and begins no evacuation, until status.migrationState has an endTimestamp;"
            " no migration of it is unfinished that would write one"
        )
    others = [pod for pod in cluster.launchers.get(vmi.meta.uid or "", ()) if pod is not cluster.pod_of(vmi)]
    if others and not cluster.unfinished.get(namespaced_name(vmi)):
        listed = abbreviate([f"{pod.meta.name or ''} on {pod.node_name or 'no node'}" for pod in others])
        yield f"KubeVirt evacuates it once its other pods have ended, which an earlier migration has left: {listed}"


def _kubelet_problem(node: NodeWithoutImages) -> str:
    """Why a node's kubelet may not stop pods; empty: it says that it is ready, or nothing."""
    conditions = (node.status.conditions if node.status else None) or ()
    ready = next((each for each in conditions if each.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return ""
    return ": ".join(filter(None, (f"Ready is {ready.status}", ready.reason)))


def _named(pod: PreemptedPod) -> str:
    what = f"the VM {pod.namespace}/{pod.vm}" if pod.vm else f"pod {pod.namespace}/{pod.name}"
    against = ", against its PodDisruptionBudget" if pod.violates_budget else ""
    return f"{what} (priority {pod.priority}{against})"


def _handler_problem(vmi: Vmi, cluster: PlannedCluster) -> str:
    """Why no virt-handler sends a VM's guest, a clause; empty: one does."""
    node = cluster.index.get(vmi.node_name)
    if node is None:
        problem = f"its node {vmi.node_name} does not exist"
    elif gone := node.heartbeat.problem(cluster.objects.now):
        problem = f"virt-handler of {node.name}, which has to send the guest, {gone}"
    else:
        return ""
    return f"{problem}; a migration of it waits without end"


def _selector_problem(selector: Mapping[str, str]) -> str:
    """Why no pod can have a node selector with these labels, a clause; empty: one can."""
    for key, value in selector.items():
        for part, text, problem in (("key", key, key_problem(key)), ("value", value, value_problem(value))):
            if problem:
                return f"its addedNodeSelector has the {part} {quote(text)}, which {problem}"
    return ""


def _rules_of(vmi: Vmi, cluster: PlannedCluster) -> MigrationRules:
    """What decides over the time of a VM's migration."""
    policies, around = cluster.objects.policies, cluster.labels.get(vmi.meta.namespace or "")
    policy = match_policy(policies, vmi.meta.labels, around) if policies else None
    name = policy.meta.name if policy else None
    if name not in cluster.rules:
        cluster.rules[name] = migration_rules(cluster.objects.kubevirt, policy)
    return cluster.rules[name]


def attaching(vmi: Vmi) -> str:
    """What KubeVirt does after it has migrated a VM's pod, a clause that ends before what nodes can do of it."""
    volumes = ", ".join(sorted(filter(None, vmi.attached_volumes)))
    return (
        "kube-scheduler chooses the node without regard to its hotplugged volumes"
        f" ({volumes}), which another pod has to attach there"
    )


def _no_node_left(mover: Mover, alone: FilterResult, left: FilterResult, simulation: Simulation) -> tuple[str, str]:
    """The code and the reason, a clause, by the nodes before any other VM has moved and those after all others have."""
    eligible = left.eligibility.bitset
    count = pluralize(eligible.bit_count(), "eligible node")
    with_room = eligible & left.with_free
    if with_room:
        rules = " and ".join(name for name, nodes in left.apart if nodes & with_room)
        where = "" if with_room == eligible else f" with room ({with_room.bit_count()} of them)"
        return report.PODS_APART, f"other pods keep it from the {count}{where}: {rules}"
    if alone.feasible:
        verb = "has" if alone.feasible.bit_count() == 1 else "have"
        nodes = pluralize(alone.feasible.bit_count(), "node")
        return report.NO_ROOM, f"{nodes} {verb} room for it now, but not beside the VMs that move there"
    return report.NO_ROOM, shortage(mover.requests, left.eligibility, simulation)


def shortage(requests: Mapping[str, int], eligibility: Eligibility, simulation: Simulation) -> str:
    """What eligible nodes have not enough free of for requests, a clause."""
    eligible = eligibility.bitset
    short = [
        f"{resource} ({format_amount(resource, amount)} requested)" if resource != POD_SLOTS else "pods"
        for resource, amount in requests.items()
        if eligible & ~simulation.with_free(resource, amount)
    ]
    listed = ", ".join(short[:_FEW]) + (f" and {len(short) - _FEW} more" if len(short) > _FEW else "")
    if eligible.bit_count() == 1:
        (name,) = eligibility.names()
        return f"the only eligible node, {name}, has not enough free {listed}"
    return f"none of the {pluralize(eligible.bit_count(), 'eligible node')} has enough free {listed}"
