"""The schedulers of the settings: their health, why one of them places no pod, and the mistakes in their profiles.

The mistakes are those of ``kubevirt-webhook scheduler lint``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Final

import msgspec

from webhook import names
from webhook.cluster.reader import SECONDS
from webhook.cluster.scheduler_health import HealthEvidence, LeaseState, Waiting, watch_lease
from webhook.doctor.installation import DEPLOYMENTS, Deployment, Installation
from webhook.doctor.permissions import CLUSTER_ROLES, Role, find_lacking, service_account
from webhook.errors import FileGap, InputError, Unavailable
from webhook.facts import AccessKey, SchedulerHealth
from webhook.findings import Finding, check, failure, ok, readable, unknown, unreadable, warning
from webhook.install.schedulers.lint import DEFAULT_LEASE, LintTarget, lint
from webhook.install.schedulers.render import NAME, UPSTREAM_ROLES, granted, needed
from webhook.k8s.client.api import ApiConnectionError, Requests, Transport
from webhook.k8s.client.freshness import Fresh, Unknown
from webhook.k8s.documents import Document
from webhook.k8s.resources import CONFIG_MAPS, LEASES, NAMESPACES, PENDING_PODS, PODS
from webhook.k8s.types.meta import unix_time
from webhook.k8s.yaml_documents import parse_documents
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.placement.profiles import is_configuration, profiles_of
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.settings.schedulers import SchedulerSettings
from webhook.text import abbreviate, pluralize, shorten_middle

_CHECK: Final = "schedulers"
# For how long an old Lease is watched at most: one of 240 s, which its renewTime calls expired, is decided by then.
_PATIENCE: Final = 60.0
# VMIs that are read to confirm waiting pods: enough to find two namespaces with such pods.
_MOST_VMIS: Final = 100
_RETRY: Final = "run doctor again; while this is unknown, schedulerName is not set, unless assumeAlive is true"
# The built-in settings declare one, which not every cluster wants.
_START: Final = (
    'start it, install one with "kubevirt-webhook install --with scheduler", or write schedulers: {} for none'
)
# By the state of a scheduler: its finding, and what to do.
_FINDINGS: Final = {
    "available": (ok, ""),
    "unavailable": (failure, f"{_START}; while it is unavailable, VMs use default-scheduler"),
    "unknown": (unknown, _RETRY),
}
# What a scheduler writes while it waits for a list that it does not get. Source: client-go's reflector.
_UNSYNCED: Final = re.compile(
    r'.*([Ff]ailed to (?:list|watch).*?|timed out waiting for .*?)(?:" reflector=.*)?$', re.MULTILINE
)
_MESSAGE_CHARACTERS: Final = 300


@check(_CHECK)
async def check_schedulers(installation: Installation) -> list[Finding]:
    """Check every declared scheduler: its availability, and its profile where that can be read."""
    scheduling = installation.settings.of(SchedulingSettings)
    declared, name = scheduling.schedulers, scheduling.scheduler_name
    if not declared and (scheduling.spread != names.OFF or await _spreads(installation)):
        return [ok("none-needed", "settings", "declare no scheduler; topology spread constraints need none")]
    if not declared:
        what = "declare no scheduler, so the policy scheduling sets none"
        if not await _is_wanted(installation):
            return [ok("none-needed", "settings", f"{what}; no namespace has opted in to it")]
        todo = "declare a scheduler under schedulers, or set scheduling.spread for topology spread constraints"
        return [warning("none-declared", "settings", f"{what}, and no topology spread constraints", todo)]
    findings: list[Finding] = []
    if name not in declared:
        what = f'set schedulerName to "{name}", which is not declared under schedulers'
        findings.append(warning("undeclared", "settings", what, f'declare "{name}", or change schedulerName'))
    health = await asyncio.gather(*(_check_health(installation, each) for each in declared.values()))
    profiles = [await check_profile(installation, each) for each in declared.values()]
    return [*findings, *chain(*health, *profiles), *await _check_permissions(installation)]


@check(_CHECK)
async def _check_health(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    subject, health_check = f"scheduler {scheduler.name}", scheduler.watched
    if health_check.kind == "off":
        what = "its health check is off: VMs are assigned to it whether it is available or not"
        return [ok("health-check-off", subject, what)]
    api = installation.reader.api
    if isinstance(api, Unavailable):
        return [await _check_lease(installation, scheduler, api)]
    failures, health = await _evaluate_health(installation, api, scheduler)
    if failures and health.state != "unavailable":
        return [unreadable(subject, each) for each in failures]
    if health.state == "unavailable" and (unsynced := await _describe_unsynced(installation, api, scheduler)):
        what = f"it runs, but has not synced, so it places no pod: {unsynced}"
        command = '"kubevirt-webhook install --with scheduler" does so for the second one'
        return [failure("not-synced", subject, what, f"grant what its log says is missing; {command}")]
    # The health check counts a Lease's age from when it first saw it, which is when this check began.
    is_renewed = health.state == "available" and health_check.kind == "lease"
    why = f"Lease {health_check.namespace}/{health_check.name} has not expired" if is_renewed else health.why
    if health.state == "unavailable":
        return [await _unavailable(installation, subject, why)]
    finding, todo = _FINDINGS[health.state]
    return [finding(health.state, subject, f"{health.state}: {why}", todo)]


async def _unavailable(installation: Installation, subject: str, why: str) -> Finding:
    """The finding for a scheduler that is unavailable: a failure, unless no namespace has opted in to what needs it."""
    finding, todo = _FINDINGS["unavailable"]
    if not await _is_wanted(installation):
        finding, todo = warning, f"before a namespace opts in to scheduling, {_START}"
    return finding("unavailable", subject, f"unavailable: {why}", todo)


async def _spreads(installation: Installation) -> bool:
    """Whether a namespace that enforces scheduling asks for constraints itself."""
    namespaces = await installation.reader.all(NAMESPACES)
    return not isinstance(namespaces, Unavailable) and any(
        installation.spread(each) != names.OFF for each in namespaces
    )


async def _is_wanted(installation: Installation) -> bool:
    """Whether a namespace has opted in to scheduling, as far as namespaces can be read."""
    modes = await installation.modes(names.SCHEDULING)
    return isinstance(modes, Unavailable) or any(mode not in (names.OFF, "") for mode in modes.values())


async def _check_lease(installation: Installation, scheduler: SchedulerSettings, live: FileGap) -> Finding:
    """Without a running cluster: whether there is a Lease with a holder. A copy shows neither renewals nor waiting."""
    subject, health_check = f"scheduler {scheduler.name}", scheduler.watched
    if health_check.kind == "lease":
        lease = await installation.reader.get(LEASES, health_check.namespace, health_check.name)
        if isinstance(lease, Unavailable):
            return unreadable(subject, lease)
        state, now = LeaseState(f"{health_check.namespace}/{health_check.name}"), installation.clock.now()
        state.observe(lease, now, installation.clock.wall())
        health = state.health(now)
        if lease is None or health.state == "unavailable":
            return await _unavailable(installation, subject, health.why)
    return unreadable(subject, live)


async def _evaluate_health(
    installation: Installation, api: Transport, scheduler: SchedulerSettings
) -> tuple[list[Unavailable], SchedulerHealth]:
    """What could not be read, and the result of the server's health check.

    Where a Lease is old, this waits until it is renewed, or has not been for long enough.
    """
    clock, health_check = installation.clock, scheduler.watched
    query = {"fieldSelector": f"spec.schedulerName={scheduler.name},status.phase=Pending"}
    pods = await installation.reader.all(PENDING_PODS, query=query)
    modes = await installation.modes(names.SCHEDULING)
    failures = [answer for answer in (pods, modes) if isinstance(answer, Unavailable)]
    by_namespace = {} if isinstance(modes, Unavailable) else modes
    state = HealthEvidence(health_check, lambda namespace: by_namespace.get(namespace) == names.ENFORCE, is_brief=True)
    begin = clock.now()
    for pod in () if isinstance(pods, Unavailable) else pods:
        if pod.is_unnoticed:
            created = unix_time(pod.meta.creation_timestamp)
            since = begin if created is None else begin - max(0.0, clock.wall() - created)
            state.pods.observe_waiting(Waiting.of(pod, since))
    for waiting in state.pods.unchecked_pods(begin, _MOST_VMIS):
        vmi = await installation.reader.get(ACTIVE_VMIS, waiting.namespace, waiting.vmi)
        if isinstance(vmi, Unavailable):
            failures.append(vmi)
            break
        state.pods.record_check(waiting, vmi)
    state.observe_watch(Unknown() if failures else Fresh(0.0))
    if health_check.kind == "lease":
        patience = 0.0 if failures else _PATIENCE
        if unread := await watch_lease(api, state, health_check, patience, clock):
            failures.append(unread)
    return failures, state.health(clock.now())


async def _describe_unsynced(installation: Installation, api: Requests, scheduler: SchedulerSettings) -> str:
    """What the log of a running pod of a scheduler without a Lease waits for; empty: no such pod, or nothing of it.

    The pod is healthy for its kubelet: only its log says that it waits.
    """
    health_check = scheduler.watched
    if health_check.kind != "lease":
        return ""
    pods = await installation.reader.all(PODS, health_check.namespace)
    for pod in () if isinstance(pods, Unavailable) else pods:
        if pod.status.phase != "Running" or not (pod.meta.name or "").startswith(health_check.name):
            continue
        path = PODS.path(health_check.namespace, pod.meta.name or "") + "/log"
        try:
            status, body = await api.request("GET", path, {"tailLines": "200", "limitBytes": "65536"}, seconds=SECONDS)
        except ApiConnectionError:
            continue
        if status == 200 and (lines := _UNSYNCED.findall(body.decode(errors="replace"))):
            message = shorten_middle(" ".join(lines[-1].split()), _MESSAGE_CHARACTERS)
            return f"the log of Pod {health_check.namespace}/{pod.meta.name} says: {message}"
    return ""


@check(_CHECK)
async def _check_permissions(installation: Installation) -> list[Finding]:
    """Whether the second scheduler may do what the cluster's version of kube-scheduler does."""
    deployment = await installation.reader.get(DEPLOYMENTS, NAME, NAME)
    if not isinstance(deployment, Deployment) or deployment.spec.template.spec.service_account_name != NAME:
        # A scheduler of this name that was installed in another way has an account of its own.
        return []
    subject = f"ServiceAccount {NAME}/{NAME}"
    answers = [await installation.reader.get(CLUSTER_ROLES, "", name) for name in (*UPSTREAM_ROLES, NAME)]
    roles = [readable(subject, answer) or Role() for answer in answers]
    *upstream, own = (msgspec.to_builtins(role.rules or []) for role in roles)
    expected = needed(rule for rules in upstream for rule in rules)
    account = service_account(NAME, NAME)
    ungranted = sorted(expected - granted(own))
    keys = [AccessKey(*account, "", (), verb, group, resource, "", "") for group, resource, verb in ungranted]
    # Another binding may grant them.
    if keys and (missing := await find_lacking(installation, subject, keys)):
        what = f"lacks {pluralize(len(missing), 'permission')} that kube-scheduler of this cluster's version needs: "
        todo = 'run "kubevirt-webhook install --with scheduler", or apply manifests/scheduler/second of a newer release'
        return [failure("scheduler-permissions-missing", subject, what + abbreviate(missing), todo)]
    what = f"has the {pluralize(len(expected), 'permission')} that kube-scheduler of this version needs"
    return [ok("scheduler-permissions-granted", subject, what)] if expected else []


