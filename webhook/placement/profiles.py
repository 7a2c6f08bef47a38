"""How schedulers score nodes: which plugins with which weights, by the profiles of their configurations.

Source: k8s.io/kubernetes 1.37, pkg/scheduler/apis/config/v1 (default_plugins.go, defaults.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from webhook import names
from webhook.k8s.types.meta import View
from webhook.placement.nodes import CPU, KVM_DEVICE, MEMORY

TAINTS: Final = "TaintToleration"
NODE_AFFINITY: Final = "NodeAffinity"
FIT: Final = "NodeResourcesFit"
SPREAD: Final = "PodTopologySpread"
POD_AFFINITY: Final = "InterPodAffinity"
BALANCE: Final = "NodeResourcesBalancedAllocation"
IMAGES: Final = "ImageLocality"
_PREEMPTION: Final = "DefaultPreemption"
_WEIGHTS: Final = {TAINTS: 3, NODE_AFFINITY: 2, FIT: 1, SPREAD: 2, POD_AFFINITY: 2, BALANCE: 1, IMAGES: 1}
# kube-scheduler's own, of Kubernetes 1.36 and 1.37 (pkg/scheduler/framework/plugins/names).
PLUGINS: Final = (
    *("DefaultBinder", "DefaultPreemption", "DeferredPodScheduling", "DynamicResources", "GangScheduling"),
    *("ImageLocality", "InterPodAffinity", "NodeAffinity", "NodeDeclaredFeatures", "NodeName", "NodePorts"),
    *("NodeResourcesBalancedAllocation", "NodeResourcesFit", "NodeUnschedulable", "NodeVolumeLimits"),
    *("PodGroupPodsCount", "PodTopologySpread", "PrioritySort", "SchedulingGates", "TaintToleration"),
    *("TopologyPlacementGenerator", "VolumeBinding", "VolumeRestrictions", "VolumeZone"),
)
# Plugins without which a plan would take nodes for excluded that are not.
_FILTERS: Final = ("NodeUnschedulable", TAINTS, NODE_AFFINITY, FIT, SPREAD, POD_AFFINITY, "VolumeBinding")
# Arguments that are read, or by which no pod goes elsewhere.
_EVALUATED: Final = (
    *("apiVersion", "kind", "scoringStrategy", "defaultingType"),
    *("bindTimeoutSeconds", "bindingTimeout", "filterTimeout"),
)
# Arguments for scores alone, by plugin.
_OF_SCORES: Final = (
    (POD_AFFINITY, "hardPodAffinityWeight"),
    (POD_AFFINITY, "ignorePreferredTermsOfExistingPods"),
    (BALANCE, "resources"),
)
# What arguments are where they are not given, besides nothing.
_DEFAULTS: Final[Mapping[tuple[str, str], Any]] = {
    (POD_AFFINITY, "hardPodAffinityWeight"): 1,
    (_PREEMPTION, "minCandidateNodesPercentage"): 10,
    (_PREEMPTION, "minCandidateNodesAbsolute"): 100,
}
_CORE: Final = ((CPU, 1), (MEMORY, 1))
_LEAST: Final = "LeastAllocated"
_MOST: Final = "MostAllocated"
# `PodTopologySpread` then spreads the pods of Services by itself.
_SYSTEM: Final = "System"


KIND: Final = "KubeSchedulerConfiguration"


def is_configuration(value: Any) -> bool:
    """Whether plain JSON is a KubeSchedulerConfiguration, of any version."""
    return isinstance(value, dict) and value.get("kind") == KIND


def profiles_of(configuration: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The profiles of a configuration with their positions; what is not a mapping is left out."""
    listed = configuration.get("profiles")
    profiles = enumerate(listed if isinstance(listed, list) else ())
    return [(index, profile) for index, profile in profiles if isinstance(profile, dict)]


class _Plugin(View, frozen=True):
    name: str = ""
    weight: int | None = None


class _PluginSet(View, frozen=True):
    enabled: list[_Plugin] | None = None
    disabled: list[_Plugin] | None = None


