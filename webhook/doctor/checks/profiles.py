"""Looks at a scheduler's profile, if its configuration is in a ConfigMap that a Deployment mounts.

The rules of enabled and disabled plugins are kube-scheduler's: an extension point goes before ``multiPoint``, what is
enabled before what is disabled, and both before the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from webhook import names
from webhook.doctor.support.finding import Finding, abbreviate, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import CONFIG_MAPS, DEPLOYMENTS, title
from webhook.errors import Unavailable
from webhook.settings.snapshot import SchedulerSettings
from webhook.text import pluralize

_CHECK: Final = "schedulers"
_KIND: Final = "KubeSchedulerConfiguration"
_SPREADS_BADLY: Final = "ImageLocality"
# Without these filters VMs are placed on nodes where they cannot run, or two of a group on the same node.
_NEEDED: Final = ("TaintToleration", "InterPodAffinity", "NodeAffinity", "NodeResourcesFit", "NodeUnschedulable")


async def check(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    """Look for the scheduler's profile among the ConfigMaps that Deployments beside its Lease mount."""
    subject, beside = f"profile {scheduler.name}", scheduler.guard.namespace
    look = "check that the profile disables ImageLocality, and does not disable TaintToleration and InterPodAffinity"
    if not beside:
        what = "not checked: the guard in the settings names no Lease, so the scheduler's namespace is unknown"
        return [Finding(_CHECK, "profile-not-located", subject, "unknown", what, look)]
    deployments = await installation.reader.all(DEPLOYMENTS, beside)
    if isinstance(deployments, Unavailable):
        return [unreadable(_CHECK, subject, deployments)]
    for deployment in deployments:
        for volume in deployment.spec.template.spec.volumes or ():
            if volume.config_map is None or not volume.config_map.name:
                continue
            mounted = await installation.reader.get(CONFIG_MAPS, beside, volume.config_map.name)
            if isinstance(mounted, Unavailable):
                return [unreadable(_CHECK, subject, mounted)]
            for profile, all_profiles in _profiles((mounted.data or {}).values() if mounted else ()):
                if profile.get("schedulerName") == scheduler.name:
                    where = title(CONFIG_MAPS, mounted.meta) if mounted else ""
                    return _check_profile(subject, where, profile, all_profiles)
    what = f"not checked: no Deployment in namespace {beside} mounts a ConfigMap that contains it"
    return [Finding(_CHECK, "profile-not-found", subject, "unknown", what, look)]


def _profiles(texts: Any) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Each profile of a configuration, with the names of all; texts that are no configuration are skipped."""
    for text in texts:
        try:
            documents = list(yaml.safe_load_all(text))
        except (yaml.YAMLError, ValueError, RecursionError):
            continue
        for document in documents:
            if not isinstance(document, dict) or document.get("kind") != _KIND:
                continue
            profiles = [one for one in _list(document.get("profiles")) if isinstance(one, dict)]
            every = [str(one.get("schedulerName")) for one in profiles]
            for profile in profiles:
                yield profile, every


def _check_profile(subject: str, where: str, profile: dict[str, Any], every: list[str]) -> list[Finding]:
    plugins = profile.get("plugins")
    plugins = plugins if isinstance(plugins, dict) else {}
    findings = []
    if lost := [name for name in _NEEDED if not _runs(plugins, "filter", name)]:
        plugins_lost = f"{pluralize(len(lost), 'plugin')} that VMs need: {abbreviate(lost)}"
        todo = "enable them; without them VMs are placed on nodes where they cannot run"
        what = f"{where} disables {plugins_lost}"
        findings.append(Finding(_CHECK, "filters-disabled", subject, "failure", what, todo))
    if _runs(plugins, "score", _SPREADS_BADLY):
        what = f"{where} enables {_SPREADS_BADLY}, which concentrates VMs on some nodes"
        todo = f"add plugins.score.disabled: [{{name: {_SPREADS_BADLY}}}] to the profile"
        findings.append(Finding(_CHECK, "image-locality-enabled", subject, "warning", what, todo))
    if names.DEFAULT_SCHEDULER in every:
        what = f"{where} also has a profile {names.DEFAULT_SCHEDULER}"
        todo = "remove it, unless this is the only scheduler: two schedulers of one name compete for the same pods"
        findings.append(Finding(_CHECK, "default-profile", subject, "warning", what, todo))
    what = f"{where} disables {_SPREADS_BADLY} and keeps the plugins that VMs need"
    return findings or [Finding(_CHECK, "profile-correct", subject, "ok", what)]


def _runs(plugins: dict[str, Any], point: str, name: str) -> bool:
    """Whether a default plugin runs at an extension point."""
    for place in (point, "multiPoint"):
        lists = plugins.get(place)
        lists = lists if isinstance(lists, dict) else {}
        if name in _names(lists.get("enabled")):
            return True
        if {name, "*"} & _names(lists.get("disabled")):
            return False
    return True


def _names(plugins: Any) -> set[str]:
    return {str(one.get("name")) for one in _list(plugins) if isinstance(one, dict)}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