@check(_CHECK)
async def check_profile(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    """Look for the scheduler's profile among the ConfigMaps that Deployments beside its Lease mount."""
    subject, beside = f"profile {scheduler.name}", scheduler.watched.namespace
    look = "check the configuration of the scheduler with `kubevirt-webhook scheduler lint`"
    if not beside:
        what = "not checked: the health check in the settings names no Lease, so the scheduler's namespace is unknown"
        return [unknown("profile-not-located", subject, what, look)]
    deployments = readable(subject, await installation.reader.all(DEPLOYMENTS, beside))
    volumes = ((one, each) for one in deployments for each in one.spec.template.spec.volumes or ())
    for deployment, volume in volumes:
        if volume.config_map is None or not volume.config_map.name:
            continue
        mounted = readable(subject, await installation.reader.get(CONFIG_MAPS, beside, volume.config_map.name))
        where = f"{CONFIG_MAPS.kind} {beside}/{volume.config_map.name}"
        for document in _configurations((mounted.data or {}).values() if mounted else (), where):
            if any(profile.get("schedulerName") == scheduler.name for _, profile in profiles_of(document.value)):
                is_the_clusters = (beside, scheduler.watched.name) == DEFAULT_LEASE
                findings = []
                target = LintTarget(scheduler.name, is_the_clusters, None, _lease_of_flags(deployment))
                for each in lint(document, target):
                    what = f"{where}: {each.text}; {each.consequence}"
                    verdict = failure if each.severity == "error" else warning
                    findings.append(verdict(each.code, subject, what, each.remedy))
                what = f"{where} has no mistake that kubevirt-webhook knows"
                return findings or [ok("profile-correct", subject, what)]
    what = f"not checked: no Deployment in namespace {beside} mounts a ConfigMap that contains it"
    return [unknown("profile-not-found", subject, what, look)]


def _lease_of_flags(deployment: Deployment) -> tuple[str, str]:
    """Namespace and name of the Lease that arguments of a scheduler name; empty: they name none."""
    containers = deployment.spec.template.spec.containers or ()
    words = [word for each in containers for part in (each.command, each.args) for word in part or ()]
    flags = dict(pairwise(" ".join(words).replace("=", " ").split()))
    return flags.get("--leader-elect-resource-namespace", ""), flags.get("--leader-elect-resource-name", "")


def _configurations(texts: Iterable[str], where: str) -> Iterator[Document]:
    """The configurations among texts; a text that is not YAML is skipped."""
    for text in texts:
        try:
            yield from [each for each in parse_documents(text, where) if is_configuration(each.value)]
        except InputError:
            continue
