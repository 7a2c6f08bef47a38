"""Checks an installation from outside. It changes nothing; a SubjectAccessReview is not stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.cluster.reader import Reader, TimedTransport
from webhook.doctor.checks import (
    certificates,
    deployment,
    effect,
    kubevirt,
    nodes,
    optin,
    pinning,
    pools,
    reach,
    relabelling,
    rights,
    schedulers,
    selectors,
    spread,
    webhooks,
)
from webhook.doctor.checks import clock as clocks
from webhook.doctor.support import order
from webhook.doctor.support.finding import VERDICTS, Finding, Verdict
from webhook.doctor.support.installation import NAME, Installation
from webhook.doctor.support.views import CONFIG_MAPS
from webhook.errors import InputError, Unavailable
from webhook.install.plan import SETTINGS_KEY
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.settings.file import default_settings, parse
from webhook.settings.snapshot import Settings
from webhook.text import pluralize

# The version of the JSON form; an incompatible change increments it.
SCHEMA: Final = 1

_CHECKS: Final = (
    *(webhooks, selectors, certificates, rights, deployment, reach, schedulers, order),
    *(kubevirt, optin, effect, pools, pinning, relabelling, nodes, spread, clocks),
)
_SETTINGS: Final = "settings"


class Report(msgspec.Struct, frozen=True):
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of a finding."""
        return next((verdict for verdict in VERDICTS if self.counts[verdict]), "ok")

    @property
    def groups(self) -> list[tuple[str, list[Finding]]]:
        """Findings by check; failures first, in and among the checks."""
        by_check: dict[str, list[Finding]] = {}
        for finding in self.findings:
            by_check.setdefault(finding.check, []).append(finding)
        for group in by_check.values():
            group.sort(key=_rank)
        return sorted(by_check.items(), key=lambda group: _rank(group[1][0]))

    @property
    def counts(self) -> dict[str, int]:
        """Findings by verdict."""
        counts = Counter(finding.verdict for finding in self.findings)
        return {verdict: counts[verdict] for verdict in VERDICTS}

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        ordered = [finding for _, group in self.groups for finding in group]
        return {
            "schemaVersion": SCHEMA,
            "verdict": self.verdict,
            "counts": self.counts,
            "findings": msgspec.to_builtins(ordered),
        }


def _rank(finding: Finding) -> int:
    return VERDICTS.index(finding.verdict)


async def examine(
    api: TimedTransport, settings: Settings | None, manifests: Path, *, url: str = "", clock: Clock = REAL_TIME
) -> Report:
    """Run every check.

    Args:
        api: the connection to the API server.
        settings: None for those in the cluster's ConfigMap.
        manifests: the directory of the manifests.
        url: ``https://HOST:PORT`` of a server outside the cluster; if empty, the settings' Service is checked.
        clock: the source of time, and of sleep.

    Raises:
        InputError: the API server does not answer, or the ConfigMap cannot be read and no settings were passed.
    """
    date = await api.date()
    if isinstance(date, Unavailable):
        raise InputError(f"the API server did not answer: {date.why}", fix="check the kubeconfig")
    reader = Reader(api)
    findings: list[Finding] = []
    if settings is None:
        settings = await _read_settings(reader, findings)
        if settings is None:
            return Report(tuple(findings))
    installation = Installation(reader, settings, url, manifests, clock)
    for check_findings in await asyncio.gather(*(module.check(installation) for module in _CHECKS)):
        findings += check_findings
    findings += _check_malformed(reader)
    return Report(tuple(findings))


async def _read_settings(reader: Reader, findings: list[Finding]) -> Settings | None:
    """The settings in the cluster; None if they are invalid, without which nothing else can be checked."""
    subject = f"ConfigMap {NAME}/{NAME}"
    config_map = await reader.get(CONFIG_MAPS, NAME, NAME)
    if isinstance(config_map, Unavailable):
        raise InputError(f"the settings cannot be read: {config_map.why}", subject, "use --config FILE")
    text = (config_map.data or {}).get(SETTINGS_KEY) if config_map else None
    if text is None:
        what = f"key {SETTINGS_KEY} does not exist; the other checks use the default settings"
        findings.append(Finding(_SETTINGS, "settings-missing", subject, "warning", what, "use --config FILE"))
        return default_settings()
    try:
        settings = parse(text.encode(errors="replace"), f"{subject} {SETTINGS_KEY}")
    except InputError as error:
        what = f"{error}".replace("\n", "; ")
        todo = "correct the settings: running replicas keep the previous ones, but new replicas cannot start"
        findings.append(Finding(_SETTINGS, "settings-invalid", subject, "failure", what, todo))
        return None
    findings.append(Finding(_SETTINGS, "settings-valid", subject, "ok", "the settings are valid"))
    return settings


def _check_malformed(reader: Reader) -> Sequence[Finding]:
    return [
        Finding(
            "objects",
            "malformed",
            kind,
            "unknown",
            f"{pluralize(number, 'object')} skipped: not valid for this kind",
            "correct or delete it; the API server would not accept it today",
        )
        for kind, number in sorted(reader.malformed.items())
    ]
