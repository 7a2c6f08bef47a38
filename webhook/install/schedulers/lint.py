"""The mistakes that are made in a KubeSchedulerConfiguration for VMs: where, what follows, and what to do.

Each was tried with the real kube-scheduler; docs/schedulers.md names the consequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from webhook import names
from webhook.errors import quote
from webhook.k8s.yaml_documents import Document

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
    plugins = _as_mapping(profile.get("plugins"))
    for place in (point, "multiPoint"):
        lists = _as_mapping(plugins.get(place))
        if plugin in plugin_names(lists.get("enabled")):
            return True
        if {plugin, "*"} & plugin_names(lists.get("disabled")):
            return False
    return True


def queue_sort(profile: Mapping[str, Any]) -> str:
    """The plugin that orders a profile's queue; all profiles of a scheduler share one queue."""
    plugins = _as_mapping(profile.get("plugins"))
    for place in ("queueSort", "multiPoint"):
        lists = _as_mapping(plugins.get(place))
        enabled = [name for name in plugin_names(lists.get("enabled")) if place == "queueSort" or name.endswith("Sort")]
        if enabled:
            return min(enabled)
    return QUEUE_SORT


def arguments(profile: Mapping[str, Any], plugin: str) -> Mapping[str, Any]:
    """The arguments that a profile gives to a plugin; empty for none."""
    entries = profile.get("pluginConfig")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == plugin:
            return _as_mapping(entry.get("args"))
    return {}


def plugin_names(plugins: Any) -> set[str]:
    """The names in a list of plugins, of whatever type."""
    listed = plugins if isinstance(plugins, list) else []
    return {str(entry.get("name")) for entry in listed if isinstance(entry, dict)}


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


KIND: Final = "KubeSchedulerConfiguration"
API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
# What kube-scheduler takes where its configuration names no Lease (pkg/scheduler/apis/config/v1/defaults.go).
DEFAULT_LEASE: Final = ("kube-system", "kube-scheduler")

Severity = Literal["error", "warning"]
Path = tuple[str | int, ...]


class Problem(msgspec.Struct, frozen=True):
    """One mistake.

    Attributes:
        code: names the kind of mistake, for programs.
        severity: ``error``: the scheduler does not start, or VMs cannot run; ``warning``: they are placed badly.
        path: the path of the field in the document; empty for the document itself.
        text: what is wrong, as a sentence without a full stop.
        consequence: what follows, as a sentence without a full stop.
        remedy: what to do, as a clause.
    """

    code: str
    severity: Severity
    path: Path
    text: str
    consequence: str
    remedy: str


class LintTarget(msgspec.Struct, frozen=True):
    """What a configuration is for.

    Attributes:
        profile: the profile for VMs, by its schedulerName.
        is_the_clusters: it configures the cluster's own scheduler, rather than one beside it.
    """

    profile: str = "kubevirt"
    is_the_clusters: bool = False


def is_configuration(document: Document) -> bool:
    """Whether a document is a KubeSchedulerConfiguration, of any version."""
    value = document.value
    return isinstance(value, dict) and value.get("kind") == KIND


def lint(document: Document, scheduler: LintTarget) -> list[Problem]:
    """The mistakes in a configuration, in the order of the rules.

    Args:
        document: a KubeSchedulerConfiguration, as plain JSON of any types.
        scheduler: the scheduler that is to run with the configuration.
    """
    configuration: Mapping[str, Any] = document.value if isinstance(document.value, dict) else {}
    return [problem for rule in _RULES for problem in rule(configuration, scheduler)]


