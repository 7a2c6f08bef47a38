"""A large cluster to drain, written into files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_HOST: Final = "kubernetes.io/hostname"
_KUBEVIRT: Final = {
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}},
    "status": {"phase": "Deployed"},
}


def write_cluster(target: Path, nodes: int, vms: int) -> Path:
    """A cluster to drain: every VM runs, can migrate, and has room elsewhere."""
    target.mkdir()
    lists = {
        "NodeList": [_node(number) for number in range(nodes)],
        "VirtualMachineInstanceList": [_vmi(number, nodes) for number in range(vms)],
        "PodList": [_pod(number, nodes) for number in range(vms)],
        "KubeVirtList": [_KUBEVIRT],
    }
    for kind, items in lists.items():
        version = "kubevirt.io/v1" if kind.startswith(("Virtual", "KubeVirt")) else "v1"
        (target / f"{kind}.json").write_text(json.dumps({"apiVersion": version, "kind": kind, "items": items}))
    return target


def _node(number: int) -> dict[str, Any]:
    labels = {"kubernetes.io/arch": "amd64", _HOST: f"node-{number}", "kubevirt.io/schedulable": "true"}
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "250", "devices.kubevirt.io/kvm": "1k"}
    return {"metadata": {"name": f"node-{number}", "labels": labels}, "status": {"allocatable": allocatable}}


def _vmi(number: int, nodes: int) -> dict[str, Any]:
    domain = {"cpu": {"model": "host-passthrough"}, "devices": {}, "memory": {"guest": "2Gi"}}
    conditions = [{"type": "LiveMigratable", "status": "True"}]
    return {
        "metadata": {"name": f"vm-{number}", "namespace": f"shop-{number % 50}", "uid": f"uid-{number}"},
        "spec": {"architecture": "amd64", "domain": domain, "evictionStrategy": "LiveMigrate"},
        "status": {"phase": "Running", "nodeName": f"node-{number % nodes}", "conditions": conditions},
    }


def _pod(number: int, nodes: int) -> dict[str, Any]:
    vmi = _vmi(number, nodes)["metadata"]
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vmi["name"], "uid": vmi["uid"]}
    requests = {"cpu": "500m", "memory": "2300Mi", "devices.kubevirt.io/kvm": "1"}
    return {
        "metadata": {
            "name": f"virt-launcher-{vmi['name']}",
            "namespace": vmi["namespace"],
            "labels": {"kubevirt.io/created-by": vmi["uid"]},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {
            "nodeName": f"node-{number % nodes}",
            "containers": [{"name": "compute", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running"},
    }
