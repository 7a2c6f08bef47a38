"""Do our entries match namespaces that must never wait for us: our own, Kubernetes' and KubeVirt's?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from webhook import names
from webhook.doctor.checks.webhooks import APPLY
from webhook.doctor.support.finding import Finding, pluralize, several, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.selector import selects
from webhook.doctor.support.views import WebhookEntry
from webhook.errors import Unavailable
from webhook.k8s.views import Namespace

CHECK: Final = "selectors"
_KUBERNETES: Final = ("kube-system", "kube-public", "kube-node-lease")
_NAME: Final = "kubernetes.io/metadata.name"


async def check(installation: Installation) -> list[Finding]:
    """Evaluate the selectors that there are on the namespaces that there are."""
    live, namespaces = await installation.every_configuration(), await installation.namespaces()
    for what, found in (("webhook configurations", live), ("namespaces", namespaces)):
        if isinstance(found, Unavailable):
            return [unreadable(CHECK, what, found)]
    assert not isinstance(live, Unavailable)
    assert not isinstance(namespaces, Unavailable)
    kubevirts = await installation.kubevirts()
    findings = [unreadable(CHECK, "KubeVirt's namespace", kubevirts)] if isinstance(kubevirts, Unavailable) else []
    homes = () if isinstance(kubevirts, Unavailable) else tuple(one.meta.namespace or "" for one in kubevirts)
    guarded = {*_KUBERNETES, installation.namespace, *homes, *installation.settings.excluded_namespaces}
    there = [one for one in namespaces if one.meta.name in guarded]
    entries = 0
    for kind, configuration in live:
        matched: dict[tuple[str, ...], list[str]] = {}
        for entry in configuration.ours:
            entries += 1
            if caught := tuple(_caught(entry, there)):
                matched.setdefault(caught, []).append(entry.name.removesuffix(f".{names.DOMAIN}"))
        subject = f"{kind} {configuration.meta.name}"
        for caught, ours in matched.items():
            match = "matches" if len(ours) == 1 else "match"
            what = f"{several(ours)} {match} what must never wait for us: {several(caught)}"
            unknown = [name for name in caught if name not in installation.settings.excluded_namespaces]
            todo = f"set kubevirt: {{namespace: {unknown[0]}}} in the settings, then {APPLY}" if unknown else APPLY
            findings.append(Finding(CHECK, subject, "failure", what, todo))
    if not any(finding.verdict == "failure" for finding in findings):
        looked_at = pluralize(len(there), "namespace")
        what = f"{pluralize(entries, 'entry', 'entries')} match none of the {looked_at} that must not"
        findings.append(Finding(CHECK, "namespaceSelectors", "ok", what))
    return findings


def _caught(entry: WebhookEntry, namespaces: Iterable[Namespace]) -> Iterator[str]:
    """The names of those that an entry matches."""
    for namespace in namespaces:
        name = namespace.meta.name or ""
        # The API server sees to this label.
        if selects(entry.namespace_selector, {**(namespace.meta.labels or {}), _NAME: name}):
            yield name
