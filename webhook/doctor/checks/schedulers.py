"""Runs the scheduler health check of the server once, and finds why a declared scheduler places no pod."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import msgspec

from webhook import names
from webhook.cluster.access import is_allowed
from webhook.cluster.reader import SECONDS
from webhook.cluster.scheduler_health import DEFAULT_LEASE_SECONDS, POLL_SECONDS, HealthEvidence, Waiting, is_listed
from webhook.doctor.checks import profiles
from webhook.doctor.support.finding import Finding, Verdict, abbreviate, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import CLUSTER_ROLES, DEPLOYMENTS, Deployment, Role
from webhook.errors import Unavailable
from webhook.facts import AccessKey, SchedulerHealth
from webhook.install.schedulers.permissions import NAME, UPSTREAM_ROLES, Permission, granted, needed
from webhook.k8s.client.api import ApiConnectionError, fetch
from webhook.k8s.client.resources import LEASES, PENDING_PODS, PODS
from webhook.k8s.pods import PendingPod
from webhook.k8s.timestamps import unix_time
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.settings.snapshot import SchedulerSettings
from webhook.text import pluralize, shorten_middle

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


# What a scheduler writes while it waits for a list that it does not get. Source: client-go's reflector.
_UNSYNCED: Final = re.compile(
    r'.*([Ff]ailed to (?:list|watch).*?|timed out waiting for .*?)(?:" reflector=.*)?$', re.MULTILINE
)
_LOG: Final = {"tailLines": "200", "limitBytes": "65536"}
_MESSAGE_CHARACTERS: Final = 300


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
    return findings + await _check_permissions(installation)


async def _check_health(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    subject = f"scheduler {scheduler.name}"
    if scheduler.guard.kind == "off":
        what = "its guard is off: VMs are assigned to it whether it is available or not"
        return [Finding(CHECK, "guard-off", subject, "ok", what)]
    pods = await installation.reader.all(
        PENDING_PODS, query={"fieldSelector": f"spec.schedulerName={scheduler.name},status.phase=Pending"}
    )
    failures, health = await _evaluate_health(installation, scheduler, pods)
    if failures and health.state != "unavailable":
        return [unreadable(CHECK, subject, failure) for failure in failures]
    # The health check counts a Lease's age from when it first saw it, which is when this check began.
    is_renewed = health.state == "available" and scheduler.guard.kind == "lease"
    why = f"Lease {scheduler.guard.namespace}/{scheduler.guard.name} has not expired" if is_renewed else health.why
    code = health.state
    if code == "unavailable" and (unsynced := await _describe_unsynced(installation, scheduler)):
        what = f"it runs, but has not synced, so it places no pod: {unsynced}"
        todo = (
            'grant what its log says is missing; "kubevirt-webhook install --with scheduler" does so for the second one'
        )
        return [Finding(CHECK, "not-synced", subject, "failure", what, todo)]
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


async def _describe_unsynced(installation: Installation, scheduler: SchedulerSettings) -> str:
    """What the log of a running pod of a scheduler without a Lease waits for; empty: no such pod, or nothing of it.

    The pod is healthy for its kubelet: only its log says that it waits.
    """
    guard = scheduler.guard
    if guard.kind != "lease":
        return ""
    pods = await installation.reader.all(PODS, guard.namespace)
    for pod in () if isinstance(pods, Unavailable) else pods:
        if pod.status.phase != "Running" or not (pod.meta.name or "").startswith(guard.name):
            continue
        path = f"/api/v1/namespaces/{guard.namespace}/pods/{pod.meta.name}/log"
        try:
            status, body = await installation.reader.api.request("GET", path, _LOG, seconds=SECONDS)
        except ApiConnectionError:
            continue
        if status == 200 and (lines := _UNSYNCED.findall(body.decode(errors="replace"))):
            said = shorten_middle(" ".join(lines[-1].split()), _MESSAGE_CHARACTERS)
            return f"the log of Pod {guard.namespace}/{pod.meta.name} says: {said}"
    return ""


async def _check_permissions(installation: Installation) -> list[Finding]:
    """Whether the second scheduler may do what the cluster's version of kube-scheduler does."""
    deployment = await installation.reader.get(DEPLOYMENTS, NAME, NAME)
    if not isinstance(deployment, Deployment):
        return []
    subject = f"ServiceAccount {NAME}/{NAME}"
    roles = [await installation.reader.get(CLUSTER_ROLES, "", name) for name in (*UPSTREAM_ROLES, NAME)]
    for role in roles:
        if isinstance(role, Unavailable):
            return [unreadable(CHECK, subject, role)]
    *upstream, own = (msgspec.to_builtins(role.rules or []) if isinstance(role, Role) else [] for role in roles)
    expected = needed(rule for rules in upstream for rule in rules)
    missing: list[Permission] = []
    for permission in sorted(expected - granted(own)):
        # Another binding may grant it.
        answer = await is_allowed(installation.reader.api, _key(permission), SECONDS)
        if isinstance(answer, Unavailable):
            return [unreadable(CHECK, subject, answer)]
        missing += [] if answer else [permission]
    if not missing:
        what = f"has the {pluralize(len(expected), 'permission')} that kube-scheduler of this version needs"
        return [Finding(CHECK, "scheduler-permissions-granted", subject, "ok", what)] if expected else []
    what = f"lacks {pluralize(len(missing), 'permission')} that kube-scheduler of this cluster's version needs: "
    what += abbreviate([*map(str, missing)])
    todo = 'run "kubevirt-webhook install --with scheduler", or apply manifests/scheduler/second of a newer release'
    return [Finding(CHECK, "scheduler-permissions-missing", subject, "failure", what, todo)]


def _key(permission: Permission) -> AccessKey:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAME}", "system:authenticated")
    account = f"system:serviceaccount:{NAME}:{NAME}"
    return AccessKey(account, groups, "", (), permission.verb, permission.group, permission.resource, "", "")
