"""Nodes of a cluster as large and as labelled as KubeVirt's are. The same on every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

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