def profiles_of(configuration: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The profiles with their positions; what is not a mapping is left out."""
    listed = configuration.get("profiles")
    return [
        (index, profile)
        for index, profile in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(profile, dict)
    ]


def _stale_version(configuration: Mapping[str, Any], _: LintTarget) -> Iterator[Problem]:
    version = configuration.get("apiVersion")
    if version == API_VERSION:
        return
    yield Problem(
        "stale-api-version",
        "error",
        ("apiVersion",),
        f"apiVersion is {quote(str(version))}",
        "kube-scheduler 1.29 and newer does not start with it",
        f"set it to {API_VERSION}",
    )


def _no_profile(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    if any(profile.get("schedulerName") == scheduler.profile for _, profile in profiles_of(configuration)):
        return
    yield Problem(
        "no-profile",
        "error",
        ("profiles",),
        f"no profile has the schedulerName {quote(scheduler.profile)}",
        "pods that name it stay Pending",
        f"add a profile with schedulerName {scheduler.profile}, or name the right one with --profile",
    )


def _default_profile(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    positions = [index for index, profile in profiles_of(configuration) if _name(profile) == names.DEFAULT_SCHEDULER]
    if scheduler.is_the_clusters and not positions:
        yield Problem(
            "default-profile-missing",
            "error",
            ("profiles",),
            f"no profile has the schedulerName {quote(names.DEFAULT_SCHEDULER)}",
            "every pod without a schedulerName of its own stays Pending, in the whole cluster",
            f"add a profile with schedulerName {names.DEFAULT_SCHEDULER}",
        )
    if not scheduler.is_the_clusters and positions:
        yield Problem(
            "default-profile-twice",
            "error",
            ("profiles", positions[0]),
            f"a profile has the schedulerName {quote(names.DEFAULT_SCHEDULER)}",
            "two schedulers place the same pods, and overcommit nodes",
            "remove the profile, unless this is the cluster's own scheduler (scheduler lint --cluster-scheduler)",
        )


def _queue_sorts(configuration: Mapping[str, Any], _: LintTarget) -> Iterator[Problem]:
    sorts = {index: queue_sort(profile) for index, profile in profiles_of(configuration)}
    if len(set(sorts.values())) < 2:
        return
    first = next(iter(sorts.values()))
    index = next(index for index, name in sorts.items() if name != first)
    yield Problem(
        "differing-queue-sort",
        "error",
        ("profiles", index, "plugins"),
        f"profiles use the queueSort plugins {' and '.join(sorted(set(sorts.values())))}",
        "kube-scheduler does not start: all profiles share one queue",
        "use the same queueSort plugin in every profile",
    )


def _same_names(configuration: Mapping[str, Any], _: LintTarget) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, profile in profiles_of(configuration):
        name = _name(profile)
        if name in seen:
            yield Problem(
                "duplicate-profile",
                "error",
                ("profiles", index, "schedulerName"),
                f"a profile before this one has the schedulerName {quote(name)}, too",
                "kube-scheduler does not start",
                "give each profile a schedulerName of its own",
            )
        seen.add(name)


def _lease(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    election = configuration.get("leaderElection")
    election = election if isinstance(election, dict) else {}
    if election.get("leaderElect") is False:
        yield Problem(
            "no-leader-election",
            "warning",
            ("leaderElection", "leaderElect"),
            "leaderElect is false",
            "two replicas would place the same pods, and kubevirt-webhook finds no Lease to check",
            "set it to true, with a Lease of its own",
        )
        return
    lease = (
        election.get("resourceNamespace") or DEFAULT_LEASE[0],
        election.get("resourceName") or DEFAULT_LEASE[1],
    )
    if lease == DEFAULT_LEASE and not scheduler.is_the_clusters:
        yield Problem(
            "lease-clash",
            "error",
            ("leaderElection",),
            f"the Lease is {'/'.join(lease)}, which the cluster's own scheduler holds",
            "this scheduler waits for the Lease and never places a pod, or takes it from the cluster's own",
            "set leaderElection.resourceNamespace and resourceName to a Lease of its own",
        )


def _filters(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    for index, profile in _for_vms(configuration, scheduler):
        for plugin in NEEDED_FILTERS:
            if not runs(profile, "filter", plugin):
                yield Problem(
                    "filter-off",
                    "error",
                    ("profiles", index, "plugins"),
                    f"the profile disables the filter {plugin}",
                    _LOST_FILTERS[plugin],
                    f"remove {plugin} from the disabled plugins; to disable its score alone, list it under score",
                )


_LOST_FILTERS: Final[Mapping[str, str]] = {
    "TaintToleration": "VMs are placed on nodes whose taints they do not tolerate, drained and unready ones among them",
    "InterPodAffinity": "VMs that must stay apart are placed on the same node",
    "NodeAffinity": "VMs are placed on nodes that their nodeSelector or affinity excludes, and migrations fail",
    "NodeResourcesFit": "VMs are placed on nodes without room for them, whose kubelets then reject them",
    "NodeUnschedulable": "VMs are placed on cordoned nodes",
}


def _image_locality(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    for index, profile in _for_vms(configuration, scheduler):
        if runs(profile, "score", IMAGE_LOCALITY):
            yield Problem(
                "image-locality-on",
                "warning",
                ("profiles", index),
                f"the profile runs the score {IMAGE_LOCALITY}",
                "VMs pile up on the nodes that list the virt-launcher image; a node lists only 50 images",
                f"add {IMAGE_LOCALITY} to plugins.score.disabled of the profile",
            )


def _default_constraints(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    for index, profile in _for_vms(configuration, scheduler):
        args = arguments(profile, SPREAD)
        lost = args.get("defaultingType") == "List" and not args.get("defaultConstraints")
        if lost or not runs(profile, "score", SPREAD):
            yield Problem(
                "default-constraints-lost",
                "warning",
                ("profiles", index),
                f"the profile has no default constraints of {SPREAD}, or does not run its score",
                "pods of one Service or ReplicaSet are no longer spread, and the constraints that kubevirt-webhook sets"
                " have no effect where the score is off",
                f"run {SPREAD}, with defaultingType System or with constraints in defaultConstraints",
            )


def _few_nodes(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    places: list[tuple[Path, Any]] = [((), configuration)]
    places += [(("profiles", index), profile) for index, profile in _for_vms(configuration, scheduler)]
    for path, place in places:
        percentage = place.get("percentageOfNodesToScore")
        if isinstance(percentage, int) and 0 < percentage < 100:
            yield Problem(
                "few-nodes-scored",
                "warning",
                (*path, "percentageOfNodesToScore"),
                f"percentageOfNodesToScore is {percentage}",
                "the scheduler stops looking after so many nodes that fit, so VMs are spread less evenly",
                "set it to 100 where VMs are started seldom, or leave it out",
            )


def _extenders(configuration: Mapping[str, Any], _: LintTarget) -> Iterator[Problem]:
    listed = configuration.get("extenders")
    for index, extender in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(extender, dict) and extender.get("ignorable") is not True:
            yield Problem(
                "extender-not-ignorable",
                "warning",
                ("extenders", index),
                f"the extender {quote(str(extender.get('urlPrefix', '')))} is not ignorable",
                "while it does not answer, no pod of any profile is placed",
                "set ignorable: true, unless its filter is vital",
            )


_RULES: Final[tuple[Callable[[Mapping[str, Any], LintTarget], Iterator[Problem]], ...]] = (
    _stale_version,
    _no_profile,
    _default_profile,
    _queue_sorts,
    _same_names,
    _lease,
    _filters,
    _image_locality,
    _default_constraints,
    _few_nodes,
    _extenders,
)


def _for_vms(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return ((index, profile) for index, profile in profiles_of(configuration) if _name(profile) == scheduler.profile)


def _name(profile: Mapping[str, Any]) -> str:
    # kube-scheduler's default for a profile without a name.
    return str(profile.get("schedulerName") or names.DEFAULT_SCHEDULER)
