"""Which plugins a profile of kube-scheduler runs.

The default plugins and the order in which a profile's lists are read are kube-scheduler's own (Kubernetes 1.36,
pkg/scheduler/apis/config/v1/default_plugins.go and pkg/scheduler/framework/runtime/framework.go): an extension point's
own list counts before ``multiPoint``, what is enabled before what is disabled, and both before the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

ExtensionPoint = Literal["queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "bind"]

IMAGE_LOCALITY: Final = "ImageLocality"
SPREAD: Final = "PodTopologySpread"
QUEUE_SORT: Final = "PrioritySort"
# Without these filters a VM is placed where it cannot run, or beside one from which it must stay away.
NEEDED_FILTERS: Final = ("TaintToleration", "InterPodAffinity", "NodeAffinity", "NodeResourcesFit", "NodeUnschedulable")


def runs(profile: Mapping[str, Any], point: ExtensionPoint, plugin: str) -> bool:
    """Whether a profile runs a default plugin at an extension point.

    Args:
        profile: plain JSON, of any type where the type is wrong.
        point: the extension point, as the configuration names it.
        plugin: its name; one that kube-scheduler runs there by default.
    """
    plugins = _mapping(profile.get("plugins"))
    for place in (point, "multiPoint"):
        lists = _mapping(plugins.get(place))
        if plugin in names(lists.get("enabled")):
            return True
        if {plugin, "*"} & names(lists.get("disabled")):
            return False
    return True


def queue_sort(profile: Mapping[str, Any]) -> str:
    """The plugin that orders a profile's queue; all profiles of a scheduler share one queue."""
    plugins = _mapping(profile.get("plugins"))
    for place in ("queueSort", "multiPoint"):
        lists = _mapping(plugins.get(place))
        enabled = [name for name in names(lists.get("enabled")) if place == "queueSort" or name.endswith("Sort")]
        if enabled:
            return min(enabled)
    return QUEUE_SORT


def arguments(profile: Mapping[str, Any], plugin: str) -> Mapping[str, Any]:
    """The arguments that a profile gives to a plugin; empty for none."""
    entries = profile.get("pluginConfig")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == plugin:
            return _mapping(entry.get("args"))
    return {}


def names(plugins: Any) -> set[str]:
    """The names in a list of plugins, of whatever type."""
    listed = plugins if isinstance(plugins, list) else []
    return {str(entry.get("name")) for entry in listed if isinstance(entry, dict)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
