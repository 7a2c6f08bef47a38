"""Do the replicas run as they should: ready, alike, apart, and not on a scheduler that we hand VMs to?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from webhook.doctor.support.finding import Finding, pluralize, several, unreadable
from webhook.doctor.support.installation import NAME, Installation
from webhook.doctor.support.views import BUDGETS, FLOW, PODS, Deployment, InstalledPod
from webhook.errors import Unavailable
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object

CHECK: Final = "deployment"
_INSTALL: Final = "run kubevirt-webhook install, or apply the manifests"
_OVER: Final = ("Succeeded", "Failed")


async def check(installation: Installation) -> list[Finding]:
    """The Deployment, its pods, and what protects them."""
    findings = [*await _deployment(installation), *await _pods(installation)]
    findings += await _present(installation, BUDGETS, "a drain can stop all replicas at once")
    for resource in FLOW:
        what = "our look-ups wait behind the requests that wait for us"
        findings += await _present(installation, resource, what)
    return findings


async def _deployment(installation: Installation) -> list[Finding]:
    subject = f"Deployment {installation.namespace}/{NAME}"
    live = await installation.deployment()
    if isinstance(live, Unavailable):
        return [unreadable(CHECK, subject, live)]
    if live is None:
        if installation.url:
            return [Finding(CHECK, subject, "ok", f"there is none: the server is at {installation.url}")]
        return [Finding(CHECK, subject, "failure", "it isn't there", _INSTALL)]
    wanted = 1 if live.spec.replicas is None else live.spec.replicas
    ready, updated = live.status.ready_replicas or 0, live.status.updated_replicas or 0
    findings = []
    if not ready:
        what = f"none of {pluralize(wanted, 'replica')} is ready, so that nobody judges"
        findings.append(Finding(CHECK, subject, "failure", what, "look at its pods and their log"))
    elif ready < wanted or updated < wanted:
        what = f"{ready} of {pluralize(wanted, 'replica')} are ready, {updated} are of the newest template"
        findings.append(Finding(CHECK, subject, "warning", what, "look at its pods, or wait for the roll-out"))
    elif wanted == 1:
        what = "one replica only, so that nobody judges while it moves"
        findings.append(Finding(CHECK, subject, "warning", what, "use two or more"))
    else:
        findings.append(Finding(CHECK, subject, "ok", f"{pluralize(ready, 'replica')}, all ready"))
    return [*findings, *_scheduler(installation, subject, live)]


def _scheduler(installation: Installation, subject: str, live: Deployment) -> list[Finding]:
    name = live.spec.template.spec.scheduler_name or ""
    if name not in installation.settings.scheduling.schedulers:
        return []
    what = f"its pods are placed by {name}, which we hand VMs to: with that scheduler we would be down too"
    return [Finding(CHECK, subject, "failure", what, "set its schedulerName to default-scheduler")]


async def _pods(installation: Installation) -> list[Finding]:
    query = {"labelSelector": f"app.kubernetes.io/name={NAME}"}
    subject = f"Pods of {installation.namespace}/{NAME}"
    found = await installation.reader.all(PODS, installation.namespace, query)
    if isinstance(found, Unavailable):
        return [unreadable(CHECK, subject, found)]
    pods = [pod for pod in found if pod.status.phase not in _OVER]
    if not pods:
        return []
    findings = []
    images = sorted({container.image or "" for pod in pods for container in (pod.spec.containers or ())[:1]})
    if len(images) > 1:
        what = f"they run different images: {several(images)}"
        findings.append(Finding(CHECK, subject, "warning", what, "wait for the roll-out, or see why it stopped"))
    if together := _together(pods):
        what = f"all run on the node {together}, and end with it"
        findings.append(Finding(CHECK, subject, "warning", what, "let the scheduler spread them: give it another node"))
    return findings or [Finding(CHECK, subject, "ok", f"they run {several(images)}, not all on one node")]


def _together(pods: Sequence[InstalledPod]) -> str:
    """The node that all of several pods run on."""
    nodes = {pod.spec.node_name or "" for pod in pods}
    return nodes.pop() if len(pods) > 1 and len(nodes) == 1 else ""


async def _present(installation: Installation, resource: Resource[Object], otherwise: str) -> list[Finding]:
    namespace = installation.namespace if resource.namespaced else ""
    subject = f"{resource.kind} {namespace}/{NAME}" if namespace else f"{resource.kind} {NAME}"
    found = await installation.reader.get(resource, namespace, NAME)
    if isinstance(found, Unavailable):
        return [unreadable(CHECK, subject, found)]
    if found is None and not (installation.url and resource is BUDGETS):
        return [Finding(CHECK, subject, "warning", f"it isn't there: {otherwise}", _INSTALL)]
    return []
