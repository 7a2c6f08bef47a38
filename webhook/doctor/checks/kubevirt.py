"""Is KubeVirt there, new enough, and set up so that the policies have something to do?"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from webhook import names
from webhook.doctor.support.finding import Finding, several, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import KUBEVIRTS, InstalledKubeVirt, title
from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import ClusterConfig

CHECK: Final = "kubevirt"

# addedNodeSelector came with it.
_ADDED_SELECTOR: Final = (1, 6)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


async def check(installation: Installation) -> list[Finding]:
    """Its version, its place, and the settings that policies depend on."""
    kubevirts = await installation.kubevirts()
    if isinstance(kubevirts, Unavailable):
        return [unreadable(CHECK, "KubeVirt", kubevirts)]
    if not kubevirts:
        return [Finding(CHECK, "KubeVirt", "failure", "there is no KubeVirt object", "install KubeVirt")]
    taken_up = next((one for one in kubevirts if one.state.phase), kubevirts[0])
    subject = title(KUBEVIRTS, taken_up.meta)
    return [
        *_place(installation, taken_up, subject),
        _version(taken_up, subject),
        *await _configuration(installation, taken_up, subject),
    ]


def _place(installation: Installation, kubevirt: InstalledKubeVirt, subject: str) -> list[Finding]:
    said, found = installation.settings.scheduling.kubevirt_namespace, kubevirt.meta.namespace
    if not said or said == found:
        return []
    what = f"it runs in {found}, where the settings say {said}: nothing that its controller makes is judged"
    return [Finding(CHECK, subject, "failure", what, f"set kubevirt: {{namespace: {found}}}")]


def _version(kubevirt: InstalledKubeVirt, subject: str) -> Finding:
    text = kubevirt.state.observed_kube_virt_version or ""
    match = _VERSION.match(text)
    if not match:
        what, todo = "its operator has not said which version runs", "see that virt-operator runs"
        return Finding(CHECK, subject, "unknown", what, todo)
    version = (int(match[1][:6]), int(match[2][:6]))
    shown = ".".join(map(str, version))
    if version < _ADDED_SELECTOR:
        what = f"version {shown} knows no addedNodeSelector, so the migration policy has nothing to do"
        return Finding(CHECK, subject, "warning", what, "upgrade KubeVirt to 1.6 or newer")
    return Finding(CHECK, subject, "ok", f"version {shown}, which knows addedNodeSelector")


async def _configuration(installation: Installation, kubevirt: InstalledKubeVirt, subject: str) -> list[Finding]:
    try:
        configuration = ClusterConfig.of_kubevirt(msgspec.to_builtins(kubevirt))
    except InputError as error:
        todo = "repair its spec.configuration"
        return [Finding(CHECK, subject, "warning", f"its configuration can't be read: {error}", todo)]
    findings = []
    if configuration.eviction_strategy == "None" and await _judges(installation, names.EVICTION):
        what = "evictionStrategy is None: VMs that say nothing else are shut down by an eviction, not migrated"
        todo = "set spec.configuration.evictionStrategy to LiveMigrate, if they shall move"
        findings.append(Finding(CHECK, subject, "warning", what, todo))
    rollout = "LiveUpdate" if configuration.live_update else "Stage"
    gates = several(sorted(configuration.feature_gates)) or "none"
    what = (
        f"evictionStrategy {configuration.eviction_strategy}, vmRolloutStrategy {rollout}, "
        f"instancetype.referencePolicy {configuration.reference_policy}, feature gates: {gates}"
    )
    return [*findings, Finding(CHECK, subject, "ok", what)]


async def _judges(installation: Installation, policy: names.Policy) -> bool:
    namespaces = await installation.namespaces()
    return not isinstance(namespaces, Unavailable) and any(
        installation.mode(one, policy) in (names.ENFORCE, names.WARN, names.AUDIT) for one in namespaces
    )
