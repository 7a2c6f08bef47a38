"""Deletions of VMs' pods by schedulers and by the taint controller.

Nothing is held: a denial says when to ask again. Since when a VM moves, and whether a migration was requested for it,
the migrations of its namespace say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from webhook import names
from webhook.admission.decision import Announcement, Decision, Reason, allow, deny
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.facts import Facts, ListKey, NodesKey, ObjectKey, Unreadable
from webhook.k8s.paths import is_segment
from webhook.k8s.resources import PODS
from webhook.k8s.types.meta import unix_time
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.launcher import vmi_owner
from webhook.placement.machines import JOB_UID, MIGRATIONS, PLACED_VMIS, UNFINISHED, Migration, Vmi
from webhook.placement.migrations import aborted_at, in_flight
from webhook.placement.nodes import Node
from webhook.policies.common import evacuations, migration_targets
from webhook.policies.common.migration_targets import details, no_node
from webhook.policies.common.required_facts import read, read_configuration
from webhook.policies.preemption import reasons
from webhook.policies.preemption.settings import PreemptionSettings
from webhook.policies.preemption.views import DISRUPTED_PODS, DisruptedPod

# Of the migrations that are requested; the UID of the pod follows, which is 36 characters long.
PREFIX: Final = "kubevirt-webhook-preempted-"
# What kube-scheduler and the taint controller write into the pod first (k8s.io/kubernetes, pkg/scheduler, executor.go,
# and pkg/controller/tainteviction).
BY_SCHEDULER: Final = "PreemptionByScheduler"
BY_TAINT: Final = "DeletionByTaintManager"

# A scheduler keeps one victim for eleven requests, and asks no more than that for a preemptor that is gone.
_SCHEDULER_SECONDS: Final = 10
# The taint controller waits 50 times in all, then never asks again: so it is given a fourth more than the deadline.
_WAITS: Final = 40
# While a scheduler writes the nominated node, and times in conditions are of whole seconds.
_NOMINATION_SECONDS: Final = 3
# For a migration to appear that was requested, and for a scheduler to find room for its target pod.
_BEGIN_SECONDS: Final = 30
_ROOM_SECONDS: Final = 15
# Until a migration has ended that KubeVirt aborts, as it takes longer than KubeVirt gives a VM of its size.
_ABORT_SECONDS: Final = 30
# Of the pods that wait for the same VM.
_MOST_TOLD: Final = 5
_UNFINISHED: Final = ListKey(UNFINISHED, "")
# The phase of a migration after which the VM is where it was.
_FAILED: Final = "Failed"
# Of nodes from which no VM can be migrated.
_DOWN: Final = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")


def name_of(pod_uid: str) -> str:
    """The name of the migration that is requested for a pod's VM: one for each pod, whoever requests it."""
    return f"{PREFIX}{pod_uid}"


async def evaluate_deletion(
    pod: DisruptedPod, request: Request[DisruptedPod], facts: Facts, settings: PreemptionSettings
) -> Decision:
    """Put the deletion of a pod off whose VM moves, or is to move; whatever else there is goes as it would."""
    if request.operation != "DELETE":
        return allow(common.other_operation(request.operation))
    user = request.user_info.username
    by_scheduler = user in settings.schedulers
    if not by_scheduler and user not in settings.taint_controllers:
        what = _chosen_by(pod, facts.now)
        return allow(reasons.unknown_user(user, what) if what else reasons.other_user(user))
    if pod.is_over:
        return deny(reasons.ended, 429) if by_scheduler else allow(common.pod_completed(pod.phase))
    if pod.meta.deletion_timestamp:
        return allow(reasons.being_deleted)
    owner = vmi_owner(pod)
    if isinstance(owner, Reason):
        return allow(owner)
    namespace = request.namespace or ""
    try:
        vmi = await _vm_in(pod, namespace, owner.name or "", owner.uid or "", facts)
        if isinstance(vmi, Reason):
            return allow(vmi)
        deletion = _Deletion(pod, vmi, namespace, by_scheduler, facts, settings)
        decision = await deletion.evaluate()
    except Unreadable as error:
        decision = allow(common.lookup_failed("the deletion was not put off", error.why), warn=True)
    return replace(decision, details={"vmi": owner.name or "", "user": user, **decision.details})


