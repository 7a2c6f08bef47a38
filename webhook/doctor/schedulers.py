"""The schedulers of the settings: their health, why one of them places no pod, and the mistakes in their profiles.

The mistakes are those of ``kubevirt-webhook scheduler lint``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from webhook import names
from webhook.cluster.access import is_allowed
from webhook.cluster.reader import SECONDS
from webhook.cluster.scheduler_health import DEFAULT_LEASE_SECONDS, POLL_SECONDS, HealthEvidence, Waiting, is_listed
from webhook.doctor.permissions import CLUSTER_ROLES, Role
from webhook.doctor.report import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    Deployment,
    Finding,
    Installation,
    Verdict,
    abbreviate,
    title,
    unreadable,
)
from webhook.errors import InputError, Unavailable
from webhook.facts import AccessKey, SchedulerHealth
from webhook.install.schedulers.lint import DEFAULT_LEASE, LintTarget, Problem, is_configuration, lint, profiles_of
from webhook.install.schedulers.render import NAME, UPSTREAM_ROLES, Permission, granted, needed
from webhook.k8s.client.api import ApiConnectionError, fetch
from webhook.k8s.resources import LEASES, PENDING_PODS, PODS
from webhook.k8s.types.core import PendingPod
from webhook.k8s.types.meta import unix_time
from webhook.k8s.yaml_documents import Document, parse_documents
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.settings.model import SchedulerSettings
from webhook.text import pluralize, shorten_middle

_CHECK: Final = "schedulers"
# The time in which a Lease expires; a renewal shows sooner.
_PATIENCE: Final = DEFAULT_LEASE_SECONDS + POLL_SECONDS
# VMIs that are read to confirm waiting pods: enough to find two namespaces with such pods.
_MOST_VMIS: Final = 100
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


async def check_schedulers(installation: Installation) -> list[Finding]:
    """Check every declared scheduler: its availability, and its profile where that can be read."""
    declared = installation.settings.scheduling.schedulers
    if not declared and installation.settings.scheduling.spread != names.OFF:
        what = "declare no scheduler; topology spread constraints need none"
        return [Finding(_CHECK, "none-needed", "settings", "ok", what)]
    if not declared:
        what = "declare no scheduler, so the scheduling policy has no effect"
        return [Finding(_CHECK, "none-declared", "settings", "warning", what, "declare a scheduler under schedulers")]
    findings: list[Finding] = []
    name = installation.settings.scheduling.scheduler_name
    if name not in declared:
        what = f'set schedulerName to "{name}", which is not declared under schedulers'
        todo = f'declare "{name}", or change schedulerName'
        findings.append(Finding(_CHECK, "undeclared", "settings", "warning", what, todo))
    for health_findings in await asyncio.gather(
        *(_check_health(installation, scheduler) for scheduler in declared.values())
    ):
        findings += health_findings
    for scheduler in declared.values():
        findings += await check_profile(installation, scheduler)
    return findings + await _check_permissions(installation)


async def _check_health(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    subject = f"scheduler {scheduler.name}"
    if scheduler.health_check.kind == "off":
        what = "its health check is off: VMs are assigned to it whether it is available or not"
        return [Finding(_CHECK, "health-check-off", subject, "ok", what)]
    pods = await installation.reader.all(
        PENDING_PODS, query={"fieldSelector": f"spec.schedulerName={scheduler.name},status.phase=Pending"}
    )
    failures, health = await _evaluate_health(installation, scheduler, pods)
    if failures and health.state != "unavailable":
        return [unreadable(_CHECK, subject, failure) for failure in failures]
    # The health check counts a Lease's age from when it first saw it, which is when this check began.
    is_renewed = health.state == "available" and scheduler.health_check.kind == "lease"
    why = (
        f"Lease {scheduler.health_check.namespace}/{scheduler.health_check.name} has not expired"
        if is_renewed
        else health.why
    )
    code = health.state
    if code == "unavailable" and (unsynced := await _describe_unsynced(installation, scheduler)):
        what = f"it runs, but has not synced, so it places no pod: {unsynced}"
        todo = (
            'grant what its log says is missing; "kubevirt-webhook install --with scheduler" does so for the second one'
        )
        return [Finding(_CHECK, "not-synced", subject, "failure", what, todo)]
    return [Finding(_CHECK, code, subject, _VERDICTS[health.state], f"{code}: {why}", _REMEDIES[health.state])]


async def _evaluate_health(
    installation: Installation, scheduler: SchedulerSettings, pods: tuple[PendingPod, ...] | Unavailable
) -> tuple[list[Unavailable], SchedulerHealth]:
    """What could not be read, and the result of the server's health check.

    Where a Lease is old, this waits until it is renewed or expires.
    """
    clock, health_check = installation.clock, scheduler.health_check
    namespaces = await installation.namespaces()
    failures = [answer for answer in (pods, namespaces) if isinstance(answer, Unavailable)]
    opted_in = {
        namespace.meta.name
        for namespace in (() if isinstance(namespaces, Unavailable) else namespaces)
        if installation.mode(namespace, names.SCHEDULING) == names.ENFORCE
    }
    state = HealthEvidence(health_check, opted_in.__contains__)
    begin = clock.now()
    for pod in () if isinstance(pods, Unavailable) else pods:
        created = unix_time(pod.meta.creation_timestamp)
        if pod.is_unnoticed:
            state.pods.observe_waiting(
                Waiting.of(pod, begin if created is None else begin - max(0.0, clock.wall() - created))
            )
    for waiting in state.pods.unchecked_pods(begin, _MOST_VMIS):
        vmi = await installation.reader.get(ACTIVE_VMIS, waiting.namespace, waiting.vmi)
        if isinstance(vmi, Unavailable):
            failures.append(vmi)
            break
        state.pods.record_check(waiting.uid, listed=is_listed(waiting, vmi))
    state.observe_watch(synced=not failures, problem=None, forbidden=False, staleness=0.0)
    while health_check.kind == "lease":
        lease = await fetch(installation.reader.api, LEASES, health_check.namespace, health_check.name, SECONDS)
        state.lease.observe(lease, clock.now(), clock.wall())
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
    health_check = scheduler.health_check
    if health_check.kind != "lease":
        return ""
    pods = await installation.reader.all(PODS, health_check.namespace)
    for pod in () if isinstance(pods, Unavailable) else pods:
        if pod.status.phase != "Running" or not (pod.meta.name or "").startswith(health_check.name):
            continue
        path = f"/api/v1/namespaces/{health_check.namespace}/pods/{pod.meta.name}/log"
        try:
            status, body = await installation.reader.api.request("GET", path, _LOG, seconds=SECONDS)
        except ApiConnectionError:
            continue
        if status == 200 and (lines := _UNSYNCED.findall(body.decode(errors="replace"))):
            message = shorten_middle(" ".join(lines[-1].split()), _MESSAGE_CHARACTERS)
            return f"the log of Pod {health_check.namespace}/{pod.meta.name} says: {message}"
    return ""


async def _check_permissions(installation: Installation) -> list[Finding]:
    """Whether the second scheduler may do what the cluster's version of kube-scheduler does."""
    deployment = await installation.reader.get(DEPLOYMENTS, NAME, NAME)
    if not isinstance(deployment, Deployment) or deployment.spec.template.spec.service_account_name != NAME:
        # A scheduler of this name that was installed in another way has an account of its own.
        return []
    subject = f"ServiceAccount {NAME}/{NAME}"
    roles = [await installation.reader.get(CLUSTER_ROLES, "", name) for name in (*UPSTREAM_ROLES, NAME)]
    for role in roles:
        if isinstance(role, Unavailable):
            return [unreadable(_CHECK, subject, role)]
    *upstream, own = (msgspec.to_builtins(role.rules or []) if isinstance(role, Role) else [] for role in roles)
    expected = needed(rule for rules in upstream for rule in rules)
    missing: list[Permission] = []
    for permission in sorted(expected - granted(own)):
        # Another binding may grant it.
        answer = await is_allowed(installation.reader.api, _access_key(permission), SECONDS)
        if isinstance(answer, Unavailable):
            return [unreadable(_CHECK, subject, answer)]
        missing += [] if answer else [permission]
    if not missing:
        what = f"has the {pluralize(len(expected), 'permission')} that kube-scheduler of this version needs"
        return [Finding(_CHECK, "scheduler-permissions-granted", subject, "ok", what)] if expected else []
    what = f"lacks {pluralize(len(missing), 'permission')} that kube-scheduler of this cluster's version needs: "
    what += abbreviate([*map(str, missing)])
    todo = 'run "kubevirt-webhook install --with scheduler", or apply manifests/scheduler/second of a newer release'
    return [Finding(_CHECK, "scheduler-permissions-missing", subject, "failure", what, todo)]


