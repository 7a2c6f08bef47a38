"""A cluster as large and as labelled as KubeVirt's are, and VMs to migrate in it. The same on every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from webhook.placement.machines import LauncherPod, Migration, Vmi
from webhook.placement.nodes import Node
from webhook.placement.requirements import Requirements
from webhook.placement.target_pods import target_pod_requirements

Json = dict[str, Any]

ZONES: Final = ("a", "b", "c")
PLAIN_SHARE: Final = 0.2
_INTEL: Final = ("Penryn", "Westmere", "SandyBridge", "IvyBridge", "Haswell", "Broadwell", "Skylake-Client-IBRS")
_AMD: Final = ("Opteron_G3", "EPYC", "EPYC-IBPB", "EPYC-Rome")
_FEATURES: Final = tuple(f"feature-{number}" for number in range(36))
_MACHINES: Final = ("q35", *(f"pc-q35-rhel9.{number}.0" for number in range(7)))
_HYPERV: Final = (
    *("base", "frequencies", "ipi", "reenlightenment", "reset", "runtime"),
    *("synic", "synictimer", "tlbflush", "vpindex"),
)
_CORDONED: Final = 0.02
_TAINTED: Final = 0.1
_LOST: Final = 0.01


def nodes(count: int) -> Iterator[Json]:
    """Nodes as the API server sends them: four in five with KubeVirt's labels, some 87, the others with some 15."""
    dice = random.Random(count)  # noqa: S311 - nothing is secret
    for number in range(count):
        labels = _labels(number, dice)
        if number >= count * PLAIN_SHARE:
            labels |= _labelled_by_kubevirt(number, dice)
        taints = [{"key": "dedicated", "value": dice.choice(("gpu", "storage")), "effect": "NoSchedule"}]
        yield {
            "metadata": {"name": f"node-{number:05}", "labels": labels},
            "spec": {
                "taints": taints if dice.random() < _TAINTED else [],
                "unschedulable": dice.random() < _CORDONED,
            },
            "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "devices.kubevirt.io/kvm": "1k"}},
        }


def _labels(number: int, dice: random.Random) -> dict[str, str]:
    zone = ZONES[number % len(ZONES)]
    return {
        "kubernetes.io/hostname": f"node-{number:05}.example.com",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": dice.choice(("m5.metal", "c5.metal", "r5.metal")),
        "topology.kubernetes.io/region": "eu",
        "topology.kubernetes.io/zone": f"eu-{zone}",
        "topology.kubernetes.io/rack": f"rack-{number // 40}",
        "node-role.kubernetes.io/worker": "",
        "example.com/pool": f"pool-{number % 7}",
        "example.com/generation": str(number % 5),
        "example.com/serial": f"{number * 7919:010}",
        "disk": dice.choice(("ssd", "hdd")),
        "storage.example.com/connected": "true",
    }


def _labelled_by_kubevirt(number: int, dice: random.Random) -> dict[str, str]:
    vendor, models = ("Intel", _INTEL) if number % 4 else ("AMD", _AMD)
    model = models[-1]
    features = [feature for feature in _FEATURES if dice.random() < 0.95]
    keys = [
        "kubevirt.io/cpumanager",
        f"cpu-vendor.node.kubevirt.io/{vendor}",
        f"host-model-cpu.node.kubevirt.io/{model}",
        f"cpu-model-migration.node.kubevirt.io/{model}",
        *(f"cpu-model.node.kubevirt.io/{name}" for name in models),
        *(f"cpu-feature.node.kubevirt.io/{name}" for name in features),
        *(f"host-model-required-features.node.kubevirt.io/{name}" for name in features[:12]),
        *(f"hyperv.node.kubevirt.io/{name}" for name in _HYPERV),
        *(f"machine-type.node.kubevirt.io/{name}" for name in _MACHINES),
    ]
    return {
        **dict.fromkeys(keys, "true"),
        "cpu-timer.node.kubevirt.io/tsc-frequency": "2100000000",
        "cpu-timer.node.kubevirt.io/tsc-scalable": "true",
        "kubevirt.io/schedulable": "false" if dice.random() < _LOST else "true",
    }


@dataclass(frozen=True, slots=True)
class IndexReview:
    """A migration to evaluate.

    Attributes:
        name: in the report.
    """

    name: str
    requirements: Requirements


def reviews(cluster: list[Node]) -> tuple[IndexReview, ...]:
    """A VM that asks for little, and one that asks for all: node affinity, tolerations, its host's own CPU."""
    source = cluster[-1]
    added = Migration.adding({"topology.kubernetes.io/zone": "eu-b"})
    status = {"nodeName": source.name, "machine": {"type": "q35"}}
    simple = msgspec.convert(
        {"spec": {"architecture": "amd64", "domain": {"cpu": {"model": "Westmere"}}}, "status": status}, Vmi
    )
    terms = [
        {
            "matchExpressions": [
                {"key": "disk", "operator": "In", "values": ["ssd"]},
                {"key": "example.com/generation", "operator": "Gt", "values": ["1"]},
                {"key": "example.com/pool", "operator": "NotIn", "values": ["pool-1", "pool-2"]},
            ]
        },
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [cluster[0].name]}]},
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    spec = {
        "architecture": "amd64",
        "domain": {"cpu": {"model": "host-model"}},
        "nodeSelector": {"node-role.kubernetes.io/worker": ""},
        "affinity": affinity,
        "tolerations": [{"key": "dedicated", "value": "storage", "effect": "NoSchedule"}],
    }
    demanding = msgspec.convert({"spec": spec, "status": status}, Vmi)
    return (
        IndexReview(
            "named CPU model", target_pod_requirements(simple, added, source_node=source, source_pod=LauncherPod())
        ),
        IndexReview(
            "host's own CPU, node affinity",
            target_pod_requirements(demanding, added, source_node=source, source_pod=LauncherPod()),
        ),
    )