def _chosen_by(pod: DisruptedPod, now: float) -> str:
    """The setting in which the user is missing who deletes a pod; empty: the pod was not chosen a moment ago.

    A pod that has ended or is already being deleted is not killed by this: a kubelet removes it.
    """
    if pod.is_over or pod.meta.deletion_timestamp:
        return ""
    for reason, setting in ((BY_SCHEDULER, "schedulers"), (BY_TAINT, "taintControllers")):
        since = pod.disrupted_since(reason)
        if since is not None and now - since < _BEGIN_SECONDS:
            return setting
    return ""


async def _vm_in(pod: DisruptedPod, namespace: str, name: str, uid: str, facts: Facts) -> Vmi | Reason:
    """The VMI that runs in a pod, or why none does that could move."""
    await facts.prefetch(*migration_targets.keys_by_name(namespace, name), _migrations(namespace, name))
    vmi = await read(facts, ObjectKey(PLACED_VMIS, namespace, name), f"VirtualMachineInstance {namespace}/{name}")
    if vmi is None:
        return common.vmi_not_found(namespace, name)
    if vmi.meta.uid != uid:
        return common.vmi_replaced(namespace, name)
    if vmi.meta.deletion_timestamp or vmi.has_ended:
        return reasons.being_deleted
    return vmi if vmi.node_name and vmi.node_name == pod.node_name else common.not_the_current_pod


def _migrations(namespace: str, name: str) -> ListKey[Migration]:
    return ListKey(MIGRATIONS, namespace, f"{names.VMI_NAME_LABEL}={name}")


