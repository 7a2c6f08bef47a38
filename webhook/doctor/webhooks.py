"""The webhook configurations of the cluster, against the settings: rules, selectors, and those of other programs.

The API server calls mutating webhooks in the order of their configurations' names.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from webhook import names
from webhook.doctor.installation import DEPLOYMENTS, Installation
from webhook.errors import Unavailable
from webhook.findings import Finding, check, failure, ok, readable, unreadable, warning
from webhook.install.apply import KEEP_AKS
from webhook.install.registration import NOT_YET, Manifest, deletion_command
from webhook.install.stored_settings import NAME
from webhook.install.webhooks import CONFIGURATIONS, InstalledWebhookConfiguration, WebhookEntry
from webhook.k8s.resources import CONFIG_MAPS, NAMESPACES
from webhook.k8s.types.meta import Namespace
from webhook.k8s.types.selectors import LabelSelector
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.text import abbreviate, pluralize

_WEBHOOKS: Final = "webhooks"
# What an entry does and to which objects; a difference elsewhere costs time or tidiness.
_GRAVE: Final = ("clientConfig", "rules", "namespaceSelector", "objectSelector", "matchConditions", "failurePolicy")
_LESSER: Final = ("timeoutSeconds", "matchPolicy", "sideEffects", "reinvocationPolicy", "admissionReviewVersions")
_SCALARS: Final = ("failurePolicy", "timeoutSeconds", "matchPolicy", "sideEffects", "reinvocationPolicy")
_KUBERNETES: Final = ("kube-system", "kube-public", "kube-node-lease")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_KUBEVIRTS_MUTATOR: Final = "virt-api-mutator"
# virt-api-mutator, virt-api-validator, virt-operator-validator and virt-launcher-pod-mutator: Fail and 10 s by design.
_KUBEVIRTS: Final = ("virt-api-", "virt-operator-", "virt-launcher-")
_LONG_SECONDS: Final = 10
_CONNECT_SECONDS: Final = 3.0
# What the admissions enforcer of AKS adds to every namespaceSelector, in no fixed order.
_BY_AKS: Final = (
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "control-plane", "operator": "DoesNotExist"},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
)
_POD_RESOURCES: Final = ("", ("pods", "*", "*/*"))
_REVIEWED: Final = (
    _POD_RESOURCES,
    ("", ("pods/eviction", "pods/*", "*/*")),
    *((names.KUBEVIRT_GROUP, (plural, "*", "*/*")) for plural in ("virtualmachines", "virtualmachineinstances")),
    (names.KUBEVIRT_GROUP, ("virtualmachineinstancemigrations", "*", "*/*")),
)


@check(_WEBHOOKS)
async def check_webhooks(installation: Installation) -> list[Finding]:
    """Compare the cluster's configurations with `registration.configurations`."""
    return [each for kind in CONFIGURATIONS for each in await _check_configurations(installation, kind)]


@check(_WEBHOOKS)
async def _check_configurations(installation: Installation, kind: str) -> list[Finding]:
    live = readable(f"{kind}s", await installation.reader.all(CONFIGURATIONS[kind]))
    by_name = {configuration.meta.name: configuration for configuration in live}
    todo = await installation.remedy()
    findings: list[Finding] = []
    for manifest in installation.expected_configurations():
        if manifest["kind"] == kind:
            findings += _compare(manifest, by_name.pop(manifest["metadata"]["name"], None), todo)
    for other in by_name.values():
        if other.is_own:
            what = 'has entries of kubevirt-webhook outside this installation, for example those of "serve --register"'
            todo = f"delete it if it is not in use: kubectl delete {kind.lower()} {other.meta.name}"
            findings.append(warning("leftover", f"{kind} {other.meta.name}", what, todo))
    return findings


@check(_WEBHOOKS)
async def find_trial(installation: Installation) -> list[Finding]:
    """The configurations of `serve --register`; none where an installation's own are there, or cannot be read."""
    live = await installation.every_configuration()
    own = (names.FIRST_CONFIGURATION, names.LAST_CONFIGURATION)
    if isinstance(live, Unavailable) or any(each.meta.name in own for _, each in live):
        return []
    findings: list[Finding] = []
    trials: list[tuple[str, InstalledWebhookConfiguration, str]] = []
    for kind, each in live:
        urls = [entry.client_config.url or "" for entry in each.entries]
        if (each.meta.name or "").startswith(tuple(f"{name}-" for name in own)) and urls and all(urls):
            trials.append((kind, each, urlsplit(urls[0])._replace(path="", query="").geturl()))
    # Of a cluster in files, nobody knows whether this machine could reach it.
    is_in_files = isinstance(installation.reader.api, Unavailable)
    problems = {} if is_in_files else {url: await _why_silent(url) for url in {url for _, _, url in trials}}
    names_of = [(kind, each.meta.name or "") for kind, each, url in trials if problems.get(url)]
    for kind, each, url in trials:
        what = f"belongs to a trial (serve --register) at {url}: every failure policy is Ignore, and nothing denies"
        what += " a label with an invalid value; what only an installation has is not checked"
        todo = "end the server with Ctrl-C, which deletes it; to install: kubevirt-webhook install --image IMAGE"
        if problem := problems.get(url):
            what = f"was left by a trial (serve --register) at {url}, where no server answers this machine: {problem}"
            todo = f"if the server has ended: {deletion_command(names_of)}"
        findings.append(warning("trial", f"{kind} {each.meta.name}", what, todo))
    return findings


