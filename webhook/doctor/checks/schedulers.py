"""Runs the scheduler health check of the server once, for each declared scheduler."""

from __future__ import annotations

import asyncio
from typing import Final

from webhook import names
from webhook.cluster.scheduler_health.lease import DEFAULT_LEASE_SECONDS
from webhook.cluster.scheduler_health.monitor import POLL_SECONDS, HealthEvidence
from webhook.cluster.scheduler_health.waiting_pods import Waiting, is_listed
from webhook.doctor.checks import profiles
from webhook.doctor.support.finding import Finding, Verdict, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.reader import SECONDS
from webhook.errors import Unavailable
from webhook.facts import SchedulerHealth
from webhook.k8s.client.api import fetch
from webhook.k8s.client.resources import LEASES, PODS
from webhook.k8s.pods import PendingPod
from webhook.k8s.timestamps import unix_time
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.settings.snapshot import SchedulerSettings

CHECK: Final = "schedulers"
# The time in which a Lease expires; a renewal shows sooner.
_PATIENCE: Final = DEFAULT_LEASE_SECONDS + POLL_SECONDS
# VMIs that are read to confirm waiting pods: enough to find two namespaces with such pods.
_CHECKS: Final = 100
_VERDICTS: Final[dict[str, Verdict]] = {"available": "ok", "unavailable": "failure", "unknown": "unknown"}
_REMEDIES: Final = {
    "available": "",
    "unavailable": "start it; while it is unavailable, VMs use default-scheduler",
    "unknown": "run doctor again; while this is unknown, schedulerName is not set, unless assumeAlive is true",
}


async def check(installation: Installation) -> list[Finding]:
    """Check every declared scheduler: its availability, and its profile where that can be read."""
    declared = installation.settings.scheduling.schedulers
    if not declared and installation.settings.scheduling.spread != names.OFF:
        what = "declare no scheduler; topology spread constraints need none"
        return [Finding(CHECK, "none-needed", "settings", "ok", what)]
    if not declared:
        what = "declare no scheduler, so the scheduling policy has no effect"
        return [Finding(CHECK, "none-declared", "settings", "warning", what, "declare a scheduler under schedulers")]
    findings: list[Finding] = []
    wanted = installation.settings.scheduling.scheduler_name
    if wanted not in declared:
        what = f'set schedulerName to "{wanted}", which is not declared under schedulers'
        todo = f'declare "{wanted}", or change schedulerName'
        findings.append(Finding(CHECK, "undeclared", "settings", "warning", what, todo))
    for health_findings in await asyncio.gather(
        *(_check_health(installation, scheduler) for scheduler in declared.values())
    ):
        findings += health_findings
    for scheduler in declared.values():
        findings += await profiles.check(installation, scheduler)
    return findings


async def _check_health(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    subject = f"scheduler {scheduler.name}"
    if scheduler.guard.kind == "off":
        what = "its guard is off: VMs are assigned to it whether it is available or not"
        return [Finding(CHECK, "guard-off", subject, "ok", what)]
    pods = await installation.reader.all(
        PODS, query={"fieldSelector": f"spec.schedulerName={scheduler.name},status.phase=Pending"}
    )
    failures, health = await _evaluate_health(installation, scheduler, pods)
    if failures and health.state != "unavailable":
        return [unreadable(CHECK, subject, failure) for failure in failures]
    # The health check counts a Lease's age from when it first saw it, which is when this check began.
    is_renewed = health.state == "available" and scheduler.guard.kind == "lease"
    why = f"Lease {scheduler.guard.namespace}/{scheduler.guard.name} has not expired" if is_renewed else health.why
    code = health.state
    return [Finding(CHECK, code, subject, _VERDICTS[health.state], f"{code}: {why}", _REMEDIES[health.state])]


async def _evaluate_health(
    installation: Installation, scheduler: SchedulerSettings, pods: tuple[PendingPod, ...] | Unavailable
) -> tuple[list[Unavailable], SchedulerHealth]:
    """What could not be read, and the result of the server's health check.

    Where a Lease is old, this waits until it is renewed or expires.
    """
    clock, guard = installation.clock, scheduler.guard
    namespaces = await installation.namespaces()
    failures = [answer for answer in (pods, namespaces) if isinstance(answer, Unavailable)]
    opted_in = {
        namespace.meta.name
        for namespace in (() if isinstance(namespaces, Unavailable) else namespaces)
        if installation.mode(namespace, names.SCHEDULING) == names.ENFORCE
    }
    state = HealthEvidence(guard, opted_in.__contains__)
    begin = clock.now()
    for pod in () if isinstance(pods, Unavailable) else pods:
        created = unix_time(pod.meta.creation_timestamp)
        if pod.is_unnoticed:
            state.pods.observe_waiting(
                Waiting.of(pod, begin if created is None else begin - max(0.0, clock.wall() - created))
            )
    for waiting in state.pods.unchecked_pods(begin, _CHECKS):
        vmi = await installation.reader.get(ACTIVE_VMIS, waiting.namespace, waiting.vmi)
        if isinstance(vmi, Unavailable):
            failures.append(vmi)
            break
        state.pods.record_check(waiting.uid, listed=is_listed(waiting, vmi))
    state.observe_watch(synced=not failures, problem=None, forbidden=False, staleness=0.0)
    while guard.kind == "lease":
        lease = await fetch(installation.reader.api, LEASES, guard.namespace, guard.name, SECONDS)
        state.observe_lease(lease, clock.now(), clock.wall())
        if isinstance(lease, Unavailable):
            failures.append(lease)
        if failures or state.health(clock.now()).state != "unknown" or clock.now() - begin > _PATIENCE:
            break
        await clock.sleep(POLL_SECONDS)
    return failures, state.health(clock.now())
