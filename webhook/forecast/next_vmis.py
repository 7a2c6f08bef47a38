"""The VMIs that KubeVirt makes next of VMs whose templates have changed since they were started."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import ObjectKey
from webhook.forecast.snapshot import namespaced_name
from webhook.forecast.vm import BlockingLookups, StandInUuids
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.resources import UNSTRUCTURED_VMS
from webhook.kubevirt.run_strategy import RunnableVm
from webhook.kubevirt.vm import creation
from webhook.kubevirt.vm.creation import CreationDenied
from webhook.placement.machines import Vmi


async def next_vmis(
    vms: Iterable[RunnableVm], cluster: Cluster, configuration: ClusterConfig, deadline: float
) -> tuple[dict[NamespacedName, Vmi | str], list[str]]:
    """What KubeVirt makes of VMs, with their instancetypes and preferences, or why it makes none.

    Args:
        vms: those whose templates have changes that need a restart.
        cluster: where they are read whole, and what they name.
        configuration: KubeVirt's.
        deadline: when reading ends, on the running loop's clock, in seconds.

    Returns:
        the VMIs by namespace and name, or a clause instead; and gaps, clauses.
    """
    found: dict[NamespacedName, Vmi | str] = {}
    gaps = []
    for vm in vms:
        key = namespaced_name(vm)
        whole = await cluster.read(ObjectKey(UNSTRUCTURED_VMS, *key), deadline)
        if not isinstance(whole, Unstructured):
            why = f": {whole.why}" if isinstance(whole, Unavailable) else ""
            gaps.append(f"the changes of VirtualMachine {'/'.join(key)}, which counts as it runs{why}")
            continue
        metadata = {name: value for name, value in whole.plain()["metadata"].items() if value is not None}
        plain = {**whole.plain(), "kind": UNSTRUCTURED_VMS.kind, "apiVersion": whole.api_version or "kubevirt.io/v1"}
        plain["metadata"] = metadata
        uuids = StandInUuids(plain)
        try:
            made = partial(creation.from_vm, plain, new_uuid=uuids.next, configuration=configuration)
            created = await BlockingLookups({}, cluster).run(made)
            vmi = msgspec.convert({**created.obj, "status": {}}, Vmi)
        except CreationDenied as denied:
            found[key] = f"KubeVirt makes no VirtualMachineInstance of it: {denied.what}"
        except (InputError, msgspec.ValidationError) as error:
            gaps.append(f"the changes of VirtualMachine {'/'.join(key)}, which counts as it runs: {error}")
        else:
            found[key] = vmi
    return found, gaps
