"""Kinds of core/v1: pods, nodes, namespaces.

Each kind is there once, with all fields that a reader of it needs. Beside it stand views that leave fields out, for
what is decoded by the thousand: msgspec builds an object for each field that a class declares and skips all others.
"""

from __future__ import annotations

import msgspec

from webhook.k8s.quantity import Nanos, ResourceList, read_resource_list
from webhook.k8s.types.scheduling import Taint, TopologySpreadConstraint
from webhook.k8s.views import Condition, Object, View


class ResourceRequirements(View, frozen=True):
    """A container's, a pod's or a guest's. Quantities stay as they are written."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class ContainerRequests(View, frozen=True):
    """A container without its image and command line, of which a review of a migration reads neither.

    The command line of virt-launcher's container alone is some thirty strings.
    """

    name: str | None = None
    restart_policy: str | None = None
    resources: ResourceRequirements | None = None

    @property
    def requests(self) -> Nanos:
        """What it requests, without what is not a quantity."""
        return read_resource_list((self.resources.requests if self.resources else None) or {})


class Container(ContainerRequests, frozen=True):
    """One of the containers of a Pod (core/v1 Container)."""

    image: str | None = None
    args: list[str] | None = None


class ConfigMapVolumeSource(View, frozen=True):
    """``configMap`` of a volume: the ConfigMap by name."""

    name: str | None = None


class Volume(View, frozen=True):
    """One of the ``spec.volumes`` of a Pod."""

    config_map: ConfigMapVolumeSource | None = None


class PodSpec(View, frozen=True):
    """``spec`` of a Pod, or of a Deployment's template."""

    scheduler_name: str | None = None
    node_name: str | None = None
    service_account_name: str | None = None
    node_selector: dict[str, str] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    resources: ResourceRequirements | None = None
    overhead: ResourceList | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None


class WaitingState(View, frozen=True):
    """``state.waiting`` of a container."""

    reason: str | None = None
    message: str | None = None


class TerminatedState(View, frozen=True):
    """``state.terminated`` or ``lastState.terminated`` of a container."""

    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None


class ContainerState(View, frozen=True):
    """``state`` or ``lastState`` of a container."""

    waiting: WaitingState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(View, frozen=True):
    """One of the ``status.containerStatuses`` of a Pod."""

    ready: bool | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(View, frozen=True):
    """``status`` of a Pod."""

    phase: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class Pod(Object, frozen=True):
    """A Pod, as commands and checks read it; what reviews and watches read of pods is in `webhook.k8s.pods`."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(View, frozen=True):
    """``spec`` of a Node: what keeps pods away from it, and the ranges of its pods' addresses."""

    taints: list[Taint] | None = None
    unschedulable: bool | None = None
    pod_cidrs: list[str] | None = msgspec.field(default=None, name="podCIDRs")


class NodeResources(View, frozen=True):
    """``status`` of a `NodeWithoutImages`: quantities by resource name, as the kubelet wrote them, and conditions."""

    allocatable: ResourceList | None = None
    conditions: list[Condition] | None = None


class ContainerImage(View, frozen=True):
    """One of the images that a node lists."""

    names: list[str] | None = None
    size_bytes: int | None = None


class NodeSystemInfo(View, frozen=True):
    """``status.nodeInfo`` of a Node."""

    architecture: str | None = None
    operating_system: str | None = None


class NodeAddress(View, frozen=True):
    """One of the addresses of a Node."""

    address: str | None = None


class NodeStatus(NodeResources, frozen=True):
    """``status`` of a Node."""

    images: list[ContainerImage] | None = None
    node_info: NodeSystemInfo | None = None
    addresses: list[NodeAddress] | None = None


class NodeWithoutImages(Object, frozen=True):
    """A Node, as far as eligibility depends on it; `webhook.placement.nodes` parses it.

    The watch decodes every node at each of its heartbeats, and the fifty images that a node lists, each with several
    names, are most of its status.
    """

    spec: NodeSpec | None = None
    status: NodeResources | None = None

    @property
    def allocatable(self) -> ResourceList:
        """What pods can request of it; empty: the kubelet has not reported it."""
        return (self.status.allocatable if self.status else None) or {}


class Node(NodeWithoutImages, frozen=True):
    """A Node, with its images and addresses."""

    status: NodeStatus | None = None

    @property
    def images(self) -> list[ContainerImage]:
        """The images that the kubelet has reported, the largest first."""
        return (self.status.images if self.status else None) or []
