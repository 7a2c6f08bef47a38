"""Launcher pods at CREATE: whether a VM may start."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from webhook.admission import wire
from webhook.admission.decision import Decision, Reason, allow, deny
from webhook.admission.reasons import common
from webhook.admission.step_budget import spend
from webhook.admission.wire import Request
from webhook.facts import Facts, HeadroomKey, ListKey, Unreadable, VerdictKey
from webhook.kubevirt.launcher import vmi_owner
from webhook.placement.headroom.headroom import AskedStart, Headroom
from webhook.placement.headroom.pods import PlacedPod, read_pod
from webhook.placement.headroom.verdicts import Verdict
from webhook.placement.machines import JOB_UID
from webhook.placement.quota import QUOTAS, PodUsage, ResourceQuota, review_quotas
from webhook.placement.running_pods import RunningPod
from webhook.policies.common.required_facts import read, require
from webhook.policies.headroom import reasons
from webhook.policies.headroom.settings import HeadroomSettings

_NOT_EVALUATED: Final = "the VM's start was not evaluated"


async def evaluate_start(
    pod: RunningPod, request: Request[RunningPod], facts: Facts, settings: HeadroomSettings
) -> Decision:
    """Deny a VM's start that leaves too little room for what any one node carries, or for a migration."""
    if other := _no_start(pod, request.operation, settings):
        return allow(other)
    namespace = request.namespace or ""
    start = placed_in(pod, namespace)
    if start is None:
        return allow(common.pod_completed(pod.phase))
    try:
        quotas: tuple[ResourceQuota, ...] = ()
        if settings.migration_quota:
            quotas = await read(facts, ListKey(QUOTAS, namespace), f"the ResourceQuotas of {namespace}") or ()
        # Last, since all that it says may change while something else is read.
        headroom = await read(facts, HeadroomKey(), "the cluster's headroom")
    except Unreadable as error:
        return allow(common.lookup_failed(_NOT_EVALUATED, error.why), warn=True)
    if headroom is None:
        return allow(common.lookup_failed(_NOT_EVALUATED, "the cluster's headroom is not known"), warn=True)
    if headroom.has_run(start):
        return allow(reasons.restarts(namespace, start.vm))
    if problem := _quota_problem(start, quotas, headroom, is_named=facts.verified):
        return problem
    if not settings.node_loss:
        return allow(reasons.kept)
    verdict = headroom.peek(start)
    if verdict is not None:
        return _said(verdict, start, is_named=facts.verified)
    return await _waited_for(AskedStart(start, is_dry_run=wire.is_dry_run(request)), quotas, headroom, facts)


async def _waited_for(
    asked: AskedStart, quotas: tuple[ResourceQuota, ...], headroom: Headroom, facts: Facts
) -> Decision:
    """The decision on a start whose losses have to be simulated, while others start."""
    start, namespace = asked.pod, asked.pod.name[0]
    try:
        verdict = await read(facts, VerdictKey(headroom, asked), "what the start does")
        if quotas:
            # Of those that were admitted meanwhile, the quotas now count whose pods are there.
            now = await facts.again(ListKey(QUOTAS, namespace))
            quotas = require(now, f"the ResourceQuotas of {namespace}") or ()
    except Unreadable as error:
        return allow(common.lookup_failed(_NOT_EVALUATED, error.why), warn=True)
    if problem := _quota_problem(start, quotas, headroom, is_named=facts.verified):
        headroom.release(start)
        return problem
    return _said(verdict or Verdict("not-proven"), start, is_named=facts.verified)


def _no_start(pod: RunningPod, operation: str, settings: HeadroomSettings) -> Reason | None:
    """Why a request is not evaluated; None: a VM is to start."""
    if operation != "CREATE":
        return common.other_operation(operation)
    owner = vmi_owner(pod)
    if isinstance(owner, Reason):
        return owner
    if pod.meta.label(JOB_UID) is not None:
        return reasons.migrates
    if pod.node_name:
        return common.pod_bound(pod.node_name)
    if not settings.enabled:
        return common.disabled("headroom.enabled")
    return None if pod.spec and pod.spec.containers else reasons.not_rendered


def placed_in(pod: RunningPod, namespace: str) -> PlacedPod | None:
    """A pod that is about to be created in a namespace, as headroom counts it; None: it has ended."""
    return read_pod(replace(pod, metadata=replace(pod.meta, namespace=namespace)))


def _quota_problem(
    start: PlacedPod, quotas: tuple[ResourceQuota, ...], headroom: Headroom, *, is_named: bool
) -> Decision | None:
    """The denial where a VM of the namespace could not migrate beside the new one, and could before; None: none.

    It is about the largest that could not, before or not, by which its owner sees how much room is enough for all.
    """
    if not quotas:
        return None
    namespace = start.name[0]
    starting = headroom.reserved_usages(namespace, start.of_vm)
    beside = [start.usage, *starting]
    seen, largest = set(), None
    usages = [*headroom.usages(namespace), (start.of_vm, start.usage)]
    for vm, usage in sorted(usages, key=lambda each: _size(each[1]), reverse=True):
        if usage.key in seen and vm != start.of_vm:
            continue
        seen.add(usage.key)
        spend(len(quotas) * len(beside), "VMs of the namespace")
        if not (why := review_quotas(quotas, usage, beside=beside).problem):
            continue
        largest = largest or (vm, why)
        if vm == start.of_vm or not review_quotas(quotas, usage, beside=starting).problem:
            named, why = largest
            whose = f"VM {named[0]}/{named[1]}" if is_named or named == start.of_vm else "another VM of the namespace"
            return deny(reasons.no_migration(whose, why), 403)
    return None


def _size(usage: PodUsage) -> tuple[int, int]:
    """What VMs are compared by: the memory that a pod requests, then its CPUs."""
    return usage.amounts.get("requests.memory", 0), usage.amounts.get("requests.cpu", 0)


def _said(verdict: Verdict, start: PlacedPod, *, is_named: bool) -> Decision:
    """The decision by what was found out; whoever may be no API server is not told names of nodes and VMs."""
    namespace, fix = start.name[0], verdict.fix.named if is_named else verdict.fix.plain
    match verdict.kind:
        case "broken":
            reason = reasons.no_place_unnamed(len(verdict.vms), fix)
            if is_named and verdict.shortage:
                reason = reasons.no_place_together(verdict.lost, verdict.shortage, fix)
            elif is_named:
                reason = reasons.no_place(verdict.node, verdict.lost, verdict.vms, namespace, fix)
            found = {"node": verdict.node, "lost": verdict.lost, "vms": ["/".join(each) for each in verdict.vms]}
            more = {"fix": verdict.fix.named, "shortage": verdict.shortage}
            return replace(deny(reason, 403), details={**found, **more})
        case "no-room":
            vm, why = f"{namespace}/{start.vm}", verdict.why.named if is_named else verdict.why.plain
            denied = deny(reasons.no_node(vm, why, fix) if why else reasons.no_room(vm, fix), 403)
            return replace(denied, details={"fix": verdict.fix.named, "why": verdict.why.named})
        case "not-proven":
            return allow(reasons.not_proven)
    return replace(allow(reasons.kept), details={"shown-by": verdict.how})
