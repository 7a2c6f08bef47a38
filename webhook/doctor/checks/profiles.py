"""Looks at a scheduler's configuration, if it is in a ConfigMap that a Deployment mounts.

The mistakes that it reports are those of ``kubevirt-webhook scheduler lint``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from webhook.doctor.support.finding import Finding, Verdict, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import CONFIG_MAPS, DEPLOYMENTS, title
from webhook.errors import InputError, Unavailable
from webhook.install.schedulers.lint import DEFAULT_LEASE, LintTarget, Problem, is_configuration, lint, profiles_of
from webhook.k8s.yaml_documents import Document, parse_documents
from webhook.settings.snapshot import SchedulerSettings

_CHECK: Final = "schedulers"


async def check(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    """Look for the scheduler's profile among the ConfigMaps that Deployments beside its Lease mount."""
    subject, beside = f"profile {scheduler.name}", scheduler.guard.namespace
    look = "check the configuration of the scheduler with `kubevirt-webhook scheduler lint`"
    if not beside:
        what = "not checked: the guard in the settings names no Lease, so the scheduler's namespace is unknown"
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
    is_the_clusters = (scheduler.guard.namespace, scheduler.guard.name) == DEFAULT_LEASE
    problems = lint(document, LintTarget(scheduler.name, is_the_clusters))
    what = f"{where} has no mistake that kubevirt-webhook knows"
    return [_finding(subject, where, problem) for problem in problems] or [
        Finding(_CHECK, "profile-correct", subject, "ok", what)
    ]


def _finding(subject: str, where: str, problem: Problem) -> Finding:
    verdict: Verdict = "failure" if problem.severity == "error" else "warning"
    what = f"{where}: {problem.text}; {problem.consequence}"
    return Finding(_CHECK, problem.code, subject, verdict, what, problem.remedy)
