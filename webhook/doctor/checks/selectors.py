"""Looks for webhook entries that match namespaces which must not wait for a webhook.

These are the namespaces of kubevirt-webhook, Kubernetes and KubeVirt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from webhook import names
from webhook.doctor.checks.webhooks import APPLY
from webhook.doctor.support.finding import Finding, abbreviate, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.selector import selects
from webhook.doctor.support.views import InstalledWebhookConfiguration, WebhookEntry
from webhook.errors import Unavailable
from webhook.k8s.views import Namespace
from webhook.kubevirt.types.views import KubeVirt
from webhook.text import pluralize

CHECK: Final = "selectors"
_KUBERNETES: Final = ("kube-system", "kube-public", "kube-node-lease")
_NAME: Final = "kubernetes.io/metadata.name"


async def check(installation: Installation) -> list[Finding]:
    """Evaluate the cluster's selectors on the cluster's namespaces."""
    live, namespaces = await installation.every_configuration(), await installation.namespaces()
    for subject, answer in (("webhook configurations", live), ("namespaces", namespaces)):
        if isinstance(answer, Unavailable):
            return [unreadable(CHECK, subject, answer)]
    assert not isinstance(live, Unavailable)
    assert not isinstance(namespaces, Unavailable)
    findings: list[Finding] = []
    kubevirts = await installation.kubevirts()
    if isinstance(kubevirts, Unavailable):
        findings.append(unreadable(CHECK, "KubeVirt's namespace", kubevirts))
        kubevirts = ()
    excluded = _excluded_names(installation, kubevirts)
    excluded_namespaces = [namespace for namespace in namespaces if namespace.meta.name in excluded]
    matches = [
        finding
        for kind, configuration in live
        for finding in _check_configuration(installation, kind, configuration, excluded_namespaces)
    ]
    if not matches:
        entries = sum(len(configuration.own_entries) for _, configuration in live)
        what = (
            f"0 of {pluralize(entries, 'entry', 'entries')} match any of the "
            f"{pluralize(len(excluded_namespaces), 'namespace')} that must be excluded"
        )
        findings.append(Finding(CHECK, "excluded-not-matched", "namespaceSelectors", "ok", what))
    return findings + matches


def _excluded_names(installation: Installation, kubevirts: Iterable[KubeVirt]) -> set[str]:
    return {
        *_KUBERNETES,
        installation.namespace,
        *(kubevirt.meta.namespace or "" for kubevirt in kubevirts),
        *installation.settings.excluded_namespaces,
    }


def _check_configuration(
    installation: Installation,
    kind: str,
    configuration: InstalledWebhookConfiguration,
    excluded: Iterable[Namespace],
) -> Iterator[Finding]:
    """Entries that match the same namespaces share a finding."""
    entries_by_match: dict[tuple[str, ...], list[str]] = {}
    for entry in configuration.own_entries:
        if matched := tuple(_matched_names(entry, excluded)):
            entries_by_match.setdefault(matched, []).append(entry.name.removesuffix(f".{names.DOMAIN}"))
    for matched, entries in entries_by_match.items():
        what = (
            f"{abbreviate(entries)} {'matches' if len(entries) == 1 else 'match'} "
            f"{pluralize(len(matched), 'namespace')} that must be excluded: {abbreviate(matched)}"
        )
        unknown = [name for name in matched if name not in installation.settings.excluded_namespaces]
        todo = f"set kubevirt: {{namespace: {unknown[0]}}} in the settings, then {APPLY}" if unknown else APPLY
        subject = f"{kind} {configuration.meta.name}"
        yield Finding(CHECK, "excluded-matched", subject, "failure", what, todo)


def _matched_names(entry: WebhookEntry, namespaces: Iterable[Namespace]) -> Iterator[str]:
    for namespace in namespaces:
        name = namespace.meta.name or ""
        # The API server sets this label on every namespace.
        if selects(entry.namespace_selector, {**(namespace.meta.labels or {}), _NAME: name}):
            yield name
