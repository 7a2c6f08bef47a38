"""What took the place of plugins and fields that kube-scheduler no longer has, and whose plugins others are.

Read in k8s.io/kubernetes 1.17, 1.20, 1.28, 1.31, 1.33 and 1.37 (pkg/scheduler/framework/plugins, and there
legacy_registry.go for the names of policies), in k8s.io/kube-scheduler 0.18 to 0.37 (config/v1alpha1 to v1), and in
what Kubernetes' documentation says of each version of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Successor(NamedTuple):
    """What took the place of a plugin that kube-scheduler no longer has.

    Attributes:
        use: what to do where the plugin is enabled or configured, an imperative.
        disable: what to do where it is disabled.
    """

    use: str
    disable: str = "remove the entry"


def _renamed(plugin: str, point: str = "") -> Successor:
    where = f" under {point}" if point else ""
    return Successor(f"name {plugin} instead", f"disable {plugin}{where} instead, or remove the entry")


def _strategy(kind: str, more: str = "") -> Successor:
    return Successor(
        f"set scoringStrategy.type: {kind}{more} in the args of NodeResourcesFit, whose score it is now",
        f"it is NodeResourcesFit with scoringStrategy.type: {kind} now: disable NodeResourcesFit under score instead,"
        " or remove the entry",
    )


_LEAST: Final = _strategy("LeastAllocated", " (the default)")
_MOST: Final = _strategy("MostAllocated")
_RATIO: Final = _strategy("RequestedToCapacityRatio", ", and its shape as scoringStrategy.requestedToCapacityRatio,")
_LABELS: Final = Successor(
    "set addedAffinity in the args of NodeAffinity: required terms with Exists or DoesNotExist for labels that must or"
    " must not be there, preferred ones for the score"
)
_SERVICES: Final = Successor("set podAffinity or podAntiAffinity in the pods, which InterPodAffinity reads")
_SPREAD: Final = Successor(
    "remove the entry: PodTopologySpread spreads the pods of a Service by its default constraints",
)
_AVOID: Final = Successor("taint the nodes with the effect PreferNoSchedule, and remove the entry")
_ATTACHED: Final = Successor(
    "remove the entry: volumes of clouds are attached by CSI drivers, whose limits NodeVolumeLimits holds",
    "disable NodeVolumeLimits instead, or remove the entry",
)
_NOTHING: Final = Successor("remove the entry: nothing took its place")

# By name: the plugins of kube-scheduler that it no longer has, then the predicates and priorities of policies.
PLUGINS: Final[Mapping[str, Successor]] = {
    **dict.fromkeys(("NodeResourcesLeastAllocated", "LeastRequestedPriority"), _LEAST),
    **dict.fromkeys(("NodeResourcesMostAllocated", "MostRequestedPriority"), _MOST),
    **dict.fromkeys(("RequestedToCapacityRatio", "RequestedToCapacityRatioPriority"), _RATIO),
    **dict.fromkeys(("NodeLabel", "CheckNodeLabelPresence"), _LABELS),
    **dict.fromkeys(("ServiceAffinity", "CheckServiceAffinity"), _SERVICES),
    **dict.fromkeys(("SelectorSpread", "SelectorSpreadPriority", "ServiceSpreadingPriority"), _SPREAD),
    "DefaultPodTopologySpread": _SPREAD,
    **dict.fromkeys(("NodePreferAvoidPods", "NodePreferAvoidPodsPriority"), _AVOID),
    **dict.fromkeys(("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"), _ATTACHED),
    **dict.fromkeys(("MaxAzureDiskVolumeCount", "MaxCinderVolumeCount", "MaxEBSVolumeCount"), _ATTACHED),
    "MaxGCEPDVolumeCount": _ATTACHED,
    **dict.fromkeys(("NodeResourceLimits", "ResourceLimitsPriority", "EqualPriority"), _NOTHING),
    "BalancedResourceAllocation": _renamed("NodeResourcesBalancedAllocation"),
    "ImageLocalityPriority": _renamed("ImageLocality"),
    "InterPodAffinityPriority": _renamed("InterPodAffinity", "score"),
    "NodeAffinityPriority": _renamed("NodeAffinity", "score"),
    "TaintTolerationPriority": _renamed("TaintToleration", "score"),
    **dict.fromkeys(("EvenPodsSpread", "EvenPodsSpreadPriority"), _renamed("PodTopologySpread")),
    "GeneralPredicates": Successor("name NodeResourcesFit, NodeName, NodePorts and NodeAffinity instead"),
    "PodFitsResources": _renamed("NodeResourcesFit", "filter"),
    "PodFitsHostPorts": _renamed("NodePorts"),
    "HostName": _renamed("NodeName"),
    "MatchNodeSelector": _renamed("NodeAffinity", "filter"),
    "MatchInterPodAffinity": _renamed("InterPodAffinity", "filter"),
    "CheckNodeUnschedulable": _renamed("NodeUnschedulable"),
    "PodToleratesNodeTaints": _renamed("TaintToleration", "filter"),
    "PodToleratesNodeNoExecuteTaints": _renamed("TaintToleration", "filter"),
    "CheckVolumeBinding": _renamed("VolumeBinding"),
    "NoDiskConflict": _renamed("VolumeRestrictions"),
    "NoVolumeZoneConflict": _renamed("VolumeZone"),
    "MaxCSIVolumeCountPred": _renamed("NodeVolumeLimits"),
}

# Plugins that neither kube-scheduler nor scheduler-plugins is built with, and whose scheduler has them.
ELSEWHERE: Final[Mapping[str, str]] = {
    "CrossNodePreemption": "scheduler-plugins has it as an example, and builds its kube-scheduler without it",
    "Dynamic": "it is a plugin of Crane's scheduler",
    **dict.fromkeys(
        ("BatchResourceFit", "DeviceShare", "ElasticQuota", "LoadAwareScheduling", "NodeNUMAResource", "Reservation"),
        "it is a plugin of Koordinator's scheduler",
    ),
}

_NO_ADDRESS: Final = (
    "remove it: kube-scheduler serves health checks and metrics at its options --bind-address and --secure-port alone"
)
# By path without positions: the fields that an earlier version of the configuration had.
FIELDS: Final[Mapping[tuple[str, ...], str]] = {
    ("algorithmSource",): "enable and disable plugins in profiles[].plugins instead of a policy or provider",
    ("bindTimeoutSeconds",): "set bindTimeoutSeconds in the args of VolumeBinding",
    ("disablePreemption",): "disable DefaultPreemption under postFilter of each profile",
    ("hardPodAffinitySymmetricWeight",): "set hardPodAffinityWeight in the args of InterPodAffinity",
    ("healthzBindAddress",): _NO_ADDRESS,
    ("leaderElection", "lockObjectName"): "write resourceName",
    ("leaderElection", "lockObjectNamespace"): "write resourceNamespace",
    ("metricsBindAddress",): _NO_ADDRESS,
    ("pluginConfig",): "write it into a profile: profiles[].pluginConfig",
    ("plugins",): "write it into a profile: profiles[].plugins",
    ("profiles", "pluginConfig", "args", "deniedPGExpirationTimeSeconds"): (
        "remove it; Coscheduling has podGroupBackoffSeconds, after which it tries a group of pods again"
    ),
    ("profiles", "plugins", "unreserve"): "remove it: the plugins under reserve undo what they reserved",
    ("schedulerName",): "write it into a profile: profiles[].schedulerName",
}