@check("installation")
async def find_absence(installation: Installation) -> list[Finding]:
    """That nothing is installed; nothing where a part of an installation is there, or might be."""
    reader, namespace = installation.reader, installation.namespace
    live = await installation.every_configuration()
    if installation.url or isinstance(live, Unavailable) or any(each.is_own for _, each in live):
        return []
    # What cannot be read may be there.
    parts = await reader.get(CONFIG_MAPS, namespace, NAME), await reader.get(DEPLOYMENTS, namespace, NAME)
    if parts != (None, None):
        return []
    what = "is not installed in this cluster; what only an installation has is not checked"
    todo = "to install it: kubevirt-webhook install --image IMAGE; for a server outside the cluster, use --url"
    return [failure("not-installed", NAME, what, todo)]


async def _why_silent(url: str) -> str:
    """Why nothing takes a connection at a URL, as a clause; empty where something does."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 443)
    except TimeoutError:
        return f"no connection within {_CONNECT_SECONDS:.0f}s"
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or 0
        return os.strerror(number).lower() if number > 0 else "its host name cannot be resolved"
    writer.close()
    return ""


def _compare(manifest: Manifest, configuration: InstalledWebhookConfiguration | None, todo: str) -> list[Finding]:
    """The differences between what the settings require and what the cluster has, and what to do about them."""
    subject = f"{manifest['kind']} {manifest['metadata']['name']}"
    expected: list[dict[str, Any]] = msgspec.to_builtins(manifest.get("webhooks", ()))
    entries = _count(expected)
    if configuration is None:
        what = f"does not exist, so the API server does not call kubevirt-webhook for its {entries}"
        return [failure("configuration-missing", subject, what, todo)]
    desired = {entry["name"]: entry for entry in expected}
    live = {str(entry.get("name")): entry for entry in configuration.webhooks or ()}
    # `install` has created these entries and not switched them on yet.
    inactive = [name for name in desired if live.get(name, {}).get("matchConditions") == [NOT_YET]]
    active = [name for name in desired if name in live and name not in inactive]
    findings = [
        *_check_entries(subject, list(desired), list(live), inactive, todo),
        *_changed_fields(subject, [(name, desired[name], live[name]) for name in active], todo),
    ]
    return findings or [ok("configuration-correct", subject, f"has the {entries} of the settings")]


def _count(entries: Sequence[object]) -> str:
    return pluralize(len(entries), "entry", "entries")


def _check_entries(
    subject: str, desired: list[str], live: list[str], inactive: list[str], todo: str
) -> Iterator[Finding]:
    """Which entries there are, by their names in the order of the settings and in that of the cluster."""
    if missing := [name for name in desired if name not in live]:
        yield failure("entries-missing", subject, f"lacks {_count(missing)}: {_list_entries(missing)}", todo)
    extra = [name for name in live if name not in desired]
    if own := [name for name in extra if name.endswith(f".{names.DOMAIN}")]:
        what = f"has {_count(own)} that the settings disable: {_list_entries(own)}"
        yield failure("entries-switched-off", subject, what, todo)
    if foreign := [name for name in extra if name not in own]:
        what = f"has {_count(foreign)} of another program: {abbreviate(foreign)}"
        yield warning("entries-foreign", subject, what, "move them to another configuration")
    if [name for name in live if name in desired] != [name for name in desired if name in live]:
        what = "has its entries in another order than the settings: instancetypes must come before scheduling"
        yield warning("entries-misordered", subject, what, todo)
    if inactive:
        what = f"has {_count(inactive)} not switched on yet: {_list_entries(inactive)}"
        again = 'run "kubevirt-webhook install" again: the last run did not finish'
        yield failure("entries-inactive", subject, what, again)


def _changed_fields(
    subject: str, pairs: list[tuple[str, dict[str, Any], dict[str, Any]]], todo: str
) -> Iterator[Finding]:
    """Entries with the same difference in a field share a finding; the pairs are name, desired entry, live entry."""
    by_aks: list[str] = []
    for field in (*_GRAVE, *_LESSER):
        by_difference: dict[str, list[str]] = {}
        for name, *both in pairs:
            desired, live = (_normalize(field, entry.get(field)) for entry in both)
            if field == "namespaceSelector" and (added := _added_expressions(desired, live)) is not None:
                if added:
                    by_aks.append(name)
            elif desired != live:
                short = field in _SCALARS
                difference = f"is {live} but the settings require {desired}" if short else "differs from the settings"
                by_difference.setdefault(difference, []).append(name)
        for difference, entries in by_difference.items():
            what = f"{field} {difference}: {_list_entries(entries)}"
            yield (failure if field in _GRAVE else warning)(f"field-differs:{field}", subject, what, todo)
    if by_aks:
        what = "the admissions enforcer of AKS has added its own namespaces to namespaceSelector, so the next apply"
        yield warning("changed-by-aks", subject, f"{what} conflicts: {_list_entries(by_aks)}", KEEP_AKS)


def _added_expressions(desired: Any, live: Any) -> list[Any] | None:
    """What AKS has added to a selector whose expressions may have another order; None for any other difference."""
    if not isinstance(live or {}, dict):
        return None
    wanted, found = ((each or {}).get("matchExpressions") or [] for each in (desired, live))
    if not isinstance(found, list) or {*(live or ())} - {"matchExpressions"}:
        return None
    added = [each for each in found if each not in wanted]
    is_whole = all(each in found for each in wanted) and all(each in _BY_AKS for each in added)
    return added if is_whole else None


def _normalize(field: str, value: Any) -> Any:
    """A field without the caBundle, which another program writes, and with an empty value as an absent one."""
    if field == "clientConfig" and isinstance(value, dict):
        return {key: part for key, part in value.items() if key != "caBundle"}
    return value or None


def _list_entries(entries: list[str]) -> str:
    return abbreviate([name.removesuffix(f".{names.DOMAIN}") for name in entries])


@check("selectors")
async def check_selectors(installation: Installation) -> list[Finding]:
    """Evaluate the cluster's selectors on the cluster's namespaces."""
    live = readable("webhook configurations", await installation.every_configuration())
    namespaces = readable("namespaces", await installation.reader.all(NAMESPACES))
    kubevirts, findings = await installation.reader.all(KUBEVIRTS), list[Finding]()
    if isinstance(kubevirts, Unavailable):
        findings.append(unreadable("KubeVirt's namespace", kubevirts))
        kubevirts = ()
    names_of_excluded = {
        *(*_KUBERNETES, installation.namespace, *installation.settings.every_excluded_namespace),
        *(kubevirt.meta.namespace or "" for kubevirt in kubevirts),
    }
    excluded = [namespace for namespace in namespaces if namespace.meta.name in names_of_excluded]
    todo = await installation.remedy()
    matches = [each for pair in live for each in _check_namespace_selectors(installation, *pair, excluded, todo)]
    if not matches:
        entries = _count([entry for _, configuration in live for entry in configuration.own_entries])
        what = f"0 of {entries} match any of the {pluralize(len(excluded), 'namespace')} that must be excluded"
        findings.append(ok("excluded-not-matched", "namespaceSelectors", what))
    return findings + matches


def _check_namespace_selectors(
    installation: Installation,
    kind: str,
    configuration: InstalledWebhookConfiguration,
    excluded: Iterable[Namespace],
    todo: str,
) -> Iterator[Finding]:
    """Entries that match the same namespaces share a finding."""
    entries_by_match: dict[tuple[str, ...], list[str]] = {}
    for entry in configuration.own_entries:
        # The API server sets the label on every namespace.
        labels = {each.meta.name or "": each.meta.labels or {} for each in excluded}
        # The API server accepts no malformed selector; a false alarm is better than a missed one.
        matches = partial((entry.namespace_selector or LabelSelector()).matches, malformed=True)
        if matched := tuple(name for name in labels if matches(labels[name] | {_NAMESPACE_NAME: name})):
            entries_by_match.setdefault(matched, []).append(entry.name)
    for matched, entries in entries_by_match.items():
        number = pluralize(len(matched), "namespace")
        what = f"{_list_entries(entries)} {'matches' if len(entries) == 1 else 'match'} {number} that must be excluded"
        unknown = [name for name in matched if name not in installation.settings.every_excluded_namespace]
        fix = f"set kubevirt: {{namespace: {unknown[0]}}} in the settings, then {todo}" if unknown else todo
        yield failure("excluded-matched", f"{kind} {configuration.meta.name}", f"{what}: {abbreviate(matched)}", fix)


@check("order")
async def check_order(installation: Installation) -> list[Finding]:
    """Check the names of mutating configurations, and what other webhooks can do to the same requests."""
    live = readable("webhook configurations", await installation.every_configuration())
    others = [(kind, configuration) for kind, configuration in live if not configuration.own_entries]
    calls = "calls" if len(others) < len(live) else "would call"
    mutating = sorted((other for kind, other in others if kind.startswith("Mutating")), key=_name)
    of_vms, of_pods = (
        [_name(other) for other in mutating if any(_matches(entry, *resources) for entry in other.entries)]
        for resources in ((names.KUBEVIRT_GROUP, ("virtualmachines", "*", "*/*")), _POD_RESOURCES)
    )
    if first := [name for name in of_vms if name < names.FIRST_CONFIGURATION]:
        what = f"{abbreviate(first)} {'changes' if len(first) == 1 else 'change'} VMs before kubevirt-webhook"
        findings = [ok("vms-changed-before", "VMs", f"{what}; a schedulerName set there counts as the owner's")]
    elif _KUBEVIRTS_MUTATOR not in map(_name, mutating):
        what = f"the cluster has no webhook configuration {_KUBEVIRTS_MUTATOR}"
        findings = [warning("kubevirt-mutator-missing", "VMs", what, "check that KubeVirt runs")]
    else:
        findings = [ok("vms-first", "VMs", f"the API server {calls} kubevirt-webhook before {_KUBEVIRTS_MUTATOR}")]
    if after := [name for name in of_pods if name > names.LAST_CONFIGURATION]:
        what = (
            f"the API server {calls} {abbreviate(after)} after kubevirt-webhook, which can change schedulerName again"
        )
        todo = f"rename configurations that set schedulerName so that they sort before {names.LAST_CONFIGURATION}"
        findings.append(warning("pods-changed-after", "pods", what, todo))
    elif of_pods:
        what = f"the API server {calls} kubevirt-webhook after {abbreviate(of_pods)}"
        findings.append(ok("pods-last", "pods", what))
    else:
        findings.append(ok("pods-alone", "pods", "no other webhook changes pods"))
    # Other webhooks can hold requests up for long, which is often attributed to kubevirt-webhook.
    slow = [
        f"{_name(configuration)} ({entry.timeout_seconds or _LONG_SECONDS}s)"
        for _, configuration in others
        if not _name(configuration).startswith(_KUBEVIRTS)
        for entry in configuration.entries
        if (entry.failure_policy or "Fail") == "Fail"
        and (entry.timeout_seconds or _LONG_SECONDS) >= _LONG_SECONDS
        and any(_matches(entry, group, resources) for group, resources in _REVIEWED)
    ]
    findings += await _check_dead(installation, others)
    if slow:
        number = pluralize(len(slow), "webhook")
        what = f"{number} of other programs can delay and deny the same requests (timeout): {abbreviate(slow)}"
        findings.append(ok("others-slow", "others", what))
    return findings


async def _check_dead(
    installation: Installation, others: Sequence[tuple[str, InstalledWebhookConfiguration]]
) -> list[Finding]:
    """Webhooks of programs whose namespace was deleted: the API server denies what it cannot ask them about."""
    namespaces = await installation.reader.all(NAMESPACES)
    if isinstance(namespaces, Unavailable):
        return []  # Another check reports it.
    present, findings = {namespace.meta.name for namespace in namespaces}, list[Finding]()
    for kind, configuration in others:
        places = {
            service.namespace
            for entry in configuration.entries
            if (entry.failure_policy or "Fail") == "Fail"
            and (service := entry.client_config.service)
            and service.namespace not in present
            and any(_matches(entry, group, resources) for group, resources in _REVIEWED)
        }
        if places:
            where = abbreviate(sorted(places))
            what = f"calls a Service of namespace {where}, which does not exist, so requests that it matches are denied"
            todo = f"if its program was removed: {deletion_command([(kind, _name(configuration))])}"
            findings.append(failure("service-gone", f"{kind} {_name(configuration)}", what, todo))
    return findings


def _name(configuration: InstalledWebhookConfiguration) -> str:
    return configuration.meta.name or ""


def _matches(entry: WebhookEntry, group: str, resources: tuple[str, ...]) -> bool:
    """Whether the API server can call it for a CREATE of these resources."""
    match_labels = (entry.object_selector.match_labels or {}) if entry.object_selector else {}
    if group == "" and match_labels.get(names.APP_LABEL, names.LAUNCHER_APP) != names.LAUNCHER_APP:
        return False
    return any(
        {group, "*"} & set(rule.api_groups or ())
        and {"CREATE", "*"} & set(rule.operations or ())
        and set(resources) & set(rule.resources or ())
        for rule in entry.rules or ()
    )
