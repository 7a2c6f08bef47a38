"""What nodes and pods use of CPU and memory, as metrics.k8s.io has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from webhook.k8s.quantity import ResourceList, read_resource_list
from webhook.k8s.resources import NamespacedName, Resource
from webhook.k8s.types.meta import Object, View
from webhook.placement.nodes import CPU, MEMORY, to_scheduler_units

# CPU and memory, in kube-scheduler's units.
Amounts: TypeAlias = tuple[int, int]
RESOURCES: Final = (CPU, MEMORY)


class Usage(msgspec.Struct, frozen=True):
    """What nodes and VMs use, as far as it is known.

    Attributes:
        source: where that is from.
        vms: by namespace and name. A VM uses as much wherever it runs.
    """

    source: str
    nodes: Mapping[str, Amounts]
    vms: Mapping[NamespacedName, Amounts]


class NodeMetrics(Object, frozen=True):
    """What a node uses (metrics.k8s.io/v1beta1): its pods, and all that is beside them."""

    usage: ResourceList | None = None

    @property
    def amounts(self) -> Amounts | None:
        """CPU and memory; None where one of them is missing."""
        return _amounts(self.usage)


class _ContainerMetrics(View, frozen=True):
    usage: ResourceList | None = None


class PodMetrics(Object, frozen=True):
    """What the containers of a pod use (metrics.k8s.io/v1beta1)."""

    containers: list[_ContainerMetrics | None] | None = None

    @property
    def amounts(self) -> Amounts | None:
        """CPU and memory; None where those of a container are missing."""
        each = [_amounts(container.usage) for container in self.containers or () if container]
        known = [amounts for amounts in each if amounts]
        if not known or len(known) < len(each):
            return None
        return sum(cpu for cpu, _ in known), sum(memory for _, memory in known)


NODE_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False, NodeMetrics)
POD_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", True, PodMetrics)


def _amounts(usage: ResourceList | None) -> Amounts | None:
    nanos = read_resource_list(usage or {})
    if not nanos.keys() >= {*RESOURCES}:
        return None
    return to_scheduler_units(CPU, nanos[CPU]), to_scheduler_units(MEMORY, nanos[MEMORY])