class _Plugins(View, frozen=True):
    multi_point: _PluginSet | None = None
    pre_filter: _PluginSet | None = None
    filter: _PluginSet | None = None
    post_filter: _PluginSet | None = None
    pre_score: _PluginSet | None = None
    score: _PluginSet | None = None

    @property
    def others(self) -> Iterator[str]:
        """The plugins of others that decide where a pod goes."""
        for point in (self.multi_point, self.pre_filter, self.filter, self.post_filter, self.pre_score, self.score):
            yield from (each.name for each in (point.enabled if point else None) or () if each.name not in PLUGINS)

    def runs(self, plugin: str, point: _PluginSet | None) -> bool:
        """Whether a plugin runs at a point where kube-scheduler has it by default."""
        for point_set in (point or _PluginSet(), self.multi_point or _PluginSet()):
            if plugin in {each.name for each in point_set.enabled or ()}:
                return True
            if {plugin, "*"} & {each.name for each in point_set.disabled or ()}:
                return False
        return True


class _Strategy(View, frozen=True):
    type: str = _LEAST
    resources: list[_Plugin] | None = None


class _Arguments(View, frozen=True):
    """Of all plugins, those that are read here."""

    scoring_strategy: _Strategy | None = None
    defaulting_type: str = _SYSTEM


class _PluginConfig(View, frozen=True):
    name: str = ""
    args: dict[str, Any] | None = None

    @property
    def read(self) -> _Arguments:
        """Its arguments, as far as they are read."""
        return msgspec.convert(self.args or {}, _Arguments)

    @property
    def others(self) -> Iterator[str]:
        """Its arguments by which pods may go elsewhere, and that are not read."""
        for name, value in (self.args or {}).items():
            if name in _EVALUATED or value is None:
                continue
            if (self.name, name) == (BALANCE, "resources"):
                # Their weights do not matter.
                listed = {each.name for each in msgspec.convert(value, list[_Plugin])}
                is_usual = listed in ({CPU, MEMORY}, set[str]())
            else:
                default = _DEFAULTS.get((self.name, name))
                is_usual = not value if default is None else value == default
            if not is_usual:
                yield name


class _Extender(View, frozen=True):
    prioritize_verb: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""


class _WrittenProfile(View, frozen=True):
    plugins: _Plugins | None = None
    plugin_config: list[_PluginConfig] | None = None


