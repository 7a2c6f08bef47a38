"""The webhook configurations of the cluster, against the settings: rules, selectors, and those of other programs.

The API server calls mutating webhooks in the order of their configurations' names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from webhook import names
from webhook.doctor.report import (
    CONFIGURATIONS,
    NAME,
    Finding,
    Installation,
    InstalledWebhookConfiguration,
    Verdict,
    WebhookEntry,
    abbreviate,
    unreadable,
)
from webhook.errors import Unavailable
from webhook.install.registration import NOT_YET, Manifest
from webhook.k8s.types.meta import Namespace
from webhook.k8s.types.selectors import LabelSelector
from webhook.kubevirt.types.views import KubeVirt
from webhook.text import pluralize

_WEBHOOKS: Final = "webhooks"
APPLY: Final = 'run "kubevirt-webhook install", or apply the output of "kubevirt-webhook manifests webhooks"'
_Entry = dict[str, Any]
# What an entry does and to which objects; a difference elsewhere costs time or tidiness.
_GRAVE: Final = ("clientConfig", "rules", "namespaceSelector", "objectSelector", "matchConditions", "failurePolicy")
_LESSER: Final = ("timeoutSeconds", "matchPolicy", "sideEffects", "reinvocationPolicy", "admissionReviewVersions")
_SCALARS: Final = ("failurePolicy", "timeoutSeconds", "matchPolicy", "sideEffects", "reinvocationPolicy")
_SELECTORS: Final = "selectors"
_KUBERNETES: Final = ("kube-system", "kube-public", "kube-node-lease")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_ORDER: Final = "order"
_KUBEVIRTS_MUTATOR: Final = "virt-api-mutator"
# virt-api-mutator, virt-api-validator, virt-operator-validator and virt-launcher-pod-mutator: Fail and 10 s by design.
_KUBEVIRTS: Final = ("virt-api-", "virt-operator-", "virt-launcher-")
_LONG_SECONDS: Final = 10
_POD_RESOURCES: Final = ("", ("pods", "*", "*/*"))
_VM_RESOURCES: Final = (names.KUBEVIRT_GROUP, ("virtualmachines", "*", "*/*"))
_REVIEWED: Final = (
    _POD_RESOURCES,
    ("", ("pods/eviction", "pods/*", "*/*")),
    *((names.KUBEVIRT_GROUP, (plural, "*", "*/*")) for plural in ("virtualmachines", "virtualmachineinstances")),
    (names.KUBEVIRT_GROUP, ("virtualmachineinstancemigrations", "*", "*/*")),
)


async def check_webhooks(installation: Installation) -> list[Finding]:
    """Compare the cluster's configurations with `registration.configurations`."""
    findings: list[Finding] = []
    for kind in CONFIGURATIONS:
        live = await installation.configurations(kind)
        if isinstance(live, Unavailable):
            findings.append(unreadable(_WEBHOOKS, f"{kind}s", live))
            continue
        desired = [manifest for manifest in installation.expected_configurations() if manifest["kind"] == kind]
        by_name = {configuration.meta.name: configuration for configuration in live}
        for manifest in desired:
            findings += _compare(manifest, by_name.get(manifest["metadata"]["name"]))
        own_names = {manifest["metadata"]["name"] for manifest in desired}
        findings += _find_leftovers(kind, (leftover for leftover in live if leftover.meta.name not in own_names))
    return findings


async def find_trial(installation: Installation) -> list[Finding]:
    """The configurations of `serve --register`; none where an installation's own are there, or cannot be read."""
    live = await installation.every_configuration()
    if isinstance(live, Unavailable):
        return []
    own = (names.FIRST_CONFIGURATION, names.LAST_CONFIGURATION)
    found = []
    for kind, each in live:
        urls = [entry.client_config.url or "" for entry in each.entries]
        if each.meta.name in own:
            return []
        if (each.meta.name or "").startswith(tuple(f"{name}-" for name in own)) and urls and all(urls):
            url = urlsplit(urls[0])._replace(path="", query="").geturl()
            what = (
                f"belongs to a trial (serve --register) at {url}: every failure policy is Ignore, and nothing denies a"
                " label with an invalid value; what only an installation has is not checked"
            )
            todo = "end the server with Ctrl-C, which deletes it; to install: kubevirt-webhook install"
            found.append(Finding(_WEBHOOKS, "trial", f"{kind} {each.meta.name}", "warning", what, todo))
    return found


