"""The objects of namespaces under the instancetypes policy: instancetypes, preferences, and defaults among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kube import Json
from .tenant import Tenant
from .webhook_server import DOMAIN
from .workloads import INSTANCETYPES, PREFERENCES, instancetype, preference

SMALL = {"kind": "VirtualMachineInstancetype", "name": "small"}
LARGE = {"kind": "VirtualMachineInstancetype", "name": "large"}
LINUX = {"kind": "VirtualMachinePreference", "name": "linux"}
# Of a VM whose owner says its size.
SIZED_TEMPLATE = {"spec": {"domain": {"devices": {}, "memory": {"guest": "2Gi"}}}}
DEFAULTS = {
    f"{DOMAIN}/default-instancetype": "VirtualMachineInstancetype/small",
    f"{DOMAIN}/default-preference": "VirtualMachinePreference/linux",
}
INJECTED_ANNOTATIONS = (f"{DOMAIN}/injected-instancetype", f"{DOMAIN}/injected-preference")
MUTATE, VALIDATE = "/mutate/instancetypes", "/validate/instancetypes"

_CATALOGUE = {
    obj["metadata"]["name"]: obj
    for obj in (
        instancetype("small", cluster=False),
        instancetype("large", cluster=False, cpu={"guest": 4}, memory={"guest": "8Gi"}),
        preference("linux", devices={"preferredDiskBus": "virtio"}),
        preference("demanding", requirements={"cpu": {"guest": 8}}),
        preference("spread", cpu={"preferredCPUTopology": "spread"}),
    )
}


def offer(tenant: Tenant, *names: str) -> Tenant:
    """Makes what VMs of a namespace may name, by names of the catalog."""
    for obj in map(_CATALOGUE.__getitem__, names):
        resource = PREFERENCES if obj["kind"] == "VirtualMachinePreference" else INSTANCETYPES
        tenant.owner.create(resource, obj, tenant.namespace)
    return tenant


def named(kind: str, name: str) -> Json:
    """The matcher of an object in the VM's namespace: ``kind`` is ``Instancetype`` or ``Preference``."""
    return {"kind": f"VirtualMachine{kind}", "name": name}


def matchers_of(vm: Mapping[str, Any]) -> list[Any]:
    return [vm["spec"].get(field) for field in ("instancetype", "preference")]


def marks_of(found: Mapping[str, Any]) -> list[Any]:
    annotations = found["metadata"].get("annotations", {})
    return [annotations.get(mark) for mark in INJECTED_ANNOTATIONS]


def is_ours(vm: Mapping[str, Any]) -> bool:
    """Whether a VM has both defaults with their annotations; otherwise it has none of the four."""
    says = [*matchers_of(vm), *marks_of(vm)]
    assert says in ([SMALL, LINUX, *DEFAULTS.values()], [None] * 4)
    return says[0] is not None
