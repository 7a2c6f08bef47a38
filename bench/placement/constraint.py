"""What keeps launcher pods apart, written into the pod: by the benchmark itself, as an owner of a VM could.

``constrain`` is the one place that does it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

LAUNCHER_LABELS: Final = {"kubevirt.io": "virt-launcher"}
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"


class Constraint(Enum):
    """A preference of the pod; none of them keeps it from being scheduled."""

    NONE = "none"
    HOSTNAME = "hostname"
    ZONE = "zone"
    BOTH = "both"
    # Counts launcher pods of all namespaces, which a topology spread constraint can't.
    ANTI_AFFINITY = "anti-affinity"


_TOPOLOGIES: Final = {
    Constraint.HOSTNAME: (HOSTNAME,),
    Constraint.ZONE: (ZONE,),
    Constraint.BOTH: (ZONE, HOSTNAME),
}


def constrain(pod: dict[str, Any], constraint: Constraint, max_skew: int = 1) -> None:
    """Write the constraint into a launcher pod that has neither constraints nor affinities.

    Args:
        max_skew: how many VMs more on one node than on another don't matter; of a soft constraint, how weak it is.
    """
    if constraint is Constraint.ANTI_AFFINITY:
        pod["spec"]["affinity"] = {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_keep_apart_everywhere()]}
        }
    elif constraint is not Constraint.NONE:
        pod["spec"]["topologySpreadConstraints"] = [
            _spread_over(topology, max_skew) for topology in _TOPOLOGIES[constraint]
        ]


def _spread_over(topology: str, max_skew: int) -> dict[str, Any]:
    return {
        "maxSkew": max_skew,
        "topologyKey": topology,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": LAUNCHER_LABELS},
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Honor",
    }


def _keep_apart_everywhere() -> dict[str, Any]:
    return {
        "weight": 1,
        "podAffinityTerm": {
            "topologyKey": HOSTNAME,
            "labelSelector": {"matchLabels": LAUNCHER_LABELS},
            "namespaceSelector": {},  # an empty one selects all namespaces
        },
    }