def _access_key(permission: Permission) -> AccessKey:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAME}", "system:authenticated")
    account = f"system:serviceaccount:{NAME}:{NAME}"
    return AccessKey(account, groups, "", (), permission.verb, permission.group, permission.resource, "", "")


async def check_profile(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    """Look for the scheduler's profile among the ConfigMaps that Deployments beside its Lease mount."""
    subject, beside = f"profile {scheduler.name}", scheduler.health_check.namespace
    look = "check the configuration of the scheduler with `kubevirt-webhook scheduler lint`"
    if not beside:
        what = "not checked: the health check in the settings names no Lease, so the scheduler's namespace is unknown"
        return [Finding(_CHECK, "profile-not-located", subject, "unknown", what, look)]
    deployments = await installation.reader.all(DEPLOYMENTS, beside)
    if isinstance(deployments, Unavailable):
        return [unreadable(_CHECK, subject, deployments)]
    for deployment in deployments:
        for volume in deployment.spec.template.spec.volumes or ():
            if volume.config_map is None or not volume.config_map.name:
                continue
            mounted = await installation.reader.get(CONFIG_MAPS, beside, volume.config_map.name)
            if isinstance(mounted, Unavailable):
                return [unreadable(_CHECK, subject, mounted)]
            where = title(CONFIG_MAPS, mounted.meta) if mounted else ""
            for document in _configurations((mounted.data or {}).values() if mounted else (), where):
                if any(profile.get("schedulerName") == scheduler.name for _, profile in profiles_of(document.value)):
                    return _check_configuration(subject, where, document, scheduler)
    what = f"not checked: no Deployment in namespace {beside} mounts a ConfigMap that contains it"
    return [Finding(_CHECK, "profile-not-found", subject, "unknown", what, look)]


def _configurations(texts: Iterable[str], where: str) -> Iterator[Document]:
    """The configurations among texts; a text that is not YAML is skipped."""
    for text in texts:
        try:
            yield from filter(is_configuration, list(parse_documents(text, where)))
        except InputError:
            continue


def _check_configuration(subject: str, where: str, document: Document, scheduler: SchedulerSettings) -> list[Finding]:
    is_the_clusters = (scheduler.health_check.namespace, scheduler.health_check.name) == DEFAULT_LEASE
    problems = lint(document, LintTarget(scheduler.name, is_the_clusters, plugins=None))
    what = f"{where} has no mistake that kubevirt-webhook knows"
    return [_finding(subject, where, problem) for problem in problems] or [
        Finding(_CHECK, "profile-correct", subject, "ok", what)
    ]


def _finding(subject: str, where: str, problem: Problem) -> Finding:
    verdict: Verdict = "failure" if problem.severity == "error" else "warning"
    what = f"{where}: {problem.text}; {problem.consequence}"
    return Finding(_CHECK, problem.code, subject, verdict, what, problem.remedy)
