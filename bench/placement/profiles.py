"""The profiles of the one scheduler that places all pods: the stock one, the shipped one, and its candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

SPREAD_FILE: Final = Path(__file__).parents[2] / "manifests" / "scheduler" / "spread.yaml"
STOCK: Final = "default-scheduler"
SHIPPED: Final = "kubevirt"
# As the shipped one, but of a large cluster it scores a fifth of the nodes that the scheduler would choose itself.
FEW: Final = "kubevirt-few"

_WITHOUT_IMAGES: Final = ("ImageLocality",)
_WITHOUT_BALANCE: Final = ("ImageLocality", "NodeResourcesBalancedAllocation")
_CORE: Final = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})
_KVM: Final = "devices.kubevirt.io/kvm"


def _profile(
    name: str,
    disabled: Sequence[str],
    weights: Mapping[str, int] | None = None,
    fit: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A profile with some scores off, some weighted, and another strategy of NodeResourcesFit."""
    enabled = [{"name": plugin, "weight": weight} for plugin, weight in (weights or {}).items()]
    # A plugin's weight is changed by taking it out and in again.
    removed = [{"name": plugin} for plugin in (*disabled, *(weights or {}))]
    profile: dict[str, Any] = {
        "schedulerName": name,
        "plugins": {"score": {"disabled": removed, "enabled": enabled}},
    }
    if fit:
        args = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "NodeResourcesFitArgs",
            "scoringStrategy": fit,
        }
        profile["pluginConfig"] = [{"name": "NodeResourcesFit", "args": args}]
    return profile


def _least_allocated(*resources: Mapping[str, object]) -> dict[str, Any]:
    return {"type": "LeastAllocated", "resources": list(resources)}


def candidates() -> list[dict[str, Any]]:
    """What the shipped profile was chosen from; each by itself, so that one run compares them."""
    kvm = {"name": _KVM, "weight": 2}
    tie_break = {"NodeResourcesFit": 10, "PodTopologySpread": 1, "InterPodAffinity": 1}
    steep = {
        "type": "RequestedToCapacityRatio",
        "resources": list(_CORE),
        "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 10}, {"utilization": 20, "score": 0}]},
    }
    return [
        _profile("no-images", _WITHOUT_IMAGES),
        _profile("no-balance", _WITHOUT_BALANCE),
        _profile("topology-10", _WITHOUT_BALANCE, {"PodTopologySpread": 10}),
        _profile("fit-10", _WITHOUT_BALANCE, tie_break),
        _profile("ratio", _WITHOUT_BALANCE, fit=steep),
        _profile("kvm", _WITHOUT_BALANCE, fit=_least_allocated({"name": _KVM, "weight": 1})),
        _profile("kvm-core", _WITHOUT_BALANCE, fit=_least_allocated(*_CORE, kvm)),
        _profile("kvm-fit-10", _WITHOUT_BALANCE, tie_break, _least_allocated(*_CORE, kvm)),
    ]


def shipped() -> dict[str, Any]:
    """The profile of manifests/scheduler/spread.yaml."""
    configuration = yaml.safe_load(SPREAD_FILE.read_text())
    profile: dict[str, Any] = configuration["profiles"][0]
    return profile


def few() -> dict[str, Any]:
    """The shipped profile with ``percentageOfNodesToScore``: 2 % are 100 of 5,000 nodes, the least that it can be."""
    return {**shipped(), "schedulerName": FEW, "percentageOfNodesToScore": 2}
