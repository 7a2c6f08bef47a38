"""Is KubeVirt there, new enough, and set up so that the policies have something to do?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from webhook import names
from webhook.doctor.support.finding import Finding, several, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import KUBEVIRTS, InstalledKubeVirt, InstalledKubeVirtStatus, title
from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import ClusterConfig
from webhook.releases.detection import detect
from webhook.releases.release import Release
from webhook.releases.version import NEWEST, parse_version

CHECK: Final = "kubevirt"


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
        *_version(installation, taken_up, subject),
        *await _configuration(installation, taken_up, subject),
    ]


def _place(installation: Installation, kubevirt: InstalledKubeVirt, subject: str) -> list[Finding]:
    said, found = installation.settings.scheduling.kubevirt_namespace, kubevirt.meta.namespace
    if not said or said == found:
        return []
    what = f"it runs in {found}, where the settings say {said}: nothing that its controller makes is judged"
    return [Finding(CHECK, subject, "failure", what, f"set kubevirt: {{namespace: {found}}}")]


def _version(installation: Installation, kubevirt: InstalledKubeVirt, subject: str) -> Iterator[Finding]:
    state, said = kubevirt.state, parse_version(installation.settings.kubevirt_version)
    texts = (state.observed_kube_virt_version, state.target_kube_virt_version, state.operator_version)
    found = detect(*(text or "" for text in texts))
    if found is None:
        what, todo = "its operator has not said which version runs", "see that virt-operator runs"
        counts = f"the rules of {said or NEWEST} count"
        yield Finding(CHECK, subject, "unknown", f"{what}; {counts}", f"{todo}, or set kubevirt: {{version: …}}")
    else:
        yield _of_release(found, subject)
        yield from _update(state, found, subject)
    if said is not None:
        runs = found.version if found else None
        differs = runs is not None and runs != said
        what = f"the settings say version {said}, whose rules count" + (f", where {runs} runs" if differs else "")
        todo = "take kubevirt.version out of the settings, unless it is meant" if differs else ""
        yield Finding(CHECK, subject, "warning" if differs else "ok", what, todo)


def _of_release(release: Release, subject: str) -> Finding:
    shown = ".".join(map(str, release.version.line))
    if not release.is_supported:
        # addedNodeSelector came with the first release whose rules are known.
        what = (
            f"version {shown} knows no addedNodeSelector, so the migration policy has nothing to do, and the "
            "instancetypes policy stands aside"
        )
        return Finding(CHECK, subject, "warning", what, "upgrade KubeVirt to 1.6 or newer")
    if release.is_newer:
        what = f"version {shown} is newer than {NEWEST}, whose rules count in its place"
        return Finding(CHECK, subject, "warning", what, "upgrade kubevirt-webhook to a version that knows its rules")
    return Finding(CHECK, subject, "ok", f"version {shown}, which knows addedNodeSelector")


def _update(state: InstalledKubeVirtStatus, found: Release, subject: str) -> Iterator[Finding]:
    texts = (state.observed_kube_virt_version, state.target_kube_virt_version)
    observed, target = (parse_version(text or "") for text in texts)
    if observed and target and observed != target:
        what = f"an update from {observed} to {target} runs; the rules of {found} count until it is done"
        yield Finding(CHECK, subject, "ok", what)


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
