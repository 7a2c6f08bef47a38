"""Checks an installation from outside. It changes nothing; a SubjectAccessReview is not stored."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Final

from webhook.cluster.reader import ObjectReader
from webhook.doctor.apiserver import check_api_server
from webhook.doctor.certificates import check_certificates, check_clock
from webhook.doctor.cpu_models import check_cpu_models
from webhook.doctor.deployment import check_deployment, check_reach
from webhook.doctor.effect import check_effect
from webhook.doctor.evacuations import check_evacuations
from webhook.doctor.installation import Installation
from webhook.doctor.kubevirt import check_kubevirt, check_nodes
from webhook.doctor.neighbors import check_neighbors
from webhook.doctor.optin import check_opt_in
from webhook.doctor.permissions import check_relabelling, check_rights
from webhook.doctor.report import Report
from webhook.doctor.schedulers import check_schedulers
from webhook.doctor.spread import check_spread
from webhook.doctor.webhooks import check_order, check_selectors, check_webhooks, find_absence, find_trial
from webhook.errors import FileGap, InputError, Unavailable
from webhook.findings import UNREADABLE, Finding
from webhook.install.plan import SETTINGS_KEY
from webhook.install.stored_settings import read_stored_settings
from webhook.k8s.client.api import Forbidden
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.policies.registry import POLICIES
from webhook.settings.model import Settings
from webhook.settings_file import default_settings, parse
from webhook.text import pluralize

# Of an installation, which a trial is not, and which may be absent.
_INSTALLATION: Final = (
    *(check_webhooks, check_selectors, check_certificates, check_rights, check_deployment, check_reach, check_effect),
)
_CLUSTER: Final = (
    *(check_schedulers, check_order, check_kubevirt, check_opt_in),
    *(check for policy in POLICIES for check in policy.checks),
    *(
        check_relabelling,
        check_nodes,
        check_spread,
        check_cpu_models,
        check_neighbors,
        check_evacuations,
        check_clock,
        check_api_server,
    ),
)
_SETTINGS: Final = "settings"


async def examine(
    reader: ObjectReader, settings: Settings | None, manifests: Path, *, url: str = "", clock: Clock = REAL_TIME
) -> Report:
    """Run every check on a running cluster, or on objects from files: what those do not show is ``unknown``.

    Args:
        reader: where the objects are read.
        settings: None for those in the cluster's ConfigMap.
        manifests: the directory of the manifests.
        url: ``https://HOST:PORT`` of a server outside the cluster; if empty, the settings' Service is checked.
        clock: the source of time, and of sleep.

    Raises:
        InputError: the API server does not answer, or no settings were passed, and the ConfigMap cannot be read for
            another reason than a missing permission, or is not in the files.
    """
    date = None if isinstance(reader.api, Unavailable) else await reader.api.date()
    if isinstance(date, Unavailable):
        raise InputError(f"the API server did not answer: {date.why}", fix="check the kubeconfig")
    of_settings: list[Finding] = []
    if settings is None:
        settings, finding = await _read_settings(reader)
        of_settings.append(finding)
        if settings is None:
            return Report((finding,))
    installation = Installation(reader, settings, url, manifests, clock)
    special = await find_trial(installation)
    if not special and (special := await find_absence(installation)):
        # That there are no settings either is no news.
        of_settings = []
    checks = [*_CLUSTER] if special else [*_INSTALLATION, *_CLUSTER]
    if not special and any(finding.code == "settings-denied" for finding in of_settings):
        checks.remove(check_webhooks)
    groups = await asyncio.gather(*(check(installation) for check in checks))
    what = "skipped: not valid for this kind"
    todo = "correct or delete it; the API server would not accept it today"
    malformed = [
        Finding("objects", "malformed", kind, "unknown", f"{pluralize(number, 'object')} {what}", todo)
        for kind, number in sorted(reader.malformed.items())
    ]
    return Report(tuple(itertools.chain(of_settings, special, *groups, malformed)))


async def _read_settings(reader: ObjectReader) -> tuple[Settings | None, Finding]:
    """The settings in the cluster, or None if they are invalid, without which nothing else can be checked."""
    stored = await read_stored_settings(reader)
    subject, text = stored.subject, stored.text
    if isinstance(text, FileGap) and text.code != UNREADABLE:
        fix = "use --config FILE, or add it to them"
        raise InputError(f"the files hold no ConfigMap of namespace {stored.namespace}", subject, fix)
    if isinstance(text, Forbidden):
        what = f"cannot be read: {text.why}; the other checks use the default settings, and the webhook configurations"
        what += " are not compared with them"
        return default_settings(), Finding(_SETTINGS, "settings-denied", subject, "unknown", what, "use --config FILE")
    if isinstance(text, Unavailable):
        other = f", or {text.todo}" if isinstance(text, FileGap) else ""
        raise InputError(f"the settings cannot be read: {text.why}", subject, f"use --config FILE{other}")
    if text is None:
        what = f"key {SETTINGS_KEY} does not exist; the other checks use the default settings"
        return default_settings(), Finding(_SETTINGS, "settings-missing", subject, "warning", what, "use --config FILE")
    try:
        settings = parse(text.encode(errors="replace"), f"{subject} {SETTINGS_KEY}")
    except InputError as error:
        todo = "correct the settings: running replicas keep the previous ones, but new replicas cannot start. Nothing"
        todo += " else was checked: --config FILE checks it with other settings"
        what = f"{error}".replace("\n", "; ")
        return None, Finding(_SETTINGS, "settings-invalid", subject, "failure", what, todo)
    return settings, Finding(_SETTINGS, "settings-valid", subject, "ok", "the settings are valid")
