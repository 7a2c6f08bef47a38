"""KubeVirt: its version, its namespace, the settings that policies depend on, its pools, and the images on nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from webhook import names
from webhook.doctor.estimate import MAX_IMAGES
from webhook.doctor.installation import ADMISSION_POLICIES, Installation, Reference
from webhook.errors import FileGap, InputError, Unavailable
from webhook.findings import Finding, check, failure, ok, readable, unknown, unreadable, warning
from webhook.install.plan import shipped
from webhook.install.stored_settings import NAME
from webhook.install.webhooks import CONFIGURATIONS
from webhook.k8s.resources import NODES_WITH_IMAGES, Resource
from webhook.k8s.types.meta import Object, View
from webhook.kubevirt.config import ClusterConfig, find_in_use
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.kubevirt.releases.capabilities import NEWEST, parse_version
from webhook.kubevirt.releases.fields import unknown_fields
from webhook.kubevirt.releases.release import detect
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.types.views import KubeVirt
from webhook.text import abbreviate, pluralize

_GATE: Final = "Plugins"


class PluginSpec(View, frozen=True):
    """``spec`` of a Plugin, as far as it names objects of admission."""

    mutating_admission_webhooks: list[Reference] | None = None
    validating_admission_policies: list[Reference] | None = None
    validating_admission_webhooks: list[Reference] | None = None


class Plugin(Object, frozen=True):
    """A Plugin of KubeVirt 1.9 (plugin.kubevirt.io/v1alpha1): what changes or checks the VMs of a cluster."""

    spec: PluginSpec = PluginSpec()


_ADMISSION: Final[dict[str, Resource[Any]]] = {**CONFIGURATIONS, **ADMISSION_POLICIES}
PLUGINS: Final = Resource("plugin.kubevirt.io", "v1alpha1", "plugins", "Plugin", False, Plugin)


@check("kubevirt")
async def check_kubevirt(installation: Installation) -> list[Finding]:
    """Check the KubeVirt object that its operator has deployed."""
    deployed = find_in_use(readable("KubeVirt", await installation.reader.all(KUBEVIRTS)))
    if deployed is None and installation.reader.malformed["KubeVirt"]:
        what = "the KubeVirt object is malformed: spec or status has a value of a wrong type"
        return [warning("configuration-invalid", "KubeVirt", what, "correct the object")]
    if deployed is None:
        return [failure("missing", "KubeVirt", "the cluster has no KubeVirt object", "install KubeVirt")]
    subject = f"{KUBEVIRTS.kind} {deployed.meta.namespace}/{deployed.meta.name}"
    findings: list[Finding] = []
    namespace, actual = installation.settings.kubevirt.namespace, deployed.meta.namespace
    if namespace and namespace != actual:
        what = f"runs in namespace {actual}, but the settings declare {namespace}"
        consequence = "so the pods that its controller creates are not evaluated"
        todo = f"set kubevirt: {{namespace: {actual}}} in the settings"
        findings.append(failure("namespace-differs", subject, f"{what}, {consequence}", todo))
    findings += _check_version(installation, deployed, subject)
    findings += await _check_fields(installation, deployed, subject)
    return findings + await _check_configuration(installation, deployed, subject)


async def _check_plugin(installation: Installation, configuration: ClusterConfig) -> list[Finding]:
    """Whether the Plugin of kubevirt-webhook, if there is one, names what is installed."""
    plugin = await installation.reader.get(PLUGINS, "", NAME)
    if plugin is None or (isinstance(plugin, FileGap) and plugin.code == "not-in-files"):
        return []
    subject = f"{PLUGINS.kind} {NAME}"
    if isinstance(plugin, Unavailable):
        return [unreadable(subject, plugin)]
    spec = plugin.spec
    kinds = {
        "MutatingWebhookConfiguration": spec.mutating_admission_webhooks,
        "ValidatingWebhookConfiguration": spec.validating_admission_webhooks,
        "ValidatingAdmissionPolicy": spec.validating_admission_policies,
    }
    named = {(kind, each.name) for kind, references in kinds.items() for each in references or ()}
    manifests = [*installation.expected_configurations(), *shipped(installation.manifests / "rendered/kubernetes.yaml")]
    own = {(each["kind"], each["metadata"]["name"]) for each in manifests if each["kind"] in kinds}
    missing = {one for one in named if await installation.reader.get(_ADMISSION[one[0]], "", one[1]) is None}
    todo = f"{await installation.remedy()}, or remove the names"
    findings = [
        warning(code, subject, f"{verb} {abbreviate([' '.join(one) for one in sorted(wrong)])}", fix)
        for code, verb, wrong, fix in (
            ("plugin-lacks", "does not name", own - named, "apply the component kubevirt-plugin again"),
            ("plugin-dangling", "names what the cluster does not have:", missing, todo),
        )
        if wrong
    ]
    if _GATE not in configuration.feature_gates:
        what = f"KubeVirt does not accept it without the feature gate {_GATE}"
        findings.append(warning("plugin-gate-closed", subject, what, "enable the gate, or delete the Plugin"))
    return findings or [ok("plugin-complete", subject, f"names {pluralize(len(own), 'object')} of kubevirt-webhook")]


def _check_version(installation: Installation, kubevirt: KubeVirt, subject: str) -> Iterator[Finding]:
    declared, release = parse_version(installation.settings.kubevirt.version), detect(*kubevirt.versions)
    if release is None:
        what = "status.observedKubeVirtVersion is not set by virt-operator; kubevirt-webhook applies the rules of"
        todo = "check that virt-operator runs"
        todo += "" if declared else ", or set kubevirt: {version: VERSION} in the settings"
        yield unknown("version-unknown", subject, f"{what} {declared or NEWEST}", todo)
    else:
        shown = ".".join(map(str, release.version.line))
        if not release.is_supported:
            # addedNodeSelector came with the first release whose rules are known.
            what = f"version {shown} does not support addedNodeSelector, so the migration policy has no effect"
            what = f"{what}, and the instancetypes policy changes nothing"
            yield warning("version-old", subject, what, "upgrade KubeVirt to 1.6 or newer")
        elif release.is_newer:
            rules = release.rules_version
            caveat = "" if rules == NEWEST else f", with what was known of {rules} before its release"
            what = f"version {shown} is newer than {NEWEST}, whose rules kubevirt-webhook applies instead{caveat}"
            todo = "upgrade kubevirt-webhook to a version that supports this KubeVirt"
            yield warning("version-new", subject, what, todo)
        else:
            yield ok("version-supported", subject, f"version {shown} supports addedNodeSelector")
        observed, target = map(parse_version, kubevirt.versions[:2])
        if observed and target and observed != target:
            what = f"is being updated from {observed} to {target}; until then the rules of {release} apply"
            yield ok("updating", subject, what)
    if declared is None:
        return
    what = f"the settings declare version {installation.settings.kubevirt.version}, whose rules apply"
    if release is None or release.version == declared:
        yield ok("version-declared", subject, what)
    else:
        todo = "remove kubevirt.version from the settings, unless it is intended"
        yield warning("version-differs", subject, f"{what}, but {release.version} runs", todo)


async def _check_fields(installation: Installation, kubevirt: KubeVirt, subject: str) -> list[Finding]:
    """Whether the cluster's definitions can be read, and what differs between them and the tables of the release."""
    definitions = await installation.reader.definitions()
    if isinstance(definitions, FileGap):
        return [unreadable(subject, definitions)]
    if isinstance(definitions, Unavailable):
        what = f"{definitions.why}; which fields KubeVirt knows is taken from tables by version"
        todo = "grant kubevirt-webhook get on the CustomResourceDefinitions in manifests/base/rbac.yaml"
        return [warning("fields-unreadable", subject, what, todo)]
    release = detect(*kubevirt.versions, definitions)
    if release is None or release.definitions is None:
        return []
    more, fewer = set[str](), set[str]()
    for kind, _ in release.definitions.kinds:
        table = unknown_fields(release.rules_version, kind)
        more |= table - release.unknown_fields(kind)
        fewer |= release.unknown_fields(kind) - table
    parts = [("also have", more), ("lack", fewer)]
    listed = ", and ".join(f"{verb} {abbreviate(sorted(paths))}" for verb, paths in parts if paths)
    what = f"compared with KubeVirt {release}, the CustomResourceDefinitions {listed}"
    return [ok("fields-differ", subject, what)] if listed else []


