"""What fleets of VMs are made of beside the VMs: pods of others, quotas; and which of the VMs get a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.workloads import PODS, VMIS, VMS
from webhook.k8s.quantity import parse

from .place import Place

QUOTAS, BUDGETS = "v1/resourcequotas", "policy/v1/poddisruptionbudgets"
CLAIMS, VOLUMES = "v1/persistentvolumeclaims", "v1/persistentvolumes"


def starts(place: Place, name: str) -> bool:
    """Whether a VM gets a node; one that gets none is deleted."""

    def is_decided() -> bool:
        phases = [
            vmi["status"].get("phase")
            for vmi in place.admin.list(VMIS, place.namespace)
            if vmi["metadata"]["name"] == name
        ]
        return phases == ["Running"] or place.unschedulable(name) is not None

    eventually(is_decided, what=f"{name} to get a node, or none")
    if place.unschedulable(name) is None:
        return True
    place.admin.delete(VMS, name, place.namespace)
    eventually(lambda: not place.launchers(name), what=f"{name} to be gone")
    return False


def make_quota(place: Place, spare: Mapping[str, int]) -> None:
    """A quota that leaves so much beside what the fleet uses."""
    (name,) = spare
    open_quota = obj("ResourceQuota", "fleet", spec={"hard": {name: "1Pi" if "memory" in name else "10000"}})
    place.make(open_quota)
    counted = lambda found: name in found.get("status", {}).get("used", {})
    found = place.admin.wait(QUOTAS, "fleet", place.namespace, until=counted, what="the quota to be counted")
    used = parse(found["status"]["used"][name]).value
    hard = {name: str(used + spare[name])}
    place.patch(QUOTAS, "fleet", {"spec": {"hard": hard}})
    in_force = lambda found: parse(found["status"].get("hard", {}).get(name, "0")).value == used + spare[name]
    place.admin.wait(QUOTAS, "fleet", place.namespace, until=in_force, what="the quota to be in force")


def make_pod(place: Place, name: str, node: str, *, resources: Json | None = None, **metadata: Any) -> None:
    """A pod that runs, without a VM."""
    container = {"name": "main", "image": "registry.example/main:v1", "resources": resources or {}}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    place.make(obj("Pod", name, spec=spec, **metadata))
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    place.admin.patch(PODS, name, {"status": status}, place.namespace, subresource="status")