class _Deletion:
    """The deletion of the pod that a VM runs in."""

    def __init__(
        self,
        pod: DisruptedPod,
        vmi: Vmi,
        namespace: str,
        by_scheduler: bool,
        facts: Facts,
        settings: PreemptionSettings,
    ) -> None:
        self._pod: Final = pod
        self._vmi: Final = vmi
        self._namespace: Final = namespace
        self._by_scheduler: Final = by_scheduler
        self._reason: Final = BY_SCHEDULER if by_scheduler else BY_TAINT
        self._facts: Final = facts
        self._settings: Final = settings
        self._vm: Final = f"{namespace}/{vmi.meta.name}"
        # The pods for whose room a scheduler deletes it, as far as it has nominated them.
        self._preemptors: list[DisruptedPod] = []
        # Whether the deletion is known not to be one that only the sender of this review speaks of.
        self._is_real = facts.verified

    async def evaluate(self) -> Decision:
        """The answer; an `Unreadable` where something cannot be read."""
        if self._by_scheduler:
            self._preemptors = await self._find_preemptors()
        key = _migrations(self._namespace, self._vmi.meta.name or "")
        found = await read(self._facts, key, "the VM's migrations") or ()
        own = [each for each in found if each.vmi_name == self._vmi.meta.name]
        migration = in_flight(self._vmi, own)
        if migration:
            decision = await self._moving(migration, own)
        else:
            decision = await self._moved_or_not(own)
        if decision.denial and self._by_scheduler:
            decision = self._for_whom(migration) or decision
        # Last, since nodes may change while the rest is read.
        if decision.denial and (node := await self._down_node()):
            return allow(reasons.node_down(self._vm, node.name))
        return decision

    async def _find_preemptors(self) -> list[DisruptedPod]:
        node = self._pod.node_name
        key = ListKey(DISRUPTED_PODS, "", field=f"status.nominatedNodeName={node}")
        listed = await read(self._facts, key, "the pods that wait for room") or ()
        waiting = (each for each in listed if each.nominated_node == node and not each.node_name and not each.is_over)
        return [each for each in waiting if each.priority > self._pod.priority]

    def _waiting_since(self) -> float | None:
        """Since when a pod waits for this VM and, if there are more, for those before it; None: nobody does, or longer.

        A scheduler deletes the last of several victims after all others. One that has waited for twice the deadline
        has not waited for VMs alone.
        """
        now, most = self._facts.now, 2 * self._settings.deadline_seconds
        times = [at for each in self._preemptors if (at := each.unschedulable_since) is not None]
        return min((at for at in times if now - at < most), default=None)

    async def _down_node(self) -> Node | None:
        nodes = await read(self._facts, NodesKey(), "the nodes")
        node = nodes.get(self._pod.node_name) if nodes else None
        return node if node and any(taint.key in _DOWN for taint in node.taints) else None

    async def _moving(self, migration: Migration, own: Iterable[Migration]) -> Decision:
        """The answer while a migration of the VM is unfinished.

        Those that failed a moment ago count with it: else who migrates a VM again and again could keep a preemptor out.
        """
        deadline = self._settings.deadline_seconds
        begun = unix_time(migration.meta.creation_timestamp)
        known = [at for at in (begun, self._failing_since(own), self._waiting_since()) if at is not None]
        ago = max(0, math.floor(self._facts.now - min(known))) if begun is not None else deadline
        if ago >= deadline:
            return allow(reasons.overdue(self._vm, str(ago)))
        left = deadline - ago
        aborted = aborted_at(self._vmi, migration)
        if aborted is not None:
            # Nobody ends it any more, as where a virt-handler is gone.
            left = min(left, math.ceil(aborted + _ABORT_SECONDS - self._facts.now))
            if left <= 0:
                return allow(reasons.not_aborted(self._vm, math.floor(self._facts.now - aborted)))
        key = ListKey(DISRUPTED_PODS, self._namespace, f"{JOB_UID}={migration.meta.uid}")
        for target in await read(self._facts, key, "the migration's target pod") or ():
            since = target.unschedulable_since
            if not target.node_name and since is not None and self._facts.now - since >= _ROOM_SECONDS:
                return allow(reasons.no_room(self._vm))
        return self._put_off(reasons.waits(self._vm, self._pod.node_name, left), left)

    async def _moved_or_not(self, own: Iterable[Migration]) -> Decision:
        """The answer while no migration of the VM is unfinished: one is requested, if that can help."""
        settings, now = self._settings, self._facts.now
        taken = name_of(self._pod.meta.uid or "")
        requested = [each for each in own if (each.meta.name or "").startswith(PREFIX)]
        # KubeVirt keeps some that have ended: another one for the same pod could not be created.
        if any(each.meta.name == taken or self._is_recent(each) for each in requested):
            return allow(reasons.recent(self._vm))
        reason = self._reason
        disrupted_since = self._pod.disrupted_since(reason)
        if disrupted_since is None:
            return allow(reasons.not_disrupted(reason))
        if now - disrupted_since >= _BEGIN_SECONDS:
            return allow(reasons.not_begun(self._vm, str(_BEGIN_SECONDS)))
        known = [at for at in (self._failing_since(own), self._waiting_since()) if at is not None]
        waited = max(0, math.floor(now - min(known))) if known else 0
        left = settings.deadline_seconds - waited
        if left <= 0:
            return allow(reasons.waited(self._pod.node_name, waited))
        # The nodes are looked at when all else is there: nothing is waited for after that.
        await self._facts.prefetch(_UNFINISHED)
        if problem := await self._problem():
            return problem
        if not settings.request_migrations:
            return allow(reasons.not_requested(self._vm))
        unfinished = await read(self._facts, _UNFINISHED, "the cluster's migrations") or ()
        count = sum((each.meta.name or "").startswith(PREFIX) for each in unfinished)
        if count >= settings.max_per_cluster:
            return allow(reasons.too_many(count, settings.max_per_cluster))
        # Whoever may send reviews must not have VMs moved by them.
        if not self._is_real and not await self._is_stored(reason):
            return allow(reasons.not_disrupted(reason))
        self._is_real = True
        return self._put_off(reasons.requested(self._vm, self._pod.node_name, left), left)

    async def _is_stored(self, reason: str) -> bool:
        """Whether the API server has the pod as the review shows it."""
        meta = self._pod.meta
        if not is_segment(meta.name or ""):
            return False
        key = ListKey(DISRUPTED_PODS, self._namespace, field=f"metadata.name={meta.name}")
        listed = await read(self._facts, key, "the pod") or ()
        stored = next((each for each in listed if meta.uid and each.meta.uid == meta.uid), None)
        is_same = stored is not None and stored.meta.controller_owner() == meta.controller_owner()
        return stored is not None and is_same and stored.disrupted_since(reason) is not None

    def _failing_since(self, own: Iterable[Migration]) -> float | None:
        """Since when the VM has been waited for without success; None: none of its migrations failed a moment ago.

        What failed before anybody asked for the pod's deletion has kept nobody waiting.
        """
        asked = self._pod.disrupted_since(self._reason) or 0
        failed = [each for each in own if each.phase == _FAILED and self._is_recent(each)]
        begun = (unix_time(each.meta.creation_timestamp) for each in failed if (each.ended_at or asked) >= asked)
        return min((max(at, asked) for at in begun if at is not None), default=None)

    def _is_recent(self, ended: Migration) -> bool:
        now = self._facts.now
        return now - (ended.ended_at or now) < self._settings.window_seconds

    async def _problem(self) -> Decision | None:
        """Why the VM cannot be migrated now; None: nothing is in the way."""
        vmi, facts = self._vmi, self._facts
        if not vmi.migratable:
            return allow(reasons.cannot_move(self._vm, "KubeVirt says that it is not live-migratable"))
        configuration = await read_configuration(facts) or DEFAULTS
        problem = migration_targets.name_problem(vmi.meta.name or "") or migration_targets.state_problem(
            vmi, configuration.release
        )
        if terms := migration_targets.holding_back(vmi, configuration):
            problem = f"KubeVirt holds its migrations back {' and '.join(terms)}"
        if problem:
            return allow(reasons.cannot_move(self._vm, problem))
        evacuation = await evacuations.look_for(vmi, self._namespace, facts)
        if evacuation.cpu_problem:
            return allow(common.host_cpu_unknown(evacuation.cpu_problem))
        if evacuation.eligibility and not evacuation.eligibility.count:
            return replace(allow(no_node(evacuation.eligibility)), details=details(evacuation.eligibility))
        if evacuation.quota.problem:
            return allow(reasons.cannot_move(self._vm, f"its target pod would be denied: {evacuation.quota.problem}"))
        return None

    def _for_whom(self, migration: Migration | None) -> Decision | None:
        """The answer where it depends on the pods that wait for the room; None: they wait."""
        node, pod = self._pod.node_name, self._pod
        highest = max((each.priority for each in self._preemptors), default=None)
        if highest is not None:
            is_urgent = highest > self._settings.max_priority
            return allow(reasons.urgent(str(highest), node)) if is_urgent else None
        if migration and migration.meta.name == name_of(pod.meta.uid or ""):
            return deny(reasons.preemptor_gone(node), 429)
        since = pod.disrupted_since(BY_SCHEDULER)
        ago = math.inf if since is None else self._facts.now - since
        if ago < _NOMINATION_SECONDS:
            return deny(reasons.preemptor_unknown(node), 429, retry_after=1)
        # A scheduler that deletes before it nominates has been answered by then: this one was put off for a pod.
        if migration and 2 * _NOMINATION_SECONDS <= ago < math.inf:
            return deny(reasons.preemptor_gone(node), 429)
        return allow(reasons.synchronous(node))

    def _put_off(self, reason: Reason, left: int) -> Decision:
        """A denial after which the deletion comes again, and at the latest when so many seconds are over."""
        wait = _SCHEDULER_SECONDS
        if not self._by_scheduler:
            wait = max(wait, -(-self._settings.deadline_seconds // _WAITS))
        return replace(deny(reason, 429, retry_after=min(wait, left)), announcements=self._announcements(left))

    def _announcements(self, left: int) -> tuple[Announcement, ...]:
        """What the pods' owners read that wait: their scheduler says only that there is no room.

        Of a VM in another namespace the name is not theirs to read. kube-scheduler itself names a preemptor to the
        victim's owner by its UID alone.
        """
        if not self._is_real:
            return ()
        told = sorted(self._preemptors, key=lambda each: -each.priority)[:_MOST_TOLD]
        return tuple([self._announce(each, left) for each in told])

    def _announce(self, preemptor: DisruptedPod, left: int) -> Announcement:
        meta, node = preemptor.meta, self._pod.node_name
        namespace = meta.namespace or ""
        vm = f"VM {self._vm}" if namespace == self._namespace else "a VM of another namespace"
        text = f"waits for room on node {node}, for the migration of {vm}, for at most {left}s more"
        regarded = (namespace, PODS.api_version, PODS.kind, meta.name or "", meta.uid or "")
        return Announcement(*regarded, "WaitsForMigration", reasons.WAITS, text)
