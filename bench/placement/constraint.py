"""What keeps launcher pods apart.

In the rows of the table kubevirt-webhook writes its own constraints as pods are created. ``constrain`` writes what it
does not (another maxSkew, anti-affinity), as an owner of a VM could, and serves where pods are made by the thousand.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from webhook import names
from webhook.policies.scheduling.spread import constraints

LAUNCHER_LABELS: Final = {"kubevirt.io": "virt-launcher"}
HOSTNAME: Final = "kubernetes.io/hostname"


class Constraint(Enum):
    """A preference of the pod; none of them keeps it from being scheduled."""

    NONE = "none"
    HOSTNAME = "hostname"
    ZONE = "zone"
    BOTH = "both"
    # Counts launcher pods of all namespaces, which a topology spread constraint can't.
    ANTI_AFFINITY = "anti-affinity"

    @property
    def spread(self) -> str:
        """The value of ``scheduling.spread`` that has kubevirt-webhook write it; ``off`` where none does."""
        return self.value if self.value in names.SPREADS else names.OFF


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
            {**one, "maxSkew": max_skew} for one in constraints(constraint.spread)
        ]


def _keep_apart_everywhere() -> dict[str, Any]:
    return {
        "weight": 1,
        "podAffinityTerm": {
            "topologyKey": HOSTNAME,
            "labelSelector": {"matchLabels": LAUNCHER_LABELS},
            "namespaceSelector": {},  # an empty one selects all namespaces
        },
    }
