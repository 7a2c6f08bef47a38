"""Are the declared schedulers alive? Asked of the guard's own judgement, over fewer seconds."""

from __future__ import annotations

import asyncio
from typing import Final

from webhook import names
from webhook.cluster.scheduler_health.lease import DEFAULT_LEASE_SECONDS
from webhook.cluster.scheduler_health.monitor import POLL_SECONDS, GuardState
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
# As long as a Lease takes to run out; one that is renewed shows it sooner.
_PATIENCE: Final = DEFAULT_LEASE_SECONDS + POLL_SECONDS
# VMIs that are asked whether they know the pods that wait: enough to find two namespaces with such pods.
_CHECKS: Final = 100
_VERDICTS: Final[dict[str, Verdict]] = {"alive": "ok", "dead": "failure", "unknown": "unknown"}


async def check(installation: Installation) -> list[Finding]:
    """Every declared scheduler: its life, and its profile where that can be seen."""
    declared = installation.settings.scheduling.schedulers
    if not declared and installation.settings.scheduling.spread != names.OFF:
        what = "no scheduler is declared; topology spread constraints need none"
        return [Finding(CHECK, "settings", "ok", what)]
    if not declared:
        todo = "declare one under schedulers; until then the scheduling policy does nothing"
        return [Finding(CHECK, "settings", "warning", "no scheduler is declared", todo)]
    findings: list[Finding] = []
    wanted = installation.settings.scheduling.scheduler_name
    if wanted not in declared:
        what = f"the scheduler {wanted}, which namespaces get that name none, is not declared"
        findings.append(Finding(CHECK, "settings", "warning", what, f"declare {wanted}, or set schedulerName"))
    for found in await asyncio.gather(*(_life(installation, one) for one in declared.values())):
        findings += found
    for one in declared.values():
        findings += await profiles.check(installation, one)
    return findings


async def _life(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    subject = f"scheduler {scheduler.name}"
    if scheduler.guard.kind == "off":
        what = "its guard is off: VMs are handed to it dead or alive"
        return [Finding(CHECK, subject, "ok", what)]
    pods = await installation.reader.all(
        PODS, query={"fieldSelector": f"spec.schedulerName={scheduler.name},status.phase=Pending"}
    )
    troubles, health = await _health(installation, scheduler, pods)
    if troubles and health.state != "dead":
        return [unreadable(CHECK, subject, trouble) for trouble in troubles]
    todo = "start it; until it runs, VMs get the default scheduler" if health.state == "dead" else ""
    if health.state == "unknown":
        todo = "run doctor again; nothing is injected while this is not known, unless assumeAlive is set"
    # Of the age the guard knows only what it saw itself, which are the seconds since we began.
    fresh = health.state == "alive" and scheduler.guard.kind == "lease"
    why = f"Lease {scheduler.guard.namespace}/{scheduler.guard.name} has not run out" if fresh else health.why
    return [Finding(CHECK, subject, _VERDICTS[health.state], f"{health.state}: {why}", todo)]


async def _health(
    installation: Installation, scheduler: SchedulerSettings, pods: tuple[PendingPod, ...] | Unavailable
) -> tuple[list[Unavailable], SchedulerHealth]:
    """What kept us from looking, and the guard's judgement.

    Waits where a Lease is old, until it has been renewed or has run out.
    """
    clock, guard = installation.clock, scheduler.guard
    namespaces = await installation.namespaces()
    troubles = [found for found in (pods, namespaces) if isinstance(found, Unavailable)]
    opted_in = {
        namespace.meta.name
        for namespace in (() if isinstance(namespaces, Unavailable) else namespaces)
        if installation.mode(namespace, names.SCHEDULING) == names.ENFORCE
    }
    state = GuardState(guard, opted_in.__contains__)
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
            troubles.append(vmi)
            break
        state.pods.record_check(waiting.uid, listed=is_listed(waiting, vmi))
    state.observe_watch(synced=not troubles, problem=None, forbidden=False, staleness=0.0)
    while guard.kind == "lease":
        lease = await fetch(installation.reader.api, LEASES, guard.namespace, guard.name, SECONDS)
        state.observe_lease(lease, clock.now(), clock.wall())
        if isinstance(lease, Unavailable):
            troubles.append(lease)
        if troubles or state.health(clock.now()).state != "unknown" or clock.now() - begin > _PATIENCE:
            break
        await clock.sleep(POLL_SECONDS)
    return troubles, state.health(clock.now())
