"""Who still names the second scheduler, and would wait for it indefinitely once it is gone."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import msgspec

from webhook.install.listing import all_of
from webhook.k8s.client.api import Transport
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object, Unstructured
from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.text import pluralize

_PODS: Final = Resource("", "v1", "pods", "Pod", True, Object)


class Users(msgspec.Struct, frozen=True):
    """How many objects name a scheduler.

    Attributes:
        vms: VMs, by their templates.
        vmis: VMIs that exist; their migrations need the scheduler.
        pods: pods that wait for a node.
    """

    vms: int
    vmis: int
    pods: int

    def __bool__(self) -> bool:
        return bool(self.vms or self.vmis or self.pods)

    def __str__(self) -> str:
        return f"{pluralize(self.vms, 'VM')}, {pluralize(self.vmis, 'VMI')} and {pluralize(self.pods, 'waiting pod')}"


async def count_users(api: Transport, scheduler: str) -> Users:
    """Count the objects that name a scheduler.

    Args:
        api: the connection to the API server.
        scheduler: the ``schedulerName``.

    Raises:
        InputError: the objects cannot be listed.
    """
    vms = vmis = pods = 0
    async with aclosing(all_of(api, UNSTRUCTURED_VMS)) as found:
        async for vm in found:
            vms += _names(vm, scheduler, "template", "spec")
    async with aclosing(all_of(api, UNSTRUCTURED_VMIS)) as found:
        async for vmi in found:
            vmis += _names(vmi, scheduler)
    waiting = {"fieldSelector": f"spec.schedulerName={scheduler},spec.nodeName=,status.phase=Pending"}
    async with aclosing(all_of(api, _PODS, query=waiting)) as found:
        async for _ in found:
            pods += 1
    return Users(vms, vmis, pods)


def _names(found: Unstructured, scheduler: str, *keys: str) -> bool:
    spec: object = found.spec
    for key in keys:
        # A VM's template has no schema.
        spec = spec.get(key) if isinstance(spec, dict) else None
    return isinstance(spec, dict) and spec.get("schedulerName") == scheduler
