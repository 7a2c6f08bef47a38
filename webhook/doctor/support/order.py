"""Looks at the webhooks of other programs that the API server calls for the same objects.

The API server calls mutating webhooks in the order of their configurations' names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook import names
from webhook.doctor.support.finding import Finding, abbreviate, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import InstalledWebhookConfiguration, WebhookEntry
from webhook.errors import Unavailable
from webhook.text import pluralize

CHECK: Final = "order"

_KUBEVIRTS_MUTATOR: Final = "virt-api-mutator"
# virt-api-mutator, virt-api-validator, virt-operator-validator and virt-launcher-pod-mutator: Fail and 10 s by design.
_KUBEVIRTS: Final = ("virt-api-", "virt-operator-", "virt-launcher-")
_LONG_SECONDS: Final = 10
_PODS: Final = ("", ("pods", "*", "*/*"))
_VMS: Final = (names.KUBEVIRT_GROUP, ("virtualmachines", "*", "*/*"))
_WATCHED: Final = (
    _PODS,
    ("", ("pods/eviction", "pods/*", "*/*")),
    *((names.KUBEVIRT_GROUP, (plural, "*", "*/*")) for plural in ("virtualmachines", "virtualmachineinstances")),
    (names.KUBEVIRT_GROUP, ("virtualmachineinstancemigrations", "*", "*/*")),
)


async def check(installation: Installation) -> list[Finding]:
    """Check the names of mutating configurations, and what other webhooks can do to the same requests."""
    live = await installation.every_configuration()
    if isinstance(live, Unavailable):
        return [unreadable(CHECK, "webhook configurations", live)]
    mutating = sorted(
        (configuration for kind, configuration in live if kind.startswith("Mutating")),
        key=lambda configuration: configuration.meta.name or "",
    )
    others = [configuration for configuration in mutating if not configuration.own_entries]
    return [
        *_vms(others),
        *_pods(others),
        *_slow([configuration for _, configuration in live if not configuration.own_entries]),
    ]


def _vms(others: list[InstalledWebhookConfiguration]) -> list[Finding]:
    subject = "VMs"
    first = [
        _name(configuration)
        for configuration in others
        if _name(configuration) < names.FIRST_CONFIGURATION and _matches_any(configuration, *_VMS)
    ]
    if first:
        verb = "changes" if len(first) == 1 else "change"
        what = (
            f"{abbreviate(first)} {verb} VMs before kubevirt-webhook; a schedulerName set there counts as the owner's"
        )
        return [Finding(CHECK, "vms-changed-before", subject, "ok", what)]
    if _KUBEVIRTS_MUTATOR not in map(_name, others):
        what = f"the cluster has no webhook configuration {_KUBEVIRTS_MUTATOR}"
        return [Finding(CHECK, "kubevirt-mutator-missing", subject, "warning", what, "check that KubeVirt runs")]
    what = f"the API server calls kubevirt-webhook before {_KUBEVIRTS_MUTATOR}"
    return [Finding(CHECK, "vms-first", subject, "ok", what)]


def _pods(others: list[InstalledWebhookConfiguration]) -> list[Finding]:
    after = [
        _name(configuration)
        for configuration in others
        if _name(configuration) > names.LAST_CONFIGURATION and _matches_any(configuration, *_PODS)
    ]
    if after:
        what = f"the API server calls {abbreviate(after)} after kubevirt-webhook, which can change schedulerName again"
        todo = f"rename configurations that set schedulerName so that they sort before {names.LAST_CONFIGURATION}"
        return [Finding(CHECK, "pods-changed-after", "pods", "warning", what, todo)]
    before = [_name(configuration) for configuration in others if _matches_any(configuration, *_PODS)]
    if not before:
        return [Finding(CHECK, "pods-alone", "pods", "ok", "no other webhook changes pods")]
    what = f"the API server calls kubevirt-webhook after {abbreviate(before)}"
    return [Finding(CHECK, "pods-last", "pods", "ok", what)]


def _slow(others: Iterable[InstalledWebhookConfiguration]) -> list[Finding]:
    """Other webhooks that can hold requests up for long, which is often attributed to kubevirt-webhook."""
    slow = [
        f"{_name(configuration)} ({entry.timeout_seconds or _LONG_SECONDS}s)"
        for configuration in others
        if not _name(configuration).startswith(_KUBEVIRTS)
        for entry in configuration.entries
        if (entry.failure_policy or "Fail") == "Fail"
        and (entry.timeout_seconds or _LONG_SECONDS) >= _LONG_SECONDS
        and any(_matches(entry, group, resources) for group, resources in _WATCHED)
    ]
    if not slow:
        return []
    number = pluralize(len(slow), "webhook")
    what = f"{number} of other programs can delay and deny the same requests (timeout): {abbreviate(slow)}"
    return [Finding(CHECK, "others-slow", "others", "ok", what)]


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
