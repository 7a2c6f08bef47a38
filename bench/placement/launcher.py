"""A virtual machine and its launcher pod, as far as webhook and scheduler look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.placement.cluster import LAUNCHER_IMAGE
from tests.e2e.objects import launcher_pod


def machine(name: str) -> dict[str, Any]:
    """A VirtualMachineInstance whose owner chose no scheduler."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name},
        "spec": {"domain": {"devices": {}}},
    }


def pod(vmi: Mapping[str, Any]) -> dict[str, Any]:
    """The launcher pod of a VirtualMachineInstance.

    Containers and requests are those of a pod that KubeVirt made (tests/data/captures/pod-create-launcher.json), less
    its container disk: the guest's console is read by a sidecar of the same image, which counts twice for that.
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
    result["spec"]["containers"] = [
        {
            "name": "compute",
            "image": LAUNCHER_IMAGE,
            "resources": {
                "requests": {
                    "cpu": "100m",
                    "memory": "426240Ki",
                    "ephemeral-storage": "50M",
                    "devices.kubevirt.io/tun": "1",
                },
                "limits": {"devices.kubevirt.io/tun": "1"},
            },
        }
    ]
    return result
