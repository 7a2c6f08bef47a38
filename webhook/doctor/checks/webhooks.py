"""Compares the webhook configurations of the cluster with those that the settings require, except for caBundles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from webhook import names
from webhook.doctor.support.finding import Finding, Verdict, abbreviate, unreadable
from webhook.doctor.support.installation import NAME, Installation
from webhook.doctor.support.views import CONFIGURATIONS, InstalledWebhookConfiguration
from webhook.errors import Unavailable
from webhook.install.registration import NOT_YET, Manifest
from webhook.text import pluralize

CHECK: Final = "webhooks"
APPLY: Final = 'run "kubevirt-webhook install", or apply the output of "kubevirt-webhook manifests webhooks"'

_Entry = dict[str, Any]

# What an entry does and to which objects; a difference elsewhere costs time or tidiness.
_GRAVE: Final = ("clientConfig", "rules", "namespaceSelector", "objectSelector", "matchConditions", "failurePolicy")
_LESSER: Final = ("timeoutSeconds", "matchPolicy", "sideEffects", "reinvocationPolicy", "admissionReviewVersions")
_SCALARS: Final = ("failurePolicy", "timeoutSeconds", "matchPolicy", "sideEffects", "reinvocationPolicy")


async def check(installation: Installation) -> list[Finding]:
    """Compare the cluster's configurations with `registration.configurations`."""
    findings: list[Finding] = []
    for kind in CONFIGURATIONS:
        live = await installation.configurations(kind)
        if isinstance(live, Unavailable):
            findings.append(unreadable(CHECK, f"{kind}s", live))
            continue
        wanted = [manifest for manifest in installation.expected_configurations() if manifest["kind"] == kind]
        by_name = {configuration.meta.name: configuration for configuration in live}
        for manifest in wanted:
            findings += _compare(manifest, by_name.get(manifest["metadata"]["name"]))
        known = {manifest["metadata"]["name"] for manifest in wanted}
        findings += _find_leftovers(kind, (leftover for leftover in live if leftover.meta.name not in known))
    return findings


class _Comparison(NamedTuple):
    """A configuration's entries by name, in their order.

    Attributes:
        wanted: the entries that the settings require.
        live: the entries in the cluster.
    """

    subject: str
    wanted: dict[str, _Entry]
    live: dict[str, _Entry]

    def pairs(self) -> Iterator[tuple[str, _Entry, _Entry]]:
        """The entries of both sides that are switched on: name, wanted, live."""
        for name, wanted in self.wanted.items():
            if name in self.live and not _is_inactive(self.live[name]):
                yield name, wanted, self.live[name]


def _compare(manifest: Manifest, live: InstalledWebhookConfiguration | None) -> list[Finding]:
    subject = f"{manifest['kind']} {manifest['metadata']['name']}"
    wanted: list[_Entry] = msgspec.to_builtins(manifest.get("webhooks", ()))
    entries = pluralize(len(wanted), "entry", "entries")
    if live is None:
        what = f"does not exist, so the API server does not call kubevirt-webhook for its {entries}"
        return [Finding(CHECK, "configuration-missing", subject, "failure", what, APPLY)]
    comparison = _Comparison(
        subject,
        {entry["name"]: entry for entry in wanted},
        {str(entry.get("name")): entry for entry in live.webhooks or ()},
    )
    findings = [
        *_missing_entries(comparison),
        *_extra_entries(comparison),
        *_misordered_entries(comparison),
        *_inactive_entries(comparison),
        *_changed_fields(comparison),
    ]
    return findings or [Finding(CHECK, "configuration-correct", subject, "ok", f"has the {entries} of the settings")]


def _missing_entries(comparison: _Comparison) -> Iterator[Finding]:
    missing = [name for name in comparison.wanted if name not in comparison.live]
    if missing:
        what = f"lacks {pluralize(len(missing), 'entry', 'entries')}: {_list_entries(missing)}"
        yield Finding(CHECK, "entries-missing", comparison.subject, "failure", what, APPLY)


def _extra_entries(comparison: _Comparison) -> Iterator[Finding]:
    extra = [name for name in comparison.live if name not in comparison.wanted]
    own = [name for name in extra if name.endswith(f".{names.DOMAIN}")]
    foreign = [name for name in extra if not name.endswith(f".{names.DOMAIN}")]
    if own:
        what = f"has {pluralize(len(own), 'entry', 'entries')} that the settings disable: {_list_entries(own)}"
        yield Finding(CHECK, "entries-switched-off", comparison.subject, "failure", what, APPLY)
    if foreign:
        what = f"has {pluralize(len(foreign), 'entry', 'entries')} of another program: {abbreviate(foreign)}"
        todo = "move them to another configuration"
        yield Finding(CHECK, "entries-foreign", comparison.subject, "warning", what, todo)


def _misordered_entries(comparison: _Comparison) -> Iterator[Finding]:
    live = [name for name in comparison.live if name in comparison.wanted]
    if live != [name for name in comparison.wanted if name in comparison.live]:
        what = "has its entries in another order than the settings: instancetypes must come before scheduling"
        yield Finding(CHECK, "entries-misordered", comparison.subject, "warning", what, APPLY)


def _inactive_entries(comparison: _Comparison) -> Iterator[Finding]:
    inactive = [name for name in comparison.wanted if _is_inactive(comparison.live.get(name, {}))]
    if inactive:
        what = f"has {pluralize(len(inactive), 'entry', 'entries')} not switched on yet: {_list_entries(inactive)}"
        todo = 'run "kubevirt-webhook install" again: the last run did not finish'
        yield Finding(CHECK, "entries-inactive", comparison.subject, "failure", what, todo)


def _is_inactive(entry: _Entry) -> bool:
    """Whether `install` has created the entry and not switched it on yet."""
    return entry.get("matchConditions") == [NOT_YET]


def _changed_fields(comparison: _Comparison) -> Iterator[Finding]:
    """Entries with the same difference in a field share a finding."""
    for field in (*_GRAVE, *_LESSER):
        by_difference: dict[str, list[str]] = {}
        for name, wanted, live in comparison.pairs():
            difference = _describe_difference(field, wanted.get(field), live.get(field))
            if difference:
                by_difference.setdefault(difference, []).append(name)
        for difference, entries in by_difference.items():
            verdict: Verdict = "failure" if field in _GRAVE else "warning"
            what = f"{field} {difference}: {_list_entries(entries)}"
            yield Finding(CHECK, f"field-differs:{field}", comparison.subject, verdict, what, APPLY)


def _describe_difference(field: str, wanted: Any, live: Any) -> str:
    """A clause; empty where there is no difference."""
    wanted, live = _normalize(field, wanted), _normalize(field, live)
    if wanted == live:
        return ""
    return f"is {live} but the settings require {wanted}" if field in _SCALARS else "differs from the settings"


def _normalize(field: str, value: Any) -> Any:
    """A field without the caBundle, which another program writes, and with an empty value as an absent one."""
    if field == "clientConfig" and isinstance(value, dict):
        return {key: part for key, part in value.items() if key != "caBundle"}
    return value or None


def _find_leftovers(kind: str, others: Iterable[InstalledWebhookConfiguration]) -> list[Finding]:
    return [
        Finding(
            CHECK,
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
