"""Which pools of VMs live by a default, and so lose their size where nobody puts it back?

A VirtualMachinePool writes the whole spec of its VMs when its template changes, and with it takes away the default
instancetype that this server gave them. While the server is called it puts the default back; afterwards nothing does.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook import names
from webhook.doctor.support.finding import Finding, pluralize, several, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.reader import Reader
from webhook.errors import Unavailable
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object, View
from webhook.kubevirt.resources import STORED_VMS
from webhook.kubevirt.vm.size import has_memory

CHECK: Final = "pools"
FIX: Final = "set spec.virtualMachineTemplate.spec.instancetype in them, or a memory size"

_KIND: Final = "VirtualMachinePool"


class PoolVmTemplate(View, frozen=True):
    """The template of a pool's VMs, whose spec is plain JSON."""

    spec: dict[str, Any] | None = None


class PoolSpec(View, frozen=True):
    virtual_machine_template: PoolVmTemplate | None = None


class Pool(Object, frozen=True):
    """A VirtualMachinePool."""

    spec: PoolSpec | None = None

    @property
    def title(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.meta.namespace}/{self.meta.name}"

    @property
    def is_sized(self) -> bool:
        """Whether its template says a size of its VMs."""
        machine = self.spec.virtual_machine_template if self.spec else None
        value: Any = (machine.spec if machine else None) or {}
        if value.get("instancetype"):
            return True
        for name in ("template", "spec", "domain"):
            value = value.get(name) if isinstance(value, dict) else None
        return has_memory(value)


# The newest version first; an older KubeVirt serves only the other one.
POOLS: Final = tuple(
    Resource("pool.kubevirt.io", version, "virtualmachinepools", _KIND, True, Pool)
    for version in ("v1beta1", "v1alpha1")
)
VMS: Final = msgspec.structs.replace(STORED_VMS, view=Object)


async def check(installation: Installation) -> list[Finding]:
    """Name the pools that live by a default, as a warning where nothing would put it back."""
    pools = await living_by_defaults(installation.reader)
    namespaces = await installation.namespaces()
    for what, found in (("VirtualMachinePools", pools), ("namespaces", namespaces)):
        if isinstance(found, Unavailable):
            return [unreadable(CHECK, what, found)]
    assert not isinstance(pools, Unavailable)
    assert not isinstance(namespaces, Unavailable)
    modes = {one.meta.name: installation.mode(one, names.INSTANCETYPES) for one in namespaces}
    left = [pool.title for pool in pools if modes.get(pool.meta.namespace) != names.ENFORCE]
    if left:
        what = (
            f"{pluralize(len(left), 'pool')} lose the only size of their VMs when they change, since instancetypes is "
        )
        what += f"not enforced there any more: {several(left)}"
        return [Finding(CHECK, _KIND, "warning", what, FIX)]
    if pools:
        what = (
            f"the VMs of {pluralize(len(pools), 'pool')} have a size by default alone, as long as this server is called"
        )
        todo = f"before you uninstall or relabel, {FIX}"
        return [Finding(CHECK, _KIND, "ok", f"{what}: {several([pool.title for pool in pools])}", todo)]
    return [Finding(CHECK, _KIND, "ok", "no pool of VMs has its size by default alone")]


async def living_by_defaults(reader: Reader) -> list[Pool] | Unavailable:
    """The pools that say no size and whose VMs got one from this server."""
    unsized: list[Pool] = []
    for resource in POOLS:
        pools = await reader.all(resource)
        if isinstance(pools, Unavailable):
            return pools
        unsized = [pool for pool in pools if not pool.is_sized]
        if pools:
            break
    if not unsized:
        return []
    vms = await reader.all(VMS)
    if isinstance(vms, Unavailable):
        return vms
    given = {_pool_of(vm) for vm in vms if vm.meta.annotation(names.INSTANCETYPE_MARK)}
    return [pool for pool in unsized if (pool.meta.namespace, pool.meta.name) in given]


def _pool_of(vm: Object) -> tuple[str | None, str | None] | None:
    controller = vm.meta.controller_owner()
    return (vm.meta.namespace, controller.name) if controller and controller.kind == _KIND else None
