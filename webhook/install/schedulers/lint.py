"""The mistakes that are made in a KubeSchedulerConfiguration for VMs: where, what follows, and what to do.

Each was tried with the real kube-scheduler; docs/schedulers.md names the consequences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, Final, Literal

import msgspec

from webhook import names
from webhook.errors import quote
from webhook.forecast.validation import check_structure
from webhook.install.schedulers import successors
from webhook.install.schedulers.go_types import schemas
from webhook.k8s.documents import Document, format_path
from webhook.k8s.json_tree import member
from webhook.placement.profiles import KIND, PLUGINS, profiles_of

IMAGE_LOCALITY: Final = "ImageLocality"
SPREAD: Final = "PodTopologySpread"
QUEUE_SORT: Final = "PrioritySort"


def runs(profile: Mapping[str, Any], point: Literal["filter", "score"], plugin: str) -> bool:
    """Whether a profile, of whatever type, runs a plugin at an extension point where kube-scheduler does by default."""
    for place in (point, "multiPoint"):
        if plugin in plugin_names(member(profile, f"plugins.{place}.enabled")):
            return True
        if {plugin, "*"} & plugin_names(member(profile, f"plugins.{place}.disabled")):
            return False
    return True


def queue_sort(profile: Mapping[str, Any]) -> str:
    """The plugin that orders a profile's queue; all profiles of a scheduler share one queue."""
    for place in ("queueSort", "multiPoint"):
        enabled = plugin_names(member(profile, f"plugins.{place}.enabled"))
        if sorting := [name for name in enabled if place == "queueSort" or name.endswith("Sort")]:
            return min(sorting)
    return QUEUE_SORT


def arguments(profile: Mapping[str, Any], plugin: str) -> Mapping[str, Any]:
    """The arguments that a profile gives to a plugin; empty for none."""
    entries = [entry for entry in _as_list(profile.get("pluginConfig")) if isinstance(entry, dict)]
    return next((_as_mapping(entry.get("args")) for entry in entries if entry.get("name") == plugin), {})


def plugin_names(plugins: Any) -> set[str]:
    """The names in a list of plugins, of whatever type."""
    return {str(entry.get("name")) for entry in _as_list(plugins) if isinstance(entry, dict)}


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
# Its predecessors. A field of theirs that is not known is a mistake in v1, too.
_EARLIER: Final = tuple(
    f"kubescheduler.config.k8s.io/{each}" for each in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3")
)
# What kube-scheduler takes where its configuration names no Lease (pkg/scheduler/apis/config/v1/defaults.go).
DEFAULT_LEASE: Final = ("kube-system", "kube-scheduler")
# By how many letters a name of a plugin may be mistyped.
_MOST_DIFFERING: Final = 2
Severity = Literal["error", "warning"]
Path = tuple[str | int, ...]
# Of kubernetes-sigs/scheduler-plugins, which the load-aware configurations need.
SCHEDULER_PLUGINS: Final = (
    *("CapacityScheduling", "Coscheduling", "LoadVariationRiskBalancing", "LowRiskOverCommitment"),
    *("NetworkOverhead", "NodeMetadata", "NodeResourcesAllocatable", "NodeResourceTopologyMatch", "Peaks"),
    *("PodState", "PreemptionToleration", "QOSSort", "SySched", "TargetLoadPacking", "TopologicalSort"),
)


class Problem(msgspec.Struct, frozen=True):
    """One mistake.

    Attributes:
        code: names the kind of mistake, for programs.
        severity: ``error``: the scheduler does not start, or VMs cannot run; ``warning``: they are placed badly.
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
        plugins: the plugins that the scheduler is built with, beside those of Kubernetes and scheduler-plugins; None:
            they are not known.
        lease: namespace and name of the Lease by the scheduler's flags, which count before its configuration
            (cmd/kube-scheduler/app/options); empty: not by flags.
    """

    profile: str = "kubevirt"
    is_the_clusters: bool = False
    plugins: Collection[str] | None = ()
    lease: tuple[str, str] = ("", "")


