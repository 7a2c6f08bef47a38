"""The plan of an update of KubeVirt: what becomes of the VMs, whose launcher pods are outdated by it.

The rules are those of KubeVirt's workload updater (pkg/virt-controller/watch/workload-updater, read in 1.6.1, 1.7.0,
1.8.4 and 1.9.0, which differ in the priority of the migrations alone). Where VMs go is what `webhook.forecast.drain`
plans.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import InputError, quote
from webhook.forecast import drain, report
from webhook.forecast.movers import OUTDATED
from webhook.forecast.report import Evictions, UpdatePlan, VmPlan
from webhook.forecast.snapshot import ClusterObjects, PlannedCluster
from webhook.kubevirt.releases import release
from webhook.kubevirt.types.views import WorkloadUpdateStrategy
from webhook.placement.demand import qemu_growth
from webhook.placement.machines import Vmi
from webhook.placement.migrations import EVICT, LIVE_MIGRATE, waits_for_update
from webhook.placement.nodes import MEMORY, format_amount
from webhook.text import parse_duration, pluralize

# defaultBatchDeletionCount and defaultBatchDeletionIntervalSeconds.
_BATCH_SIZE: Final = 10
_BATCH_SECONDS: Final = 60
# The updater looks again so long after a migration has changed (defaultThrottleInterval), and else every 30 s
# (periodicReEnqueueIntervalSeconds).
_THROTTLE_SECONDS: Final = 5
_REQUEUE_SECONDS: Final = 30
_UPDATED: Final = "it is updated afterwards"
_METHODS: Final = "KubeVirt's workloadUpdateMethods"
_ASSUMPTIONS: Final = (
    "Nothing else in the cluster changes meanwhile: no other pod starts, and no node is drained.",
    "KubeVirt chooses VMs at random. The plan moves them by name, and those that find no node again after the others.",
    drain.BY_SCORES,
    "VMs that shut down start again with the new launcher if their runStrategy has them run; their room stays taken.",
    "Each migration copies the VM's memory once; a guest that writes faster than that takes longer.",
)


def plan(objects: ClusterObjects, *, outdated_only: bool = False, bandwidth: int | None = None) -> UpdatePlan:
    """What KubeVirt's workload updater would do.

    Args:
        objects: the cluster, with the configuration by the release that it is updated to, and ``launchers_of``.
        outdated_only: only the VMs whose launchers are outdated now, or whose hotplug waits for a migration; else every
            VM that runs, as after an update.
        bandwidth: assumed bytes per second of one migration where KubeVirt limits none.

    Raises:
        InputError: the batch interval is not a duration, or the cluster's objects are too complex.
    """
    try:
        return StepBudget(drain.MAX_STEPS).run(_plan, objects, outdated_only, bandwidth)
    except TooComplex as error:
        what = f"{error.what} take more than {drain.MAX_STEPS} steps"
        raise InputError(what, "the plan", "give fewer objects with --cluster-from") from None


def _plan(objects: ClusterObjects, outdated_only: bool, bandwidth: int | None) -> UpdatePlan:
    cluster, strategy = PlannedCluster(objects), objects.workload_updates
    limits = report.limits_of(objects.kubevirt, objects.migrations, bandwidth)
    limits = msgspec.structs.replace(limits, start_seconds=limits.start_seconds + _THROTTLE_SECONDS)
    before = objects.kubevirt.launchers_of
    renews = not outdated_only or (before is not None and before.version != objects.kubevirt.release.version)
    planner = drain.Planner(cluster, limits, together=False, renews_launchers=renews)
    running = [vmi for _, vmi in sorted(cluster.vmis.items()) if _is_running(vmi)]
    outdated = [vmi for vmi in running if not outdated_only or _is_replaced(vmi)]
    vms, jobs = planner.carry_out([(vmi, _decide(vmi, cluster)) for vmi in outdated])
    vms = [_with_hotplug(vmi, vm) for vmi, vm in zip(outdated, vms, strict=True)]
    vms = [msgspec.structs.replace(vm, outcome=report.STAYS) if vm.outcome == report.BLOCKS else vm for vm in vms]
    outcomes = Counter(vm.outcome for vm in vms)
    # Without a method KubeVirt creates no migration.
    holding = sum(vm.code in (*report.UNSCHEDULED, *report.ENDLESS) for vm in vms) if _methods(strategy) else 0
    starting = sum(not vmi.has_ended for vmi in cluster.vmis.values()) - len(running)
    kubevirt = objects.kubevirt
    return UpdatePlan(
        schema=report.UPDATE_SCHEMA,
        from_version=str(kubevirt.launchers_of or kubevirt.release),
        to_version=str(kubevirt.release),
        methods=tuple(strategy.workload_update_methods or ()),
        moves=outcomes[report.MOVES],
        shuts_down=outcomes[report.SHUTS_DOWN],
        stays=outcomes[report.STAYS],
        handed_over=outcomes[report.HANDED_OVER],
        preempted=sum(len(vm.preempts) for vm in vms),
        failing=holding + sum(vm.code == report.QUOTA for vm in vms),
        up_to_date=len(running) - len(outdated),
        seconds=report.about(jobs, limits),
        # Which VMs KubeVirt chooses is random, so that those without a node may take any of the turns.
        at_most_seconds=None if holding else report.at_most(jobs, limits),
        limits=limits,
        evictions=_evictions(outdated, vms, strategy),
        vms=tuple(vms),
        changes=drain.rank(planner.blocked, frozenset(), kubevirt.owner, evicts=EVICT in _methods(strategy)),
        notes=(*planner.notes(), *_notes(cluster, vms, limits)),
        assumptions=(*_ASSUMPTIONS, *planner.assumptions(vms), *([drain.SUCCEEDS] if cluster.arrivals else [])),
        gaps=(*objects.gaps, *planner.gaps(), *_gaps(objects, starting)),
    )


def _is_running(vmi: Vmi) -> bool:
    """Whether the updater looks at a VM: it runs, and is not being deleted (getUpdateData)."""
    runs = (vmi.status.phase if vmi.status else None) == "Running"
    return runs and bool(vmi.node_name) and vmi.meta.deletion_timestamp is None


def _is_replaced(vmi: Vmi) -> bool:
    """Whether the updater replaces the launcher pod now: it is outdated, or a change of the VM waits for that."""
    return vmi.meta.label(OUTDATED) is not None or bool(waits_for_update(vmi))


def _decide(vmi: Vmi, cluster: PlannedCluster) -> VmPlan:
    """What becomes of an outdated VM (getUpdateData): it is migrated if it can be, whatever its evictionStrategy is.

    Others are evicted, which virt-api answers as it does in a drain. So with the method Evict alone a VM that can be
    migrated is evacuated.
    """
    if _is_migrated(vmi, cluster.objects.workload_updates):
        migrated = drain.migration_plan(vmi, cluster, _UPDATED)
        notes = (*migrated.notes, *drain.evacuation_notes(vmi, cluster))
        return msgspec.structs.replace(migrated, notes=notes)
    can_migrate = vmi.migratable or vmi.migrates_volumes
    evicted = drain.eviction_plan(vmi, cluster)
    if EVICT in _methods(cluster.objects.workload_updates):
        size = cluster.objects.workload_updates.batch_eviction_size
        if size is not None and size < 1:
            reason = f"KubeVirt's batchEvictionSize is {size}, so no VM is evicted"
            return drain.plan_of(vmi, report.BLOCKS, report.EVICT_NOT_CONFIGURED, reason)
        return evicted
    would = drain.migration_plan(vmi, cluster, _UPDATED) if can_migrate else evicted
    if would.outcome == report.BLOCKS:
        return would
    if can_migrate:
        reason = f"{_METHODS} does not have LiveMigrate"
        return drain.plan_of(vmi, report.BLOCKS, report.LIVE_MIGRATE_NOT_CONFIGURED, reason)
    why = would.reason or "it cannot be live-migrated"
    reason = f"{_METHODS} does not have Evict, and only an eviction would update it ({why})"
    return drain.plan_of(vmi, report.BLOCKS, report.EVICT_NOT_CONFIGURED, reason)


def _with_hotplug(vmi: Vmi, vm: VmPlan) -> VmPlan:
    waits = waits_for_update(vmi)
    if not waits:
        return vm
    note = f"a change of it ({', '.join(waits)}) takes effect only then"
    return msgspec.structs.replace(vm, notes=(*vm.notes, note))


def _methods(strategy: WorkloadUpdateStrategy) -> frozenset[str]:
    return frozenset(strategy.workload_update_methods or ())


def _is_migrated(vmi: Vmi, strategy: WorkloadUpdateStrategy) -> bool:
    return LIVE_MIGRATE in _methods(strategy) and (vmi.migratable or vmi.migrates_volumes)


def _evictions(outdated: list[Vmi], vms: list[VmPlan], strategy: WorkloadUpdateStrategy) -> Evictions:
    """The batches (sync): each takes the first VMs of a list without an order, those that were denied before, too."""
    size = _BATCH_SIZE if strategy.batch_eviction_size is None else max(0, strategy.batch_eviction_size)
    interval = _seconds(strategy.batch_eviction_interval)
    is_active = EVICT in _methods(strategy) and size > 0
    evicted = [vm for vmi, vm in zip(outdated, vms, strict=True) if is_active and not _is_migrated(vmi, strategy)]
    ending = [vm for vm in evicted if vm.outcome in (report.SHUTS_DOWN, report.MOVES)]
    waits = max(0, -(-len(ending) // size) - 1) if size else 0
    # A batch is due when the updater looks next.
    longest = None if ending and len(evicted) - len(ending) else waits * (interval + _REQUEUE_SECONDS)
    return Evictions(size, interval, len(evicted), waits * interval, longest)


def _seconds(written: str | None) -> int:
    """A duration as Go writes it, in whole seconds, rounded up; an `InputError` where it is none."""
    if written is None:
        return _BATCH_SECONDS
    seconds = parse_duration(written)
    if seconds is None:
        where = "spec.workloadUpdateStrategy.batchEvictionInterval of KubeVirt"
        raise InputError(f"{quote(written)} is not a duration", where, "use for example 1m30s")
    return max(0, math.ceil(seconds))


def _notes(cluster: PlannedCluster, vms: list[VmPlan], limits: report.Limits) -> Iterator[str]:
    if growth := qemu_growth(cluster.objects.kubevirt):
        amount = format_amount(MEMORY, growth)
        yield f"Each target pod requests {amount} of memory more than the pod that it replaces, which is counted."
    if waiting := sum(vm.code in report.UNSCHEDULED for vm in vms):
        yield (
            f"KubeVirt creates migrations for {pluralize(waiting, 'VM')} that fail again and again: each target pod"
            f" waits {report.waiting_times(vm.code for vm in vms)} for a node, and counts against the limit of"
            f" {limits.per_cluster} until then. How long all others take at most is therefore not known."
        )
    if unattached := sum(vm.code == report.NO_ATTACHMENT for vm in vms):
        yield (
            f"Migrations of {pluralize(unattached, 'VM')} with hotplugged volumes wait without end, and count against"
            f" the limit of {limits.per_cluster} until you delete them."
        )
    lost = sum(vm.code == report.VIRT_HANDLER_GONE for vm in vms)
    if lost and _methods(cluster.objects.workload_updates):
        yield (
            f"Migrations of {pluralize(lost, 'VM')} on nodes without virt-handler wait without end, and count against"
            f" the limit of {limits.per_cluster} until you delete them."
        )
    denied = sum(vm.code in (report.NOT_MIGRATABLE, report.DISRUPTION_BUDGET) for vm in vms)
    if denied and EVICT in _methods(cluster.objects.workload_updates):
        yield f"Evictions of {pluralize(denied, 'VM')} are denied, tried again, and take places in the batches."


def _gaps(objects: ClusterObjects, starting: int) -> Iterator[str]:
    if starting:
        yield f"whether VMs will be outdated that start or stop now ({starting})"
    if objects.kubevirt.release.is_newer:
        newest = release.NEWEST
        yield f"KubeVirt {objects.kubevirt.release} is newer than {newest}, the newest one whose rules were tried"
    before, after = objects.kubevirt.launchers_of or objects.kubevirt.release, objects.kubevirt.release
    if after.version < before.version:
        # KubeVirt's own tests (tests/operator) only update, from the release before; kubevirt#12002 has the words.
        what = f"whether VMs outlast the downgrade from KubeVirt {before} to {after}"
        yield f"{what}, which KubeVirt does not officially support"
