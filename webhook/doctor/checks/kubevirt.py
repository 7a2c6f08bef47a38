"""Looks at KubeVirt: its version, its namespace, and the settings that the policies depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook import names
from webhook.cluster.definitions import read_definitions
from webhook.cluster.reader import SECONDS
from webhook.doctor.support.finding import Finding, abbreviate, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import title
from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import ClusterConfig, find_in_use, versions_of
from webhook.kubevirt.releases.capabilities import NEWEST, Version, parse_version
from webhook.kubevirt.releases.fields import unknown_fields
from webhook.kubevirt.releases.release import Release, detect
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.types.views import KubeVirt, KubeVirtStatus

CHECK: Final = "kubevirt"


async def check(installation: Installation) -> list[Finding]:
    """Check the KubeVirt object that its operator has deployed."""
    kubevirts = await installation.kubevirts()
    if isinstance(kubevirts, Unavailable):
        return [unreadable(CHECK, "KubeVirt", kubevirts)]
    deployed = find_in_use(kubevirts)
    if deployed is None and installation.reader.malformed["KubeVirt"]:
        what = "the KubeVirt object is malformed: spec or status has a value of a wrong type"
        return [Finding(CHECK, "configuration-invalid", "KubeVirt", "warning", what, "correct the object")]
    if deployed is None:
        return [
            Finding(CHECK, "missing", "KubeVirt", "failure", "the cluster has no KubeVirt object", "install KubeVirt")
        ]
    subject = title(KUBEVIRTS, deployed.meta)
    return [
        *_check_namespace(installation, deployed, subject),
        *_check_version(installation, deployed, subject),
        *await _check_fields(installation, deployed, subject),
        *await _check_configuration(installation, deployed, subject),
    ]


def _check_namespace(installation: Installation, kubevirt: KubeVirt, subject: str) -> list[Finding]:
    wanted, actual = installation.settings.scheduling.kubevirt_namespace, kubevirt.meta.namespace
    if not wanted or wanted == actual:
        return []
    what = (
        f"runs in namespace {actual}, but the settings declare {wanted}, so the pods that its controller creates "
        "are not evaluated"
    )
    todo = f"set kubevirt: {{namespace: {actual}}} in the settings"
    return [Finding(CHECK, "namespace-differs", subject, "failure", what, todo)]


def _check_version(installation: Installation, kubevirt: KubeVirt, subject: str) -> Iterator[Finding]:
    state, declared = kubevirt.status or KubeVirtStatus(), parse_version(installation.settings.kubevirt_version)
    release = detect(*state.versions)
    if release is None:
        what = (
            "status.observedKubeVirtVersion is not set by virt-operator; "
            f"kubevirt-webhook applies the rules of {declared or NEWEST}"
        )
        todo = "check that virt-operator runs, or set kubevirt: {version: VERSION} in the settings"
        yield Finding(CHECK, "version-unknown", subject, "unknown", what, todo)
    else:
        yield _describe_release(release, subject)
        yield from _describe_update(state, release, subject)
    if declared is not None:
        yield _compare_declared(declared, release, subject)


async def _check_fields(installation: Installation, kubevirt: KubeVirt, subject: str) -> list[Finding]:
    """Whether the cluster's definitions can be read, and what differs between them and the tables of the release."""
    definitions = await read_definitions(installation.reader.api, SECONDS)
    if isinstance(definitions, Unavailable):
        what = f"{definitions.why}; which fields KubeVirt knows is taken from tables by version"
        todo = "grant kubevirt-webhook get on the CustomResourceDefinitions in manifests/base/rbac.yaml"
        return [Finding(CHECK, "fields-unreadable", subject, "warning", what, todo)]
    release = detect(*versions_of(kubevirt), definitions)
    if release is None or release.definitions is None:
        return []
    more, fewer = set[str](), set[str]()
    for kind, _ in release.definitions.kinds:
        table = unknown_fields(release.rules_version, kind)
        more |= table - release.unknown_fields(kind)
        fewer |= release.unknown_fields(kind) - table
    if not more and not fewer:
        return []
    parts = [("also have", more), ("lack", fewer)]
    listed = ", and ".join(f"{verb} {abbreviate(sorted(paths))}" for verb, paths in parts if paths)
    what = f"compared with KubeVirt {release}, the CustomResourceDefinitions {listed}"
    return [Finding(CHECK, "fields-differ", subject, "ok", what)]


def _describe_release(release: Release, subject: str) -> Finding:
    shown = ".".join(map(str, release.version.line))
    if not release.is_supported:
        # addedNodeSelector came with the first release whose rules are known.
        what = (
            f"version {shown} does not support addedNodeSelector, so the migration policy has no effect, and the "
            "instancetypes policy changes nothing"
        )
        return Finding(CHECK, "version-old", subject, "warning", what, "upgrade KubeVirt to 1.6 or newer")
    if release.is_newer:
        what = f"version {shown} is newer than {NEWEST}, whose rules kubevirt-webhook applies instead"
        todo = "upgrade kubevirt-webhook to a version that supports this KubeVirt"
        return Finding(CHECK, "version-new", subject, "warning", what, todo)
    return Finding(CHECK, "version-supported", subject, "ok", f"version {shown} supports addedNodeSelector")


def _describe_update(state: KubeVirtStatus, release: Release, subject: str) -> Iterator[Finding]:
    observed, target = map(parse_version, state.versions[:2])
    if observed and target and observed != target:
        what = f"is being updated from {observed} to {target}; until then the rules of {release} apply"
        yield Finding(CHECK, "updating", subject, "ok", what)


def _compare_declared(declared: Version, release: Release | None, subject: str) -> Finding:
    if release is None or release.version == declared:
        what = f"the settings declare version {declared}, whose rules apply"
        return Finding(CHECK, "version-declared", subject, "ok", what)
    what = f"the settings declare version {declared}, whose rules apply, but {release.version} runs"
    todo = "remove kubevirt.version from the settings, unless it is intended"
    return Finding(CHECK, "version-differs", subject, "warning", what, todo)


async def _check_configuration(installation: Installation, kubevirt: KubeVirt, subject: str) -> list[Finding]:
    try:
        configuration = ClusterConfig.of_kubevirt(kubevirt)
    except InputError as error:
        what = f"the configuration is invalid: {error}"
        return [Finding(CHECK, "configuration-invalid", subject, "warning", what, "correct spec.configuration")]
    findings = []
    if configuration.eviction_strategy == "None" and await _evaluates(installation, names.EVICTION):
        what = "evictionStrategy is None: an eviction shuts down VMs without an evictionStrategy of their own"
        todo = "to migrate them instead, set spec.configuration.evictionStrategy to LiveMigrate"
        findings.append(Finding(CHECK, "evictions-shut-down", subject, "warning", what, todo))
    rollout = "LiveUpdate" if configuration.live_update else "Stage"
    gates = abbreviate(sorted(configuration.feature_gates)) or "none"
    what = (
        f"configuration: evictionStrategy {configuration.eviction_strategy}, vmRolloutStrategy {rollout}, "
        f"instancetype.referencePolicy {configuration.reference_policy}, feature gates: {gates}"
    )
    return [*findings, Finding(CHECK, "configuration", subject, "ok", what)]


async def _evaluates(installation: Installation, policy: names.Policy) -> bool:
    namespaces = await installation.namespaces()
    return not isinstance(namespaces, Unavailable) and any(
        installation.mode(namespace, policy) in (names.ENFORCE, names.WARN, names.AUDIT) for namespace in namespaces
    )