class _Comparison(NamedTuple):
    """A configuration's entries by name, in their order.

    Attributes:
        desired: the entries that the settings require.
        live: the entries in the cluster.
    """

    subject: str
    desired: dict[str, _Entry]
    live: dict[str, _Entry]

    def pairs(self) -> Iterator[tuple[str, _Entry, _Entry]]:
        """The entries of both sides that are switched on: name, desired, live."""
        for name, desired in self.desired.items():
            if name in self.live and not _is_inactive(self.live[name]):
                yield name, desired, self.live[name]


def _compare(manifest: Manifest, live: InstalledWebhookConfiguration | None) -> list[Finding]:
    subject = f"{manifest['kind']} {manifest['metadata']['name']}"
    desired: list[_Entry] = msgspec.to_builtins(manifest.get("webhooks", ()))
    entries = pluralize(len(desired), "entry", "entries")
    if live is None:
        what = f"does not exist, so the API server does not call kubevirt-webhook for its {entries}"
        return [Finding(_WEBHOOKS, "configuration-missing", subject, "failure", what, APPLY)]
    comparison = _Comparison(
        subject,
        {entry["name"]: entry for entry in desired},
        {str(entry.get("name")): entry for entry in live.webhooks or ()},
    )
    findings = [
        *_missing_entries(comparison),
        *_extra_entries(comparison),
        *_misordered_entries(comparison),
        *_inactive_entries(comparison),
        *_changed_fields(comparison),
    ]
    return findings or [
        Finding(_WEBHOOKS, "configuration-correct", subject, "ok", f"has the {entries} of the settings")
    ]


def _missing_entries(comparison: _Comparison) -> Iterator[Finding]:
    missing = [name for name in comparison.desired if name not in comparison.live]
    if missing:
        what = f"lacks {pluralize(len(missing), 'entry', 'entries')}: {_list_entries(missing)}"
        yield Finding(_WEBHOOKS, "entries-missing", comparison.subject, "failure", what, APPLY)


def _extra_entries(comparison: _Comparison) -> Iterator[Finding]:
    extra = [name for name in comparison.live if name not in comparison.desired]
    own = [name for name in extra if name.endswith(f".{names.DOMAIN}")]
    foreign = [name for name in extra if not name.endswith(f".{names.DOMAIN}")]
    if own:
        what = f"has {pluralize(len(own), 'entry', 'entries')} that the settings disable: {_list_entries(own)}"
        yield Finding(_WEBHOOKS, "entries-switched-off", comparison.subject, "failure", what, APPLY)
    if foreign:
        what = f"has {pluralize(len(foreign), 'entry', 'entries')} of another program: {abbreviate(foreign)}"
        todo = "move them to another configuration"
        yield Finding(_WEBHOOKS, "entries-foreign", comparison.subject, "warning", what, todo)


def _misordered_entries(comparison: _Comparison) -> Iterator[Finding]:
    live = [name for name in comparison.live if name in comparison.desired]
    if live != [name for name in comparison.desired if name in comparison.live]:
        what = "has its entries in another order than the settings: instancetypes must come before scheduling"
        yield Finding(_WEBHOOKS, "entries-misordered", comparison.subject, "warning", what, APPLY)


def _inactive_entries(comparison: _Comparison) -> Iterator[Finding]:
    inactive = [name for name in comparison.desired if _is_inactive(comparison.live.get(name, {}))]
    if inactive:
        what = f"has {pluralize(len(inactive), 'entry', 'entries')} not switched on yet: {_list_entries(inactive)}"
        todo = 'run "kubevirt-webhook install" again: the last run did not finish'
        yield Finding(_WEBHOOKS, "entries-inactive", comparison.subject, "failure", what, todo)


def _is_inactive(entry: _Entry) -> bool:
    """Whether `install` has created the entry and not switched it on yet."""
    return entry.get("matchConditions") == [NOT_YET]


def _changed_fields(comparison: _Comparison) -> Iterator[Finding]:
    """Entries with the same difference in a field share a finding."""
    for field in (*_GRAVE, *_LESSER):
        by_difference: dict[str, list[str]] = {}
        for name, desired, live in comparison.pairs():
            difference = _describe_difference(field, desired.get(field), live.get(field))
            if difference:
                by_difference.setdefault(difference, []).append(name)
        for difference, entries in by_difference.items():
            verdict: Verdict = "failure" if field in _GRAVE else "warning"
            what = f"{field} {difference}: {_list_entries(entries)}"
            yield Finding(_WEBHOOKS, f"field-differs:{field}", comparison.subject, verdict, what, APPLY)


