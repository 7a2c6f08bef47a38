"""The plan of a drain: every VM on the nodes, what becomes of it, and where it could go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from webhook import names
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import InputError, quote
from webhook.forecast import packing, report
from webhook.forecast.pods import MOST_RULES, Neighbors, PodInfo, PodSelector, expressions_of
from webhook.forecast.report import BlockedPod, DrainPlan, Limits, PlannedTransfer, Remedy, Step, VmPlan
from webhook.forecast.snapshot import CREATED_BY, ClusterObjects, ClusterSnapshot, Place, PodDisruptionBudget, place_of
from webhook.k8s.quantity import nanos
from webhook.k8s.types.selectors import key_problem, value_problem
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.kubevirt.migrationpolicy import MigrationRules, match_policy, migration_rules
from webhook.kubevirt.releases.capabilities import CANCELS_EVACUATIONS
from webhook.kubevirt.transfers import transfer_of
from webhook.placement.eligibility import Eligibility, Group
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import MEMORY, Departure, bitset_positions, format_request
from webhook.placement.quota import PodUsage, QuotaReview, review_quotas
from webhook.placement.requirements import Elsewhere, Origin, Uncordoned
from webhook.policies.common import migration_targets
from webhook.policies.common.migration_targets import no_node
from webhook.policies.migration.explanation import change_of
from webhook.text import pluralize

# 5,000 nodes drained one after the other, with 10,000 VMs, take a twentieth of it.
MAX_STEPS: Final = 20_000_000

# Of the nodes that could take a VM, in the report.
_MOST_CANDIDATES: Final = 20
_PACKED: Final = (
    "there is room only if VMs are packed tightly; kube-scheduler spreads them, and may leave this one without a node"
)
_ASSUMPTIONS: Final = (
    "Nothing else in the cluster changes meanwhile: no other pod starts.",
    "kube-scheduler may choose other nodes than the plan, which shows one way to place the VMs that move.",
    "Pods without a VM that are evicted need room elsewhere, too, which is not set aside for them.",
    "VMs that shut down are not placed again: whatever starts them needs room for them.",
    "Each migration copies the VM's memory once; a guest that writes faster than that takes longer.",
)
_KUBELET: Final = "the kubelet of the node decides by NUMA node whether there is room"
# The VMs that KubeVirt is to evacuate, and that stay where they are, or are handed over.
_MARKED: Final = (
    *(*report.PENDING, report.QUOTA, report.MIGRATION_STUCK, report.NAME_TOO_LONG, report.NO_MIGRATIONS),
    report.EXTERNAL_STRATEGY,
)
_CANCEL: Final = (
    "VMs that do not move keep status.evacuationNodeName after the drain, and KubeVirt tries to migrate them, until"
    " `virtctl evacuate-cancel vm NAME -n NAMESPACE` removes it. That takes update on virtualmachines/evacuate/cancel,"
    " which the roles admin and edit have."
)
_ELSEWHERE: Final = "Where other controllers start the VMs that they take over is not known; they need room there."
_MOST_CHANGES: Final = 10
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
    report.NOT_MIGRATABLE: "set evictionStrategy LiveMigrateIfPossible on VMs that cannot be migrated; they then shut"
    " down",
    report.MIGRATION_STUCK: "delete the migrations that never end",
    report.QUOTA: "raise the ResourceQuotas, or count VMs with the Application Aware Quota operator, which does not"
    " count the target pods of migrations",
    report.NO_MIGRATIONS: "raise the limits of migrations in KubeVirt's configuration",
    report.DISRUPTION_BUDGET: "have PodDisruptionBudgets allow disruptions of VMs that shut down",
    report.NAME_TOO_LONG: "shut down the VMs with names that are too long for a migration yourself",
    report.UNKNOWN_STRATEGY: "set an evictionStrategy that KubeVirt knows",
    report.PODS_APART: "relax the rules between pods (affinity, anti-affinity, topology spread) of the VMs that they"
    " block",
}
# Labels that Cluster API's KubeVirt provider writes into the templates of VMs (its pkg/kubevirt/machine.go, utils.go).
_CLUSTER_NAME: Final = "cluster.x-k8s.io/cluster-name"
_MACHINE_NAME: Final = "capk.cluster.x-k8s.io/kubevirt-machine-name"
_MACHINE_NAMESPACE: Final = "capk.cluster.x-k8s.io/kubevirt-machine-namespace"
_GUEST_DRAIN_SECONDS: Final = 600
_FEW: Final = 3


def plan(
    objects: ClusterObjects, nodes: Sequence[str], *, rolling: bool = False, bandwidth: int | None = None
) -> DrainPlan:
    """What draining nodes would do.

    Args:
        objects: the cluster.
        nodes: the nodes to drain, all at the same time; with ``rolling``, in this order, and empty for all nodes.
        rolling: drain one node after the other, each of which takes VMs again when the next one is drained.
        bandwidth: assumed bytes per second of one migration where KubeVirt limits none.

    Raises:
        InputError: a node does not exist or is named twice, or the cluster's objects are too complex.
    """
    try:
        return StepBudget(MAX_STEPS).run(_plan, objects, nodes, rolling, bandwidth)
    except TooComplex as error:
        raise InputError(f"{error.what} take more than {MAX_STEPS} steps", "the plan", "drain fewer nodes") from None


def _plan(objects: ClusterObjects, nodes: Sequence[str], rolling: bool, bandwidth: int | None) -> DrainPlan:
    snapshot = ClusterSnapshot(objects)
    named = list(nodes) or (sorted(snapshot.views) if rolling else [])
    for number, name in enumerate(named):
        if name not in snapshot.views:
            raise InputError(f"node {quote(name)} does not exist", fix="kubectl get nodes lists them")
        if name in named[:number] and name in nodes:
            raise InputError(f"node {quote(name)} is named twice", fix="name it once")
    limits = report.limits_of(objects.kubevirt, objects.migrations, bandwidth)
    planner = _Planner(snapshot, limits)
    steps = tuple(planner.step([name]) for name in named) if rolling else (planner.step(named),)
    vms = [vm for step in steps for vm in step.vms]
    outcomes = Counter(vm.outcome for vm in vms)
    longest = [step.at_most_seconds for step in steps if step.at_most_seconds is not None]
    stays = any(vm.code in _MARKED for vm in vms)
    return DrainPlan(
        schema=report.SCHEMA,
        rolling=rolling,
        moves=outcomes[report.MOVES],
        shuts_down=outcomes[report.SHUTS_DOWN],
        blocks=outcomes[report.BLOCKS] + sum(len(step.blocked_pods) for step in steps),
        handed_over=outcomes[report.HANDED_OVER],
        seconds=sum(step.seconds for step in steps),
        at_most_seconds=None if len(longest) < len(steps) else sum(longest),
        limits=limits,
        steps=steps,
        changes=rank(planner.blocked, frozenset(named) if not rolling else frozenset(), objects.kubevirt.owner),
        notes=(*planner.notes(), *([_CANCEL] if stays and objects.kubevirt.release.has(CANCELS_EVACUATIONS) else [])),
        assumptions=(*_ASSUMPTIONS, *([_ELSEWHERE] if outcomes[report.HANDED_OVER] else [])),
        gaps=(*objects.gaps, *planner.gaps()),
    )


class _Planner:
    """Drains the nodes of a snapshot, step by step.

    Args:
        snapshot: the cluster, which is changed as drains would change it.
        limits: how many migrations run concurrently.

    Attributes:
        blocked: the VMs that block, with what could be done about each.
    """

    def __init__(self, snapshot: ClusterSnapshot, limits: Limits) -> None:
        self._snapshot: Final = snapshot
        self._limits: Final = limits
        self.blocked: Final[list[Blocked]] = []
        self._on: Final[dict[str, dict[Place, LauncherPod]]] = {}
        self._vms: Final[dict[str, dict[Place, Vmi]]] = {}
        index = snapshot.index
        self._names: Final = {index.position(name): name for name in snapshot.views}
        # How many VMs of each namespace have migrated: the pods that they left count in quotas until they are deleted.
        self._moved: Final[Counter[str]] = Counter()
        # How many VMs of each namespace stay because others move: it is not known which do.
        self._contested: Final[Counter[str]] = Counter()
        self._reviews: Final[dict[Place, QuotaReview]] = {}
        self._rules: Final[dict[Place, MigrationRules]] = {}
        # The quotas that leave room for fewer target pods at a time than KubeVirt would create, with how many.
        self._narrow: Final[dict[tuple[str, str], int]] = {}
        # What is counted on the nodes of the VMs that the plan has moved.
        self._settled: Final[dict[Place, tuple[packing.Amounts, PodInfo]]] = {}
        self._offers: Final = {name: packing.offers_of(view) for name, view in snapshot.views.items()}
        self._room: Final = packing.Room(index, self._offers)
        running = [pod for pod in snapshot.objects.pods if pod.node_name and not pod.is_over]
        for pod in running:
            if (position := index.position(pod.node_name)) is not None:
                self._room.take(position, packing.requests_of(pod))
        self._neighbors: Final = Neighbors(index)
        for pod in running:
            self._on.setdefault(pod.node_name, {})[place_of(pod)] = pod
        for vmi in snapshot.vmis.values():
            if vmi.node_name and not vmi.has_ended:
                self._vms.setdefault(vmi.node_name, {})[place_of(vmi)] = vmi
        self._count(running)
        self._packer: Final = packing.Packer(index, self._room, self._neighbors)

    def _count(self, running: Sequence[LauncherPod]) -> None:
        """Have the neighbors know all rules first, and then all pods."""
        infos = [(packing.pod_info_of(pod, self._snapshot.labels), pod) for pod in running]
        for info, _ in infos:
            self._neighbors.track(info.rules)
        for vms in self._vms.values():
            for vmi in vms.values():
                self._neighbors.track(packing.target_pod(vmi, self._snapshot).rules)
        for info, pod in infos:
            position = self._snapshot.index.position(pod.node_name)
            if position is not None:
                self._neighbors.add(info, position)

    def gaps(self) -> Iterator[str]:
        """What could not be taken into account of the whole cluster, clauses."""
        if left_out := self._neighbors.left_out:
            yield f"{pluralize(left_out, 'rule')} between pods beyond the first {MOST_RULES} about the same pods"
        yield from dict.fromkeys(gap for found in self._reviews.values() for gap in found.gaps)

    def step(self, nodes: Sequence[str]) -> Step:
        """Drain nodes at the same time; those that were not cordoned before take VMs again afterwards."""
        index = self._snapshot.index
        before = [node for name in nodes if (node := index.get(name))]
        for node in before:
            index.put(msgspec.structs.replace(node, unschedulable=True))
        vms, jobs = self._drain(nodes)
        for node in before:
            index.put(node)
        other, blocked, transfers = self._others(nodes)
        seconds, at_most = report.about(jobs, self._limits), report.at_most(jobs, self._limits)
        return Step(tuple(nodes), tuple(vms), other, tuple(blocked), seconds, at_most, tuple(transfers))

    def _drain(self, nodes: Sequence[str]) -> tuple[list[VmPlan], list[report.QueuedMigration]]:
        plans: dict[Place, VmPlan] = {}
        migrating = []
        freed: dict[str, list[PodUsage]] = {}
        leaving = [(name, vmi) for name in nodes for _, vmi in sorted(self._vms.get(name, {}).items())]
        for node, vmi in leaving:
            place = place_of(vmi)
            plans[place] = eviction = _evict(vmi, self._snapshot)
            if eviction.outcome == report.MOVES:
                migrating.append(vmi)
            elif eviction.outcome == report.BLOCKS:
                self.blocked.append(Blocked(eviction.code, vmi))
            elif eviction.outcome == report.SHUTS_DOWN:
                if place[0] in self._snapshot.quotas:
                    usage = packing.mover_of(vmi, self._snapshot, self._info(vmi)).usage
                    freed.setdefault(place[0], []).append(usage.negated)
                self._leave(vmi, node, moves=False)
        movers = []
        for vmi in migrating:
            mover = packing.mover_of(vmi, self._snapshot, self._info(vmi))
            if problem := self._quota_problem(mover, freed.get(mover.place[0], ())):
                plans[mover.place] = _plan_of(vmi, report.BLOCKS, report.QUOTA, problem, notes=plans[mover.place].notes)
                self.blocked.append(Blocked(report.QUOTA, vmi))
            else:
                movers.append(mover)
        plans.update(self._find_nodes(movers, plans, freed))
        jobs = [
            report.QueuedMigration(
                each.node,
                each.memory,
                each.outcome == report.BLOCKS,
                each.namespace,
                found.at_once if (found := self._reviews.get((each.namespace, each.name))) else None,
                *self._time_of(self._snapshot.vmis[each.namespace, each.name]),
            )
            for each in plans.values()
            if each.outcome == report.MOVES or each.code in report.PENDING
        ]
        return list(plans.values()), jobs

    def _time_of(self, vmi: Vmi) -> tuple[int | None, MigrationRules]:
        """The bytes by which KubeVirt counts the time of a VM's migration, and the rules of it."""
        rules = _rules_of(vmi, self._snapshot)
        self._rules[place_of(vmi)] = rules
        guest = vmi.domain.memory.guest if vmi.domain.memory else None
        own = (vmi.domain.resources.requests if vmi.domain.resources else None) or {}
        amount = nanos(guest if guest is not None else own.get(MEMORY) or 0)
        # The size of disks that are copied, too, is in no object.
        copies = (vmi.status.migration_method if vmi.status else None) == "BlockMigration"
        return None if copies or amount is None else -(-amount // 10**9), rules

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
        for (namespace, name), number in sorted(self._narrow.items()):
            pods = pluralize(number, "target pod")
            yield f"ResourceQuota {namespace}/{name} leaves room for {pods} concurrently; other migrations wait."

    def _quota_problem(self, mover: packing.Mover, freed: Sequence[PodUsage]) -> str:
        """Why the namespace's quotas deny the target pod of a VM, a clause.

        What earlier migrations needed is free again, except for the pods that they leave, and so is what VMs that shut
        down have freed.
        """
        namespace = mover.place[0]
        quotas = self._snapshot.quotas.get(namespace)
        if not quotas:
            return ""
        found = review_quotas(quotas, mover.usage, left_behind=self._moved[namespace], beside=freed)
        self._reviews[mover.place] = found
        if not found.problem and found.at_once is not None and found.at_once < self._limits.per_cluster:
            key = (namespace, found.limited_by)
            self._narrow[key] = min(found.at_once, self._narrow.get(key, found.at_once))
        if found.problem and not review_quotas(quotas, mover.usage, beside=freed).problem:
            self._contested[namespace] += 1
        self._moved[namespace] += not found.problem
        if not found.problem:
            return ""
        # In the words of the API server now, which counts what is not freed yet.
        now = review_quotas(quotas, mover.usage).problem or found.problem
        return f"the target pod of its migration would be denied: {now}"

    def _find_nodes(
        self, movers: Sequence[packing.Mover], plans: Mapping[Place, VmPlan], freed: Mapping[str, Sequence[PodUsage]]
    ) -> dict[Place, VmPlan]:
        """The plans of the VMs that migrate if there is a node, and have them migrate.

        ``freed`` is what VMs that shut down free in the quotas of their namespaces.
        """
        review = [(mover, self._snapshot.index.review(mover.requirements)) for mover in movers]
        alone = {mover.place: self._packer.candidates(mover, eligibility) for mover, eligibility in review}
        placed, packed = self._pack(review)
        turns = {place: turn for turn, place in enumerate(placed, 1)}
        found = {}
        for mover, eligibility in review:
            place = mover.place
            nodes = alone[place].nodes
            plan = msgspec.structs.replace(
                plans[place],
                memory=mover.memory,
                eligible=eligibility.count,
                with_room=nodes.bit_count(),
                candidates=tuple(self._names[at] for at in islice(bitset_positions(nodes), _MOST_CANDIDATES)),
                gaps=mover.gaps,
            )
            if place not in placed:
                left = self._packer.candidates(mover, eligibility)
                found[place] = self._blocked_plan(plan, mover, alone[place], left)
                continue
            node = self._names[placed[place]]
            notes = plan.notes
            if departure := Departure.of(self._snapshot.views[node]):
                notes = (*notes, f"{node} {departure.clause(self._snapshot.objects.now)}")
            found[place] = msgspec.structs.replace(plan, to=node, turn=turns[place], notes=notes)
            if by_kubelet := mover.vmi.cpu.decided_by_kubelet:
                reason = f"it may not fit, because it has {' and '.join(by_kubelet)}, for which {_KUBELET}"
                found[place] = msgspec.structs.replace(found[place], code=report.MAY_NOT_FIT, reason=reason)
            elif place in packed:
                found[place] = msgspec.structs.replace(found[place], code=report.MIGRATES_IF_PACKED, reason=_PACKED)
        self._wait_for_quotas([mover for mover, _ in review], found, freed)
        for mover in movers:
            if mover.place in placed:
                self._leave(mover.vmi, plans[mover.place].node, moves=True)
                self._settle(mover, found[mover.place].to)
        return found

    def _wait_for_quotas(
        self, movers: Sequence[packing.Mover], found: dict[Place, VmPlan], freed: Mapping[str, Sequence[PodUsage]]
    ) -> None:
        """Say of VMs with a node that quotas may keep them waiting.

        Target pods without a node count while they are pending, and VMs that shut down count until they have.
        """
        pending: dict[str, list[PodUsage]] = {}
        for mover in movers:
            if found[mover.place].code in report.PENDING:
                pending.setdefault(mover.place[0], []).append(mover.usage)
        minutes = report.PENDING_SECONDS // 60
        for mover in movers:
            namespace, plan = mover.place[0], found[mover.place]
            quotas = self._snapshot.quotas.get(namespace)
            if plan.outcome != report.MOVES or not quotas:
                continue
            beside = pending.get(namespace, [])
            whose = f"the target pods of {pluralize(len(beside), 'VM')} without a node"
            for others, why in (
                ((*beside, *freed.get(namespace, ())), f"{whose} take the quota for {minutes}m at a time"),
                ((), "VMs that shut down count in the quota until they have"),
            ):
                if problem := review_quotas(quotas, mover.usage, beside=others).problem:
                    reason = f"{plan.reason}; it" if plan.reason else "it"
                    reason += f" may wait, because {why}: {problem}"
                    found[mover.place] = msgspec.structs.replace(plan, code=report.WAITS_FOR_QUOTA, reason=reason)
                    break

    def _pack(self, review: Sequence[tuple[packing.Mover, Eligibility]]) -> tuple[dict[Place, int], set[Place]]:
        """Nodes for all, and the VMs that only a tight packing leaves room for."""
        by_score = self._packer.pack(review, tightly=False)
        if len(by_score) == len(review):
            return by_score, set()
        self._packer.undo(review, by_score)
        tight = self._packer.pack(review, tightly=True)
        if len(tight) > len(by_score):
            return tight, tight.keys() - by_score.keys()
        self._packer.undo(review, tight)
        return self._packer.pack(review, tightly=False), set()

    def _blocked_plan(
        self, about: VmPlan, mover: packing.Mover, alone: packing.Candidates, left: packing.Candidates
    ) -> VmPlan:
        """The plan of a VM that has found no node, of those before any other VM has moved and those that are left."""
        if not alone.eligibility.count:
            code, reason = report.NO_ELIGIBLE_NODE, no_node(alone.eligibility).text
        else:
            code, reason = _no_node_left(mover, alone, left, self._room)
        offers = self._offers[about.node] if code == report.NO_ROOM else None
        position = self._snapshot.index.position(about.node) or 0
        self.blocked.append(Blocked(code, mover.vmi, mover, alone, offers, position))
        return msgspec.structs.replace(about, outcome=report.BLOCKS, code=code, reason=reason)

    def _info(self, vmi: Vmi) -> PodInfo | None:
        """The pod that a VM runs in, as it is counted among the neighbors."""
        if settled := self._settled.get(place_of(vmi)):
            return settled[1]
        pod = self._snapshot.pod_of(vmi)
        return packing.pod_info_of(pod, self._snapshot.labels) if pod else None

    def _leave(self, vmi: Vmi, node: str, *, moves: bool) -> None:
        """Free what a VM has taken of its node. The rules between pods know of it already if it moves."""
        del self._vms[node][place_of(vmi)]
        pod, position = self._snapshot.pod_of(vmi), self._snapshot.index.position(node)
        info, settled = self._info(vmi), self._settled.get(place_of(vmi))
        if pod is None or position is None:
            return
        self._room.take(position, settled[0] if settled else packing.requests_of(pod), -1)
        self._on[node].pop(place_of(pod), None)
        if not moves and info is not None:
            self._neighbors.add(info, position, -1)

    def _settle(self, mover: packing.Mover, node: str) -> None:
        """Have a VM run where it has moved to."""
        vmi, pod = packing.after_migration(mover, node, self._snapshot)
        self._settled[mover.place] = (mover.requests, mover.pod)
        self._vms.setdefault(node, {})[mover.place] = vmi
        self._snapshot.vmis[mover.place] = vmi
        if pod is not None and vmi.meta.uid:
            self._snapshot.launchers[vmi.meta.uid] = [pod]
            self._on.setdefault(node, {})[place_of(pod)] = pod

    def _others(self, nodes: Sequence[str]) -> tuple[int, list[BlockedPod], list[PlannedTransfer]]:
        """The pods without a VM that are evicted, those of them that may not be, and those that copy a disk."""
        number, blocked, transfers = 0, [], []
        for node in nodes:
            for (namespace, name), pod in sorted(self._on.get(node, {}).items()):
                owner = pod.meta.controller_owner()
                if pod.meta.label(CREATED_BY) or (owner and owner.kind in ("DaemonSet", "Node")):
                    continue
                number += 1
                if reason := _budget_problem(pod, self._snapshot.budgets.get(namespace, ())):
                    blocked.append(BlockedPod(namespace, name, reason))
                elif found := transfer_of(pod):
                    started = pod.started_at
                    since = None if started is None else max(0, int(self._snapshot.objects.now - started))
                    transfers.append(PlannedTransfer(namespace, name, found.what, found.owner, since, found.loss))
        return number, blocked, transfers


class Blocked(msgspec.Struct, frozen=True):
    """A VM that blocks a drain.

    Attributes:
        mover: what it requires; None: its eviction already leads to no migration.
        alone: the nodes for it before any other VM moved; None like ``mover``.
    """

    code: str
    vmi: Vmi
    mover: packing.Mover | None = None
    alone: packing.Candidates | None = None
    offers: packing.Amounts | None = None
    position: int = 0


def rank(
    blocked: Sequence[Blocked], drained: frozenset[str], owner: HyperConverged | None = None
) -> tuple[Remedy, ...]:
    """The changes that free VMs, those first that free most; the drained nodes must stay cordoned.

    ``owner`` overwrites the KubeVirt object, so that its configuration is changed there.
    """
    freed: dict[str, set[Place]] = {}
    field = owner.field("migrations") if owner else ""
    own = {_BY_CODE[report.NO_MIGRATIONS]: f"raise the limits in {field} of {owner.title}"} if owner and field else {}
    for each in blocked:
        for change in _changes(each, drained):
            freed.setdefault(own.get(change, change), set()).add(place_of(each.vmi))
    for change, places in _another_node(blocked):
        freed.setdefault(change, set()).update(places)
    ranked = sorted(freed.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Remedy(change, tuple(map("/".join, sorted(places)))) for change, places in ranked[:_MOST_CHANGES])


def _changes(blocked: Blocked, drained: frozenset[str]) -> Iterator[str]:
    """The single changes after which this VM would not block."""
    if blocked.code == report.NO_ELIGIBLE_NODE:
        yield from _openings(blocked, drained)
    if blocked.code == report.NOT_MIGRATABLE:
        condition = blocked.vmi.condition(_MIGRATABLE)
        if known := _BY_REASON.get((condition.reason if condition else None) or ""):
            yield known
    if change := _BY_CODE.get(blocked.code):
        yield change


def _openings(blocked: Blocked, drained: frozenset[str]) -> Iterator[str]:
    """The changes of a requirement that open a node with room."""
    alone = blocked.alone
    if alone is None:
        return
    for opening in alone.eligibility.openings():
        required = opening.failure.requirement
        usable = opening.nodes & alone.room & ~alone.forbidden
        if isinstance(required, Elsewhere) or not usable:
            continue
        if required.origin == Origin.CORDONED:
            # The nodes that are being drained are cordoned, too.
            reached = alone.eligibility.names(Group((), usable))
            others = [name for name in reached if name not in drained | {blocked.vmi.node_name}]
            if others:
                yield f"uncordon {quote(others[0])}" if len(others) == 1 else "uncordon a node that is not drained"
        elif change := change_of(opening.failure):
            yield change


def _fits_beside(blocked: Blocked) -> bool:
    """Whether nothing but room keeps a VM from a node like the one that it is on."""
    mover, alone, here = blocked.mover, blocked.alone, 1 << blocked.position
    if mover is None or alone is None or mover.pod.rules or alone.forbidden & here:
        return False
    failing = (failure.requirement for failure in alone.eligibility.failures if failure.nodes & here)
    return all(isinstance(required, Elsewhere | Uncordoned) for required in failing)


def _another_node(blocked: Sequence[Blocked]) -> Iterator[tuple[str, set[Place]]]:
    """A further, empty node like each of those that are drained, and the VMs that it would hold."""
    by_node: dict[str, list[Blocked]] = {}
    for each in blocked:
        if each.code == report.NO_ROOM and _fits_beside(each):
            by_node.setdefault(each.vmi.node_name, []).append(each)
    for node, vms in by_node.items():
        free = Counter(vms[0].offers or {})
        held = set()
        for each in vms:
            requests = Counter(each.mover.requests if each.mover else {})
            if all(free.get(resource, 0) >= amount for resource, amount in requests.items()):
                held.add(place_of(each.vmi))
                free.subtract(requests)
        if held:
            yield f"add an empty node like {node}", held


def _evict(vmi: Vmi, snapshot: ClusterSnapshot) -> VmPlan:
    """What becomes of a running VM when the pod that it runs in is evicted; ``moves`` means: if there is a node."""
    own = vmi.spec.eviction_strategy if vmi.spec else None
    strategy = own or snapshot.objects.kubevirt.eviction_strategy
    origin = "its evictionStrategy" if own else "KubeVirt's evictionStrategy for VMs that have none"
    if strategy == "None":
        return _shut_down(vmi, snapshot, report.STRATEGY_NONE, f"{origin} is None")
    if strategy == "External":
        return _hand_over(vmi, origin)
    if strategy not in ("LiveMigrate", "LiveMigrateIfPossible"):
        reason = f"{origin} is {quote(strategy)}, which is not known here"
        return _plan_of(vmi, report.BLOCKS, report.UNKNOWN_STRATEGY, reason)
    if vmi.migratable:
        return _migrate(vmi, snapshot)
    condition, why = vmi.condition(_MIGRATABLE), " (KubeVirt has not written whether it can)"
    if condition:
        parts = ": ".join(filter(None, (condition.reason, condition.message)))
        why = f" ({parts})" if parts else ""
    reason = f"it cannot be live-migrated{why}, and {origin} is {strategy}"
    if strategy == "LiveMigrateIfPossible":
        return _shut_down(vmi, snapshot, report.NOT_MIGRATABLE_IF_POSSIBLE, reason)
    return _plan_of(vmi, report.BLOCKS, report.NOT_MIGRATABLE, reason)


def _plan_of(
    vmi: Vmi, outcome: str, code: str, reason: str = "", *, controller: str = "", notes: tuple[str, ...] = ()
) -> VmPlan:
    return VmPlan(*place_of(vmi), vmi.node_name, outcome, code, reason, controller=controller, notes=notes)


def _hand_over(vmi: Vmi, origin: str) -> VmPlan:
    """A VM that KubeVirt marks (``status.evacuationNodeName``), and that another controller moves or ends.

    Cluster API's KubeVirt provider drains the guest's own node for at most `_GUEST_DRAIN_SECONDS`, and then deletes the
    VMI (cluster-api-provider-kubevirt v0.11, pkg/kubevirt/machine.go). It labels the VMs, which have no owner of its.
    """
    meta, owner = vmi.meta, vmi.meta.controller_owner()
    reason = (
        f"{origin} is External: KubeVirt only sets status.evacuationNodeName, and another controller moves or ends it"
    )
    if machine := meta.label(_MACHINE_NAME):
        place = f"{meta.label(_MACHINE_NAMESPACE) or meta.namespace}/{machine}"
        controller = f"KubevirtMachine {place} of cluster {meta.label(_CLUSTER_NAME) or 'unknown'}"
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
    return _plan_of(vmi, report.HANDED_OVER, report.EXTERNAL_STRATEGY, reason, controller=controller)


def _budget_problem(pod: LauncherPod, budgets: Iterable[PodDisruptionBudget]) -> str:
    """Why the PodDisruptionBudgets of its namespace do not allow a pod's eviction now, a clause; empty: they do."""
    place, labels = pod.meta.namespace or "", pod.meta.labels or {}
    selectors = [(each, expressions_of(each.spec.selector if each.spec else None)) for each in budgets]
    found = [each for each, expressions in selectors if PodSelector(None, expressions).matches(place, labels)]
    names = ", ".join(each.meta.name or "" for each in found)
    if len(found) > 1:
        return f"{len(found)} PodDisruptionBudgets select its pod ({names}), which the API server does not support"
    if found and found[0].allowed < 1:
        return f"PodDisruptionBudget {names} allows no disruption now"
    return ""


def _shut_down(vmi: Vmi, snapshot: ClusterSnapshot, code: str, reason: str) -> VmPlan:
    pod = snapshot.pod_of(vmi)
    problem = _budget_problem(pod, snapshot.budgets.get(vmi.meta.namespace or "", ())) if pod else ""
    if problem:
        return _plan_of(vmi, report.BLOCKS, report.DISRUPTION_BUDGET, f"{reason}, but {problem}")
    return _plan_of(vmi, report.SHUTS_DOWN, code, reason)


def _migrate(vmi: Vmi, snapshot: ClusterSnapshot) -> VmPlan:
    if problem := migration_targets.name_problem(vmi.meta.name or ""):
        return _plan_of(vmi, report.BLOCKS, report.NAME_TOO_LONG, problem)
    kubevirt, rules = snapshot.objects.kubevirt, _rules_of(vmi, snapshot)
    for limit, field in (
        (kubevirt.parallel_migrations, "parallelMigrationsPerCluster"),
        (kubevirt.outbound_migrations, "parallelOutboundMigrationsPerNode"),
    ):
        if limit < 1:
            reason = f"KubeVirt's {field} is {limit}, so no migration begins"
            return _plan_of(vmi, report.BLOCKS, report.NO_MIGRATIONS, reason)
    if rules.timeout_seconds_per_gib < 0:
        owner = f"MigrationPolicy {rules.policy}'s" if rules.policy else "KubeVirt's"
        reason = f"{owner} completionTimeoutPerGiB is negative, so KubeVirt aborts every migration"
        return _plan_of(vmi, report.BLOCKS, report.NO_MIGRATIONS, reason)
    unfinished = [each for each in snapshot.unfinished.get(place_of(vmi), ()) if not each.sends]
    for each in unfinished:
        if problem := _selector_problem(each.added_selector):
            reason = f"migration {each.meta.name or ''} never ends ({problem}), and KubeVirt begins no other; delete it"
            return _plan_of(vmi, report.BLOCKS, report.MIGRATION_STUCK, reason)
    notes = [f"migration {each.meta.name or ''} of it has not ended; it is evacuated afterwards" for each in unfinished]
    if migration_targets.DURING_BACKUP in migration_targets.holding_back(vmi, kubevirt):
        notes.append("its backup runs, which holds migrations back, or which the evacuation ends")
    return _plan_of(vmi, report.MOVES, report.MIGRATES, notes=tuple(notes))


def _selector_problem(selector: Mapping[str, str]) -> str:
    """Why no pod can have a node selector with these labels, a clause; empty: one can."""
    for key, value in selector.items():
        for part, text, problem in (("key", key, key_problem(key)), ("value", value, value_problem(value))):
            if problem:
                return f"its addedNodeSelector has the {part} {quote(text)}, which {problem}"
    return ""


def _rules_of(vmi: Vmi, snapshot: ClusterSnapshot) -> MigrationRules:
    """What decides over the time of a VM's migration."""
    around = snapshot.labels.get(vmi.meta.namespace or "")
    policy = match_policy(snapshot.objects.policies, vmi.meta.labels, around)
    return migration_rules(snapshot.objects.kubevirt, policy)


def _no_node_left(
    mover: packing.Mover, alone: packing.Candidates, left: packing.Candidates, room: packing.Room
) -> tuple[str, str]:
    """The code and the reason, a clause, by the nodes before any other VM has moved and those after all others have."""
    eligible = left.eligibility.bitset
    count = pluralize(eligible.bit_count(), "eligible node")
    roomy = eligible & left.room
    if roomy:
        rules = " and ".join(name for name, nodes in left.apart if nodes & roomy)
        where = "" if roomy == eligible else f" with room ({roomy.bit_count()} of them)"
        return report.PODS_APART, f"other pods keep it from the {count}{where}: {rules}"
    if alone.nodes:
        verb = "has" if alone.nodes.bit_count() == 1 else "have"
        nodes = pluralize(alone.nodes.bit_count(), "node")
        return report.NO_ROOM, f"{nodes} {verb} room for it now, but not beside the VMs that move there"
    short = [
        f"{resource} ({format_request(resource, amount)} requested)" if resource != packing.PODS else "pods"
        for resource, amount in mover.requests.items()
        if eligible & ~room.with_enough(resource, amount)
    ]
    listed = ", ".join(short[:_FEW]) + (f" and {len(short) - _FEW} more" if len(short) > _FEW else "")
    if eligible.bit_count() == 1:
        (name,) = left.eligibility.names()
        return report.NO_ROOM, f"the only eligible node, {name}, has not enough free {listed}"
    return report.NO_ROOM, f"none of the {count} has enough free {listed}"
