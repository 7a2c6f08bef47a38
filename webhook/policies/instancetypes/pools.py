"""Pools of VMs that have their size from a default instancetype, which would lose it without the policy."""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.errors import Unavailable
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.json_tree import member
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, View
from webhook.kubevirt.resources import UNSTRUCTURED_VMS
from webhook.kubevirt.vm.size import has_memory
from webhook.policy import Installed, Objects
from webhook.text import abbreviate, pluralize

FIX: Final = "set an instancetype or a memory size in spec.virtualMachineTemplate.spec of these pools"
VMS: Final = UNSTRUCTURED_VMS.decoded_as(Object)
_DEFAULTED: Final = "whose VMs have their size from a default instancetype"
_POOL_KIND: Final = "VirtualMachinePool"


class PoolVmTemplate(View, frozen=True):
    """The template of a pool's VMs; its spec is plain JSON."""

    spec: dict[str, Any] | None = None


class PoolSpec(View, frozen=True):
    """``spec`` of a VirtualMachinePool (pool.kubevirt.io)."""

    virtual_machine_template: PoolVmTemplate | None = None


class Pool(Object, frozen=True):
    """A VirtualMachinePool (pool.kubevirt.io)."""

    spec: PoolSpec | None = None

    @property
    def title(self) -> str:
        """The pool as ``NAMESPACE/NAME``."""
        return f"{self.meta.namespace}/{self.meta.name}"

    @property
    def is_sized(self) -> bool:
        """Whether its template sets a size of its VMs."""
        template = self.spec.virtual_machine_template if self.spec else None
        value = template.spec if template else None
        return bool(member(value, "instancetype")) or has_memory(member(value, "template.spec.domain"))


# The newest version first; an older KubeVirt serves only v1alpha1.
POOLS: Final = tuple(
    Resource("pool.kubevirt.io", version, "virtualmachinepools", _POOL_KIND, True, Pool)
    for version in ("v1beta1", "v1alpha1")
)


@check("pools")
async def check_pools(installation: Installed) -> list[Finding]:
    """Name the pools that depend on a default; a warning where nothing would set it again."""
    pools = readable("VirtualMachinePools", await pools_of_defaults(installation.reader))
    modes = readable("namespaces", await installation.modes(names.INSTANCETYPES))
    left = [pool.title for pool in pools if modes.get(pool.meta.namespace or "") != names.ENFORCE]
    if left:
        what = f"{pluralize(len(left), 'pool')} {_DEFAULTED} are in namespaces that do not enforce instancetypes"
        consequence = f"so their next change removes the size: {abbreviate(left)}"
        return [warning("size-at-risk", _POOL_KIND, f"{what}, {consequence}", FIX)]
    what = f"{pluralize(len(pools), 'pool')} {_DEFAULTED}"
    if not pools:
        return [ok("no-pools", _POOL_KIND, what)]
    todo = f"before you uninstall kubevirt-webhook or change the namespace label, {FIX}"
    return [ok("size-by-default", _POOL_KIND, f"{what}: {abbreviate([pool.title for pool in pools])}", todo)]


async def pools_of_defaults(reader: Objects) -> list[Pool] | Unavailable:
    """The pools that set no size and whose VMs got a default instancetype from kubevirt-webhook."""
    unsized: list[Pool] = []
    for resource in POOLS:
        pools = await reader.all(resource)
        if isinstance(pools, Unavailable):
            return pools
        unsized = [pool for pool in pools if not pool.is_sized]
        if pools:
            break
    vms = await reader.all(VMS) if unsized else ()
    if isinstance(vms, Unavailable):
        return vms
    owners = [
        (vm.meta.namespace, vm.meta.controller_owner())
        for vm in vms
        if vm.meta.annotation(names.INJECTED_INSTANCETYPE_ANNOTATION)
    ]
    defaulted = {(namespace, owner.name) for namespace, owner in owners if owner and owner.kind == _POOL_KIND}
    return [pool for pool in unsized if (pool.meta.namespace, pool.meta.name) in defaulted]