def _describe_difference(field: str, desired: Any, live: Any) -> str:
    """A clause; empty where there is no difference."""
    desired, live = _normalize(field, desired), _normalize(field, live)
    if desired == live:
        return ""
    return f"is {live} but the settings require {desired}" if field in _SCALARS else "differs from the settings"


def _normalize(field: str, value: Any) -> Any:
    """A field without the caBundle, which another program writes, and with an empty value as an absent one."""
    if field == "clientConfig" and isinstance(value, dict):
        return {key: part for key, part in value.items() if key != "caBundle"}
    return value or None


def _find_leftovers(kind: str, others: Iterable[InstalledWebhookConfiguration]) -> list[Finding]:
    return [
        Finding(
            _WEBHOOKS,
            "leftover",
            f"{kind} {other.meta.name}",
            "warning",
            'has entries of kubevirt-webhook outside this installation, for example those of "serve --register"',
            f"delete it if it is not in use: kubectl delete {kind.lower()} {other.meta.name}",
        )
        for other in others
        if other.own_entries or other.meta.label("app.kubernetes.io/name") == NAME
    ]


def _list_entries(entries: list[str]) -> str:
    return abbreviate([name.removesuffix(f".{names.DOMAIN}") for name in entries])


async def check_selectors(installation: Installation) -> list[Finding]:
    """Evaluate the cluster's selectors on the cluster's namespaces."""
    live, namespaces = await installation.every_configuration(), await installation.namespaces()
    for subject, answer in (("webhook configurations", live), ("namespaces", namespaces)):
        if isinstance(answer, Unavailable):
            return [unreadable(_SELECTORS, subject, answer)]
    assert not isinstance(live, Unavailable)
    assert not isinstance(namespaces, Unavailable)
    findings: list[Finding] = []
    kubevirts = await installation.kubevirts()
    if isinstance(kubevirts, Unavailable):
        findings.append(unreadable(_SELECTORS, "KubeVirt's namespace", kubevirts))
        kubevirts = ()
    excluded = _excluded_names(installation, kubevirts)
    excluded_namespaces = [namespace for namespace in namespaces if namespace.meta.name in excluded]
    matches = [
        finding
        for kind, configuration in live
        for finding in _check_namespace_selectors(installation, kind, configuration, excluded_namespaces)
    ]
    if not matches:
        entries = sum(len(configuration.own_entries) for _, configuration in live)
        what = (
            f"0 of {pluralize(entries, 'entry', 'entries')} match any of the "
            f"{pluralize(len(excluded_namespaces), 'namespace')} that must be excluded"
        )
        findings.append(Finding(_SELECTORS, "excluded-not-matched", "namespaceSelectors", "ok", what))
    return findings + matches


def _excluded_names(installation: Installation, kubevirts: Iterable[KubeVirt]) -> set[str]:
    return {
        *_KUBERNETES,
        installation.namespace,
        *(kubevirt.meta.namespace or "" for kubevirt in kubevirts),
        *installation.settings.excluded_namespaces,
    }


