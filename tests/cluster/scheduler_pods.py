"""Launcher pods that wait for a scheduler."""

from __future__ import annotations

from typing import Any

from tests.builders import Json


def pod(namespace: str, owner: str = "a", number: int = 0, **spec: Any) -> Json:
    """A launcher pod that waits; keywords go into its spec."""
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "controller": True}
    meta = {
        "name": f"virt-launcher-{owner}-{number}",
        "namespace": namespace,
        "uid": f"{namespace}-{owner}-{number}",
        "labels": {"kubevirt.io": "virt-launcher"},
        "ownerReferences": [kind | {"name": owner, "uid": f"vmi-{namespace}-{owner}"}],
    }
    return {"metadata": meta, "spec": {"schedulerName": "kubevirt", **spec}, "status": {"phase": "Pending"}}
