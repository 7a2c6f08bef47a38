"""Looks for pools whose VMs have their size from a default instancetype, and lose it once nothing restores it.

A VirtualMachinePool writes the whole spec of its VMs when its template changes, and with it takes away the default
instancetype that kubevirt-webhook set. While the API server calls kubevirt-webhook, it sets the default again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook import names
from webhook.cluster.reader import Reader
from webhook.doctor.support.finding import Finding, abbreviate, unreadable
from webhook.doctor.support.installation import Installation
from webhook.errors import Unavailable
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object, View
from webhook.kubevirt.resources import STORED_VMS
from webhook.kubevirt.vm.size import has_memory
from webhook.text import pluralize

CHECK: Final = "pools"
FIX: Final = "set an instancetype or a memory size in spec.virtualMachineTemplate.spec of these pools"

_KIND: Final = "VirtualMachinePool"


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
        machine = self.spec.virtual_machine_template if self.spec else None
        value: Any = (machine.spec if machine else None) or {}
        if value.get("instancetype"):
            return True
        for name in ("template", "spec", "domain"):
            value = value.get(name) if isinstance(value, dict) else None
        return has_memory(value)


# The newest version first; an older KubeVirt serves only v1alpha1.
POOLS: Final = tuple(
    Resource("pool.kubevirt.io", version, "virtualmachinepools", _KIND, True, Pool)
    for version in ("v1beta1", "v1alpha1")
)
VMS: Final = msgspec.structs.replace(STORED_VMS, view=Object)


async def check(installation: Installation) -> list[Finding]:
    """Name the pools that depend on a default; a warning where nothing would set it again."""
    pools = await depending_on_defaults(installation.reader)
    namespaces = await installation.namespaces()
    for subject, answer in (("VirtualMachinePools", pools), ("namespaces", namespaces)):
        if isinstance(answer, Unavailable):
            return [unreadable(CHECK, subject, answer)]
    assert not isinstance(pools, Unavailable)
    assert not isinstance(namespaces, Unavailable)
    modes = {namespace.meta.name: installation.mode(namespace, names.INSTANCETYPES) for namespace in namespaces}
    left = [pool.title for pool in pools if modes.get(pool.meta.namespace) != names.ENFORCE]
    if left:
        what = (
            f"{pluralize(len(left), 'pool')} whose VMs have their size from a default instancetype are in namespaces "
            f"that do not enforce instancetypes, so their next change removes the size: {abbreviate(left)}"
        )
        return [Finding(CHECK, "size-at-risk", _KIND, "warning", what, FIX)]
    if pools:
        titles = abbreviate([pool.title for pool in pools])
        what = f"{pluralize(len(pools), 'pool')} whose VMs have their size from a default instancetype: {titles}"
        todo = f"before you uninstall kubevirt-webhook or change the namespace label, {FIX}"
        return [Finding(CHECK, "size-by-default", _KIND, "ok", what, todo)]
    what = "0 pools whose VMs have their size from a default instancetype"
    return [Finding(CHECK, "no-pools", _KIND, "ok", what)]


async def depending_on_defaults(reader: Reader) -> list[Pool] | Unavailable:
    """The pools that set no size and whose VMs got a default instancetype from kubevirt-webhook."""
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
    given = {_pool_of(vm) for vm in vms if vm.meta.annotation(names.INJECTED_INSTANCETYPE_ANNOTATION)}
    return [pool for pool in unsized if (pool.meta.namespace, pool.meta.name) in given]


def _pool_of(vm: Object) -> tuple[str | None, str | None] | None:
    controller = vm.meta.controller_owner()
    return (vm.meta.namespace, controller.name) if controller and controller.kind == _KIND else None