def lint(document: Document, scheduler: LintTarget) -> list[Problem]:
    """The mistakes in a configuration, which may be of any types, in the order of the rules."""
    configuration: Mapping[str, Any] = document.value if isinstance(document.value, dict) else {}
    return [problem for rule in _RULES for problem in rule(configuration, scheduler)]


# Without these filters a VM is placed where it cannot run, or beside one from which it must stay away.
_LOST_FILTERS: Final[Mapping[str, str]] = {
    "TaintToleration": "VMs are placed on nodes whose taints they do not tolerate, drained and unready ones among them",
    "InterPodAffinity": "VMs that must stay apart are placed on the same node",
    "NodeAffinity": "VMs are placed on nodes that their nodeSelector or affinity excludes, and migrations fail",
    "NodeResourcesFit": "VMs are placed on nodes without room for them, whose kubelets then reject them",
    "NodeUnschedulable": "VMs are placed on cordoned nodes",
}


def _fields(configuration: Mapping[str, Any], _: LintTarget) -> Iterator[Problem]:
    version = configuration.get("apiVersion")
    if version != API_VERSION:
        text = f"apiVersion is {quote(str(version))}"
        consequence = "kube-scheduler 1.29 and newer does not start with it"
        yield Problem("stale-api-version", "error", ("apiVersion",), text, consequence, f"set it to {API_VERSION}")
        if version not in _EARLIER:
            return
    mistakes = [*check_structure(schemas()[KIND], configuration, ())]
    for index, profile in profiles_of(configuration):
        for number, entry in enumerate(_as_list(profile.get("pluginConfig"))):
            # kube-scheduler looks at no arguments for which it has no kind.
            schema = schemas().get(f"{entry.get('name')}Args") if isinstance(entry, dict) else None
            if schema and entry.get("args") is not None:
                mistakes += check_structure(schema, entry["args"], ("profiles", index, "pluginConfig", number, "args"))
    consequence = "kube-scheduler does not start, since it decodes its configuration strictly"
    for each in mistakes:
        text, remedy = each.text, "correct or remove the field"
        if successor := successors.FIELDS.get(tuple(part for part in each.path if isinstance(part, str))):
            text, remedy = f"kube-scheduler no longer has the field {quote(format_path(each.path))}", successor
        yield Problem("invalid-field", "error", each.path, text, consequence, remedy)


def _plugins(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    if scheduler.plugins is None:
        return
    registry = {*PLUGINS, *SCHEDULER_PLUGINS, *scheduler.plugins}
    for path, name in _named_plugins(configuration):
        if name in registry:
            continue
        is_enabled, is_disabled = "enabled" in path, "disabled" in path
        severity: Severity = "error" if is_enabled else "warning"
        consequence = "the entry has no effect, and kube-scheduler does not say so"
        if is_enabled:
            consequence = "kube-scheduler does not start, unless it is built with such a plugin"
        if successor := successors.PLUGINS.get(name):
            text = f"kube-scheduler no longer has the plugin {quote(name)}"
            remedy = successor.disable if is_disabled else successor.use
        elif elsewhere := successors.ELSEWHERE.get(name):
            text = f"kube-scheduler and scheduler-plugins have no plugin {quote(name)}; {elsewhere}"
            remedy = f"remove the entry, or give --plugin {name} if the scheduler is built with it"
        else:
            text = f"no plugin is called {quote(name)}{_mistyped(name, registry)}"
            remedy = "correct the name, or remove the entry"
            if is_enabled:
                remedy = "correct the name, or give the scheduler's own plugins with --plugin"
        yield Problem("unknown-plugin", severity, path, text, consequence, remedy)


def _mistyped(name: str, registry: Iterable[str]) -> str:
    """A clause with the plugin whose name may be meant.

    Names of plugins share long words (NodeResources, Allocated), so that a likeness of the whole says little: two
    letters may differ, whatever the case.
    """
    for plugin in sorted(registry):
        if _differing(name.lower(), plugin.lower()) <= _MOST_DIFFERING:
            return f"; did you mean {quote(plugin)}?"
    return ""


def _differing(one: str, other: str) -> int:
    """How many letters differ; only names of about the same length are compared."""
    if abs(len(one) - len(other)) > _MOST_DIFFERING:
        return _MOST_DIFFERING + 1
    changes = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in changes if tag != "equal")


