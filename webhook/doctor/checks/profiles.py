"""Does a scheduler's profile do what VMs need? Seen where its configuration is a mounted ConfigMap.

The rules of enabled and disabled plugins are kube-scheduler's: an extension point goes before ``multiPoint``, what is
enabled before what is disabled, and both before the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from webhook import names
from webhook.doctor.support.finding import Finding, several, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import CONFIG_MAPS, DEPLOYMENTS, title
from webhook.errors import Unavailable
from webhook.settings.snapshot import SchedulerSettings

_CHECK: Final = "schedulers"
_KIND: Final = "KubeSchedulerConfiguration"
_SPREADS_BADLY: Final = "ImageLocality"
# Without these filters VMs go where they can't run, or two of a group to the same node.
_NEEDED: Final = ("TaintToleration", "InterPodAffinity", "NodeAffinity", "NodeResourcesFit", "NodeUnschedulable")


async def check(installation: Installation, scheduler: SchedulerSettings) -> list[Finding]:
    """Look for the scheduler's profile among the ConfigMaps that Deployments beside its Lease mount."""
    subject, beside = f"profile {scheduler.name}", scheduler.guard.namespace
    look = "see yourself that it disables ImageLocality, and neither TaintToleration nor InterPodAffinity"
    if not beside:
        what = "where it runs is not known: its guard names no Lease"
        return [Finding(_CHECK, subject, "unknown", what, look)]
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
    what = f"no Deployment in {beside} mounts a ConfigMap with it"
    return [Finding(_CHECK, subject, "unknown", what, look)]


def _profiles(texts: Any) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Each profile of a configuration, and the names of all of them; what is none is passed over."""
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
        what = f"{where} disables {several(lost)}, without which VMs are placed where they can't run"
        findings.append(Finding(_CHECK, subject, "failure", what, "enable them again"))
    if _runs(plugins, "score", _SPREADS_BADLY):
        what = f"{where} leaves {_SPREADS_BADLY} on, which spreads VMs badly"
        todo = f"add plugins.score.disabled: [{{name: {_SPREADS_BADLY}}}] to the profile"
        findings.append(Finding(_CHECK, subject, "warning", what, todo))
    if names.DEFAULT_SCHEDULER in every:
        what = f"{where} has a profile {names.DEFAULT_SCHEDULER} too"
        todo = "remove it, unless this is the cluster's only scheduler: two of one name place pods twice"
        findings.append(Finding(_CHECK, subject, "warning", what, todo))
    return findings or [Finding(_CHECK, subject, "ok", f"{where} disables {_SPREADS_BADLY}, and nothing that VMs need")]


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
