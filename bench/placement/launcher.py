"""A virtual machine and its launcher pod, as far as webhook and scheduler look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.placement.nodes import LAUNCHER_IMAGE
from bench.placement.sizes import RECORDED, PlacementSize
from tests.e2e.support.objects import launcher_pod


def machine(name: str, scheduler: str = "") -> dict[str, Any]:
    """A VirtualMachineInstance.

    Args:
        scheduler: what its owner chose; empty for nothing.
    """
    chosen = {"schedulerName": scheduler} if scheduler else {}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name},
        "spec": {"domain": {"devices": {}}, **chosen},
    }


def pod(vmi: Mapping[str, Any], size: PlacementSize = RECORDED) -> dict[str, Any]:
    """The launcher pod of a VirtualMachineInstance.

    Containers and requests are those of a pod that KubeVirt made (tests/data/captures/pod-create-launcher.json), less
    its container disk: the guest's console is read by a sidecar of the same image, which counts twice for that. It
    also requests the KVM device, which a pod of a node without it (as the recorded one) does not.
    """
    result = launcher_pod(f"virt-launcher-{vmi['metadata']['name']}", vmi=vmi)
    result["spec"]["initContainers"] = [
        {
            "name": "guest-console-log",
            "image": LAUNCHER_IMAGE,
            "restartPolicy": "Always",
            "resources": {
                "requests": {"cpu": "5m", "memory": "35M"},
                "limits": {"cpu": "15m", "memory": "60M"},
            },
        }
    ]
    devices = {"devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "1"}
    result["spec"]["containers"] = [
        {
            "name": "compute",
            "image": LAUNCHER_IMAGE,
            "resources": {
                "requests": {
                    "cpu": f"{size.compute_millis}m",
                    "memory": f"{size.compute_bytes // 1024}Ki",
                    "ephemeral-storage": "50M",
                    **devices,
                },
                "limits": devices,
            },
        }
    ]
    return result


def keep_off_source(pod: dict[str, Any], uid: str) -> None:
    """What KubeVirt adds to a migration's target pod, so that it does not land on its source's node.

    pkg/virt-controller/watch/migration/migration.go, createMigrationPodAntiAffinityRule.
    """
    terms = pod["spec"].setdefault("affinity", {}).setdefault("podAntiAffinity", {})
    terms["requiredDuringSchedulingIgnoredDuringExecution"] = [
        {
            "labelSelector": {"matchLabels": {"kubevirt.io/created-by": uid}},
            "topologyKey": "kubernetes.io/hostname",
        }
    ]