def _named_plugins(configuration: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The names of plugins, with their paths; ``*`` stands for all."""
    for index, profile in profiles_of(configuration):
        lists: list[tuple[Path, Any]] = [(("profiles", index, "pluginConfig"), profile.get("pluginConfig"))]
        for point, chosen in _as_mapping(profile.get("plugins")).items():
            path: Path = ("profiles", index, "plugins", point)
            lists += [((*path, part), _as_mapping(chosen).get(part)) for part in ("enabled", "disabled")]
        for path, listed in lists:
            for number, entry in enumerate(_as_list(listed)):
                name = entry.get("name") if isinstance(entry, dict) else None
                if isinstance(name, str) and name != "*":
                    yield (*path, number, "name"), name


def _profiles(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    profiles, profile_name = profiles_of(configuration), scheduler.profile
    path: Path
    if all(_name(profile) != profile_name for _, profile in profiles):
        text, consequence = f"no profile has the schedulerName {quote(profile_name)}", "pods that name it stay Pending"
        remedy = f"add a profile with schedulerName {profile_name}, or name the right one with --profile"
        yield Problem("no-profile", "error", ("profiles",), text, consequence, remedy)
    positions = [index for index, profile in profiles if _name(profile) == names.DEFAULT_SCHEDULER]
    has_it = f"profile has the schedulerName {quote(names.DEFAULT_SCHEDULER)}"
    if scheduler.is_the_clusters and not positions:
        consequence = "every pod without a schedulerName of its own stays Pending, in the whole cluster"
        remedy = f"add a profile with schedulerName {names.DEFAULT_SCHEDULER}"
        yield Problem("default-profile-missing", "error", ("profiles",), f"no {has_it}", consequence, remedy)
    if not scheduler.is_the_clusters and positions:
        path, consequence = ("profiles", positions[0]), "two schedulers place the same pods, and overcommit nodes"
        remedy = "remove the profile, unless this is the cluster's own scheduler (scheduler lint --cluster-scheduler)"
        yield Problem("default-profile-twice", "error", path, f"a {has_it}", consequence, remedy)
    sorts = [(index, queue_sort(profile)) for index, profile in profiles]
    if differing := [index for index, name in sorts if name != sorts[0][1]]:
        text = f"profiles use the queueSort plugins {' and '.join(sorted({name for _, name in sorts}))}"
        consequence = "kube-scheduler does not start: all profiles share one queue"
        path, remedy = ("profiles", differing[0], "plugins"), "use the same queueSort plugin in every profile"
        yield Problem("differing-queue-sort", "error", path, text, consequence, remedy)
    seen: set[str] = set()
    for index, profile in profiles:
        name = _name(profile)
        if name in seen:
            text = f"a profile before this one has the schedulerName {quote(name)}, too"
            path, remedy = ("profiles", index, "schedulerName"), "give each profile a schedulerName of its own"
            yield Problem("duplicate-profile", "error", path, text, "kube-scheduler does not start", remedy)
        seen.add(name)


def _lease(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    election = _as_mapping(configuration.get("leaderElection"))
    if election.get("leaderElect") is False:
        consequence = "two replicas would place the same pods, and kubevirt-webhook finds no Lease to check"
        path, remedy = ("leaderElection", "leaderElect"), "set it to true, with a Lease of its own"
        yield Problem("no-leader-election", "warning", path, "leaderElect is false", consequence, remedy)
        return
    places = (scheduler.lease[0], election.get("resourceNamespace"), DEFAULT_LEASE[0])
    lease_names = (scheduler.lease[1], election.get("resourceName"), DEFAULT_LEASE[1])
    lease = (next(filter(None, places)), next(filter(None, lease_names)))
    if lease == DEFAULT_LEASE and not scheduler.is_the_clusters:
        text = f"the Lease is {'/'.join(lease)}, which the cluster's own scheduler holds"
        consequence = "this scheduler waits for the Lease and never places a pod, or takes it from the cluster's own"
        remedy = "set leaderElection.resourceNamespace and resourceName to a Lease of its own, or have flags name one"
        yield Problem("lease-clash", "error", ("leaderElection",), text, consequence, remedy)


def _for_vms(configuration: Mapping[str, Any], scheduler: LintTarget) -> Iterator[Problem]:
    """The mistakes in the profiles for VMs, and percentageOfNodesToScore of the whole configuration."""
    every = [(("profiles", index), profile) for index, profile in profiles_of(configuration)]
    places: list[tuple[Path, Any]] = [each for each in every if _name(each[1]) == scheduler.profile]
    for path, profile in places:
        for plugin, consequence in _LOST_FILTERS.items():
            if not runs(profile, "filter", plugin):
                text = f"the profile disables the filter {plugin}"
                remedy = f"remove {plugin} from the disabled plugins; to disable its score alone, list it under score"
                yield Problem("filter-off", "error", (*path, "plugins"), text, consequence, remedy)
    for path, profile in places:
        if runs(profile, "score", IMAGE_LOCALITY):
            text = f"the profile runs the score {IMAGE_LOCALITY}"
            consequence = "VMs pile up on the nodes that list the virt-launcher image; a node lists only 50 images"
            remedy = f"add {IMAGE_LOCALITY} to plugins.score.disabled of the profile"
            yield Problem("image-locality-on", "warning", path, text, consequence, remedy)
    for path, profile in places:
        args = arguments(profile, SPREAD)
        lost = args.get("defaultingType") == "List" and not args.get("defaultConstraints")
        if lost or not runs(profile, "score", SPREAD):
            text = f"the profile has no default constraints of {SPREAD}, or does not run its score"
            consequence = "pods of one Service or ReplicaSet are no longer spread, and the constraints that"
            consequence += " kubevirt-webhook sets have no effect where the score is off"
            remedy = f"run {SPREAD}, with defaultingType System or with constraints in defaultConstraints"
            yield Problem("default-constraints-lost", "warning", path, text, consequence, remedy)
    for path, place in [((), configuration), *places]:
        percentage = place.get("percentageOfNodesToScore")
        if isinstance(percentage, int) and 0 < percentage < 100:
            text = f"percentageOfNodesToScore is {percentage}"
            consequence = "the scheduler stops looking after so many nodes that fit, so VMs are spread less evenly"
            remedy, where = "set it to 100 where VMs are started seldom, or leave it out", "percentageOfNodesToScore"
            yield Problem("few-nodes-scored", "warning", (*path, where), text, consequence, remedy)


def _extenders(configuration: Mapping[str, Any], _: LintTarget) -> Iterator[Problem]:
    for index, extender in enumerate(_as_list(configuration.get("extenders"))):
        if isinstance(extender, dict) and extender.get("ignorable") is not True:
            text = f"the extender {quote(str(extender.get('urlPrefix', '')))} is not ignorable"
            consequence = "while it does not answer, no pod of any profile is placed"
            remedy = "set ignorable: true, unless its filter is vital"
            yield Problem("extender-not-ignorable", "warning", ("extenders", index), text, consequence, remedy)


_RULES: Final = (_fields, _plugins, _profiles, _lease, _for_vms, _extenders)


def _name(profile: Mapping[str, Any]) -> str:
    # kube-scheduler's default for a profile without a name.
    return str(profile.get("schedulerName") or names.DEFAULT_SCHEDULER)