def _check_namespace_selectors(
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
        yield Finding(_SELECTORS, "excluded-matched", subject, "failure", what, todo)


def _matched_names(entry: WebhookEntry, namespaces: Iterable[Namespace]) -> Iterator[str]:
    for namespace in namespaces:
        name = namespace.meta.name or ""
        # The API server sets this label on every namespace.
        if selects(entry.namespace_selector, {**(namespace.meta.labels or {}), _NAMESPACE_NAME: name}):
            yield name


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches an object with these labels. An empty or absent selector matches all.

    A malformed one counts as a match: the API server does not accept it, and a false alarm is better than a missed one.
    """
    if selector is None:
        return True
    expressions = selector.expressions()
    if any(expression.problems() for expression in expressions):
        return True
    return all(expression.accepts(labels.get(expression.key)) for expression in expressions)


async def check_order(installation: Installation) -> list[Finding]:
    """Check the names of mutating configurations, and what other webhooks can do to the same requests."""
    live = await installation.every_configuration()
    if isinstance(live, Unavailable):
        return [unreadable(_ORDER, "webhook configurations", live)]
    mutating = sorted(
        (configuration for kind, configuration in live if kind.startswith("Mutating")),
        key=lambda configuration: configuration.meta.name or "",
    )
    others = [configuration for configuration in mutating if not configuration.own_entries]
    return [
        *_check_vm_order(others),
        *_check_pod_order(others),
        *_check_slow([configuration for _, configuration in live if not configuration.own_entries]),
    ]


def _check_vm_order(others: list[InstalledWebhookConfiguration]) -> list[Finding]:
    subject = "VMs"
    first = [
        _name(configuration)
        for configuration in others
        if _name(configuration) < names.FIRST_CONFIGURATION and _matches_any(configuration, *_VM_RESOURCES)
    ]
    if first:
        verb = "changes" if len(first) == 1 else "change"
        what = (
            f"{abbreviate(first)} {verb} VMs before kubevirt-webhook; a schedulerName set there counts as the owner's"
        )
        return [Finding(_ORDER, "vms-changed-before", subject, "ok", what)]
    if _KUBEVIRTS_MUTATOR not in map(_name, others):
        what = f"the cluster has no webhook configuration {_KUBEVIRTS_MUTATOR}"
        return [Finding(_ORDER, "kubevirt-mutator-missing", subject, "warning", what, "check that KubeVirt runs")]
    what = f"the API server calls kubevirt-webhook before {_KUBEVIRTS_MUTATOR}"
    return [Finding(_ORDER, "vms-first", subject, "ok", what)]


def _check_pod_order(others: list[InstalledWebhookConfiguration]) -> list[Finding]:
    after = [
        _name(configuration)
        for configuration in others
        if _name(configuration) > names.LAST_CONFIGURATION and _matches_any(configuration, *_POD_RESOURCES)
    ]
    if after:
        what = f"the API server calls {abbreviate(after)} after kubevirt-webhook, which can change schedulerName again"
        todo = f"rename configurations that set schedulerName so that they sort before {names.LAST_CONFIGURATION}"
        return [Finding(_ORDER, "pods-changed-after", "pods", "warning", what, todo)]
    before = [_name(configuration) for configuration in others if _matches_any(configuration, *_POD_RESOURCES)]
    if not before:
        return [Finding(_ORDER, "pods-alone", "pods", "ok", "no other webhook changes pods")]
    what = f"the API server calls kubevirt-webhook after {abbreviate(before)}"
    return [Finding(_ORDER, "pods-last", "pods", "ok", what)]


def _check_slow(others: Iterable[InstalledWebhookConfiguration]) -> list[Finding]:
    """Other webhooks that can hold requests up for long, which is often attributed to kubevirt-webhook."""
    slow = [
        f"{_name(configuration)} ({entry.timeout_seconds or _LONG_SECONDS}s)"
        for configuration in others
        if not _name(configuration).startswith(_KUBEVIRTS)
        for entry in configuration.entries
        if (entry.failure_policy or "Fail") == "Fail"
        and (entry.timeout_seconds or _LONG_SECONDS) >= _LONG_SECONDS
        and any(_matches(entry, group, resources) for group, resources in _REVIEWED)
    ]
    if not slow:
        return []
    number = pluralize(len(slow), "webhook")
    what = f"{number} of other programs can delay and deny the same requests (timeout): {abbreviate(slow)}"
    return [Finding(_ORDER, "others-slow", "others", "ok", what)]


def _name(configuration: InstalledWebhookConfiguration) -> str:
    return configuration.meta.name or ""


def _matches_any(configuration: InstalledWebhookConfiguration, group: str, resources: tuple[str, ...]) -> bool:
    return any(_matches(entry, group, resources) for entry in configuration.entries)


def _matches(entry: WebhookEntry, group: str, resources: tuple[str, ...]) -> bool:
    """Whether the API server can call it for a CREATE of these resources."""
    expected = (entry.object_selector.match_labels or {}) if entry.object_selector else {}
    if group == "" and expected.get(names.APP_LABEL, names.LAUNCHER_APP) != names.LAUNCHER_APP:
        return False
    return any(
        {group, "*"} & set(rule.api_groups or ())
        and {"CREATE", "*"} & set(rule.operations or ())
        and set(resources) & set(rule.resources or ())
        for rule in entry.rules or ()
    )