async def _check_configuration(installation: Installation, kubevirt: KubeVirt, subject: str) -> list[Finding]:
    try:
        configuration = ClusterConfig.of_kubevirt(kubevirt)
    except InputError as error:
        what = f"the configuration is invalid: {error}"
        return [warning("configuration-invalid", subject, what, "correct spec.configuration")]
    findings = []
    if owner := HyperConverged.owning(kubevirt):
        what = f"is owned by {owner.title}, which overwrites changes of it: set fields there"
        findings.append(ok("owned", subject, what))
    modes = await installation.modes(names.EVICTION)
    evaluating = set() if isinstance(modes, Unavailable) else set(modes.values())
    if configuration.eviction_strategy == "None" and evaluating & {names.ENFORCE, names.WARN, names.AUDIT}:
        what = "evictionStrategy is None: an eviction shuts down VMs without an evictionStrategy of their own"
        setting = "set spec.configuration.evictionStrategy to LiveMigrate"
        setting = owner.set("evictionStrategy", "LiveMigrate") if owner else setting
        # virt-api has written None into their VMIs, which no user can change.
        todo = f"to migrate them instead, {setting}; those that run keep None until they are restarted"
        findings.append(warning("evictions-shut-down", subject, what, todo))
    rollout = "LiveUpdate" if configuration.live_update else "Stage"
    what = f"configuration: evictionStrategy {configuration.eviction_strategy}, vmRolloutStrategy {rollout}"
    what += f", instancetype.referencePolicy {configuration.reference_policy}"
    what += f", feature gates: {abbreviate(sorted(configuration.feature_gates)) or 'none'}"
    return [*findings, ok("configuration", subject, what), *await _check_plugin(installation, configuration)]


@check("nodes")
async def check_nodes(installation: Installation) -> list[Finding]:
    """Count the nodes that report as many images as a kubelet does at most."""
    nodes = readable("images", await installation.reader.all(NODES_WITH_IMAGES))
    full = sum(len(node.images) >= MAX_IMAGES for node in nodes)
    what = f"{full}/{pluralize(len(nodes), 'node')} report {MAX_IMAGES} or more images"
    if not full:
        return [ok("all-reported", "images", what)]
    what += ", so ImageLocality may score the launcher image as missing there"
    modes = await installation.modes(names.SCHEDULING)
    if isinstance(modes, Unavailable) or names.ENFORCE in modes.values():
        return [ok("policy-applies", "images", f"{what}; the scheduling policy avoids this")]
    label = names.policy_label(names.SCHEDULING)
    todo = f"label namespaces {label}=enforce, or raise nodeStatusMaxImages of the kubelets"
    return [warning("not-all-reported", "images", what, todo)]
