"""Checks an installation from outside, and says what to do. Reads only; a SubjectAccessReview is kept nowhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.doctor.checks import (
    certificates,
    deployment,
    effect,
    kubevirt,
    nodes,
    optin,
    pinning,
    pools,
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
from webhook.doctor.support.reader import Reader, TimedTransport
from webhook.doctor.support.views import CONFIG_MAPS
from webhook.errors import InputError, Unavailable
from webhook.install.plan import SETTINGS_KEY
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.settings.file import default_settings, parse
from webhook.settings.snapshot import Settings

# Of the JSON form; a change that a reader must know of makes it another.
SCHEMA: Final = 1

_CHECKS: Final = (
    *(webhooks, selectors, certificates, rights, deployment, schedulers, order),
    *(kubevirt, optin, effect, pools, pinning, relabelling, nodes, spread, clocks),
)
_SETTINGS: Final = "settings"


class Report(msgspec.Struct, frozen=True):
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst."""
        return next((one for one in VERDICTS if any(each.verdict == one for each in self.findings)), "ok")

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
        """Plain JSON."""
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
        settings: None: those that the cluster's ConfigMap has.
        manifests: the directory.
        url: ``https://HOST:PORT`` of a server outside the cluster; empty: the settings' Service.

    Raises:
        InputError: the API server gives no answer, or the settings must be given because they can't be read.
    """
    date = await api.date()
    if isinstance(date, Unavailable):
        raise InputError(f"the cluster gave no answer: {date.why}", fix="check the kubeconfig")
    reader = Reader(api)
    findings: list[Finding] = []
    if settings is None:
        settings = await _settings(reader, findings)
        if settings is None:
            return Report(tuple(findings))
    installation = Installation(reader, settings, url, manifests, clock)
    for found in await asyncio.gather(*(module.check(installation) for module in _CHECKS)):
        findings += found
    findings += _check_malformed(reader)
    return Report(tuple(findings))


async def _settings(reader: Reader, findings: list[Finding]) -> Settings | None:
    """The cluster's own settings; None where they have a mistake, by which nothing else can be judged."""
    subject = f"ConfigMap {NAME}/{NAME}"
    found = await reader.get(CONFIG_MAPS, NAME, NAME)
    if isinstance(found, Unavailable):
        raise InputError(f"the settings can't be read: {found.why}", subject, "give them with --config")
    text = (found.data or {}).get(SETTINGS_KEY) if found else None
    if text is None:
        what = f"there is none with {SETTINGS_KEY}, so the defaults were taken for the settings"
        findings.append(Finding(_SETTINGS, subject, "warning", what, "give the settings with --config"))
        return default_settings()
    try:
        settings = parse(text.encode(errors="replace"), f"{subject} {SETTINGS_KEY}")
    except InputError as error:
        what = f"{error}".replace("\n", "; ")
        todo = "repair it: replicas keep the last good settings, and new ones can't start"
        findings.append(Finding(_SETTINGS, subject, "failure", what, todo))
        return None
    findings.append(Finding(_SETTINGS, subject, "ok", "they have no mistake"))
    return settings


def _check_malformed(reader: Reader) -> Sequence[Finding]:
    return [
        Finding(
            "objects",
            kind,
            "unknown",
            f"{number} can't be decoded, and {'was' if number == 1 else 'were'} passed over",
            "repair it: the API server would not take it today",
        )
        for kind, number in sorted(reader.malformed.items())
    ]