class Profile(msgspec.Struct, frozen=True):
    """How a profile of a scheduler scores nodes.

    Attributes:
        weights: those of the plugins that score, by name, sorted.
        resources: what NodeResourcesFit scores, each with its weight.
        fills: whether it prefers nodes with little left (MostAllocated).
        spreads_services: whether pods of Services without constraints of their own are spread.
        has_scoring_extender: whether an extender scores nodes, too; what it gives is in `unknown`.
        unknown: what else has pods go elsewhere and is not evaluated: plugins of others, arguments, and what it lacks.
        assumed: what it was taken for, because it was not found, a clause; empty: it is the scheduler's own.
    """

    weights: tuple[tuple[str, int], ...] = tuple(sorted(_WEIGHTS.items()))
    resources: tuple[tuple[str, int], ...] = _CORE
    fills: bool = False
    spreads_services: bool = True
    has_scoring_extender: bool = False
    unknown: tuple[str, ...] = ()
    assumed: str = ""

    @classmethod
    def of(cls, written: Any, extenders: Any = ()) -> Profile:
        """One of the ``profiles`` of a KubeSchedulerConfiguration, as plain JSON.

        Args:
            written: the profile.
            extenders: those of the configuration, which kube-scheduler asks for the pods of all its profiles.

        Raises:
            msgspec.ValidationError: a field has a wrong type, so that kube-scheduler does not start with it.
        """
        profile = msgspec.convert(written, _WrittenProfile)
        weights, plugins = dict(_WEIGHTS), profile.plugins or _Plugins()
        for point_set in (plugins.multi_point or _PluginSet(), plugins.score or _PluginSet()):
            disabled = {each.name for each in point_set.disabled or ()}
            weights = {} if "*" in disabled else {name: own for name, own in weights.items() if name not in disabled}
            for each in point_set.enabled or ():
                # Of the plugins of all points, those that score are known, or have a weight.
                if point_set is plugins.score or each.name in _WEIGHTS or each.weight:
                    weights[each.name] = each.weight or 1
        configs = {each.name: each for each in profile.plugin_config or ()}
        strategy = configs.get(FIT, _PluginConfig()).read.scoring_strategy or _Strategy()
        resources = tuple((each.name, each.weight or 1) for each in strategy.resources or ())
        unknown = [*plugins.others]
        if strategy.type not in (_LEAST, _MOST) and FIT in weights:
            unknown.append(f"{FIT} ({strategy.type})")
        for name, config in configs.items():
            others = config.others if name in PLUGINS else ()
            unknown += [f"{name} ({each})" for each in others if name in weights or (name, each) not in _OF_SCORES]
        unknown += [f"{name} (disabled as a filter)" for name in _FILTERS if not plugins.runs(name, plugins.filter)]
        if not plugins.runs(_PREEMPTION, plugins.post_filter):
            unknown.append(f"{_PREEMPTION} (disabled)")
        asked = msgspec.convert(extenders or (), list[_Extender])
        if any(each.prioritize_verb or each.filter_verb or each.preempt_verb for each in asked):
            unknown.append("extenders")
        return cls(
            tuple(sorted((name, own) for name, own in weights.items() if name in _WEIGHTS)),
            resources or _CORE,
            strategy.type == _MOST,
            configs.get(SPREAD, _PluginConfig()).read.defaulting_type == _SYSTEM,
            any(each.prioritize_verb for each in asked),
            tuple(sorted({*unknown})),
        )

    def weight(self, plugin: str) -> int:
        """The weight of a plugin; 0: it does not score."""
        return next((own for name, own in self.weights if name == plugin), 0)

    def without(self, *plugins: str) -> Profile:
        """The same without some plugins."""
        weights = tuple(each for each in self.weights if each[0] not in plugins)
        return msgspec.structs.replace(self, weights=weights)


STOCK: Final = Profile()
# What is assumed of a scheduler whose profile is not seen.
OTHER: Final = STOCK.without(IMAGES)
# manifests/scheduler/spread.yaml without its lines on KVM devices, and with them.
SHIPPED_WITHOUT_DEVICES: Final = Profile(
    tuple(sorted({TAINTS: 30, NODE_AFFINITY: 20, FIT: 10, SPREAD: 2, POD_AFFINITY: 20}.items()))
)
SHIPPED: Final = msgspec.structs.replace(SHIPPED_WITHOUT_DEVICES, resources=(*_CORE, (KVM_DEVICE, 2)))
Profiles: TypeAlias = Mapping[str, Profile]  # by the schedulerName
SHIPPED_PROFILES: Final[Profiles] = MappingProxyType({"kubevirt": SHIPPED})
_WHERE: Final = f"ConfigMap {names.SECOND_SCHEDULER}/{names.SECOND_SCHEDULER}"
_NOT_FOUND: Final = f"{_WHERE} does not have it, so the %s is assumed"
# The shipped ones, where nothing shows that the scheduler runs with them.
ASSUMED_PROFILES: Final[Profiles] = MappingProxyType(
    {
        name: msgspec.structs.replace(profile, assumed=_NOT_FOUND % "shipped one")
        for name, profile in SHIPPED_PROFILES.items()
    }
)
ASSUMED_OTHER: Final = msgspec.structs.replace(OTHER, assumed=_NOT_FOUND % "stock one without ImageLocality")


def profile_of(profiles: Profiles, scheduler: str) -> Profile:
    """The profile by which a scheduler places pods; one that is not known is taken for the stock one without images."""
    name = scheduler or names.DEFAULT_SCHEDULER
    return profiles.get(name) or (STOCK if name == names.DEFAULT_SCHEDULER else ASSUMED_OTHER)
