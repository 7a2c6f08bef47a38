"""Pods and nodes (core/v1).

Beside them stand views that leave fields out, for what is decoded by the thousand: msgspec builds an object for each
field that a class declares, and skips all others.
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.k8s.quantity import Nanos, ResourceList, read_resource_list
from webhook.k8s.types.meta import Condition, Object, View
from webhook.k8s.types.scheduling import REQUIRED, Affinity, Placed, Taint, Toleration, TopologySpreadConstraint


class ResourceRequirements(View, frozen=True):
    """A container's, a pod's or a guest's. Quantities stay as they are written."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class ContainerRequests(View, frozen=True):
    """A container without its image and its command line, which for virt-launcher alone is some thirty strings."""

    name: str | None = None
    restart_policy: str | None = None
    resources: ResourceRequirements | None = None

    @property
    def requests(self) -> Nanos:
        """What it requests, without what is not a quantity."""
        return read_resource_list((self.resources.requests if self.resources else None) or {})


class EnvironmentVariable(View, frozen=True):
    """One of the ``env`` of a container; a value from elsewhere is not read."""

    name: str | None = None
    value: str | None = None


class Container(ContainerRequests, frozen=True):
    """One of the containers of a Pod (core/v1 Container)."""

    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvironmentVariable] | None = None


class LocalObjectReference(View, frozen=True):
    """An object in the namespace of another one, by name: the ConfigMap of a Pod, the ControllerRevision of a VM."""

    name: str | None = None


class ImageVolumeSource(View, frozen=True):
    """An image as a volume of a Pod."""

    reference: str | None = None


class Volume(View, frozen=True):
    """One of the ``spec.volumes`` of a Pod; only whether it is a claim is read, so those sources stay plain JSON."""

    config_map: LocalObjectReference | None = None
    image: ImageVolumeSource | None = None
    persistent_volume_claim: Any = None
    ephemeral: Any = None


class SchedulingPodSpec(View, frozen=True):
    """``spec`` of a Pod, as far as the scheduling policy reads it."""

    scheduler_name: str | None = None
    node_name: str | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None


class PodSpec(SchedulingPodSpec, frozen=True):
    """``spec`` of a Pod, or of a Deployment's template."""

    service_account_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration | None] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    resources: ResourceRequirements | None = None
    overhead: ResourceList | None = None


class ContainerStateDetails(View, frozen=True):
    """``waiting`` or ``terminated`` of a container's ``state`` or ``lastState``; only an end has an exit code."""

    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None


class ContainerState(View, frozen=True):
    """``state`` or ``lastState`` of a container."""

    waiting: ContainerStateDetails | None = None
    terminated: ContainerStateDetails | None = None


class ContainerStatus(View, frozen=True):
    """One of the ``status.containerStatuses`` of a Pod."""

    ready: bool | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PendingPodStatus(View, frozen=True):
    """``status`` of a Pod that waits for a node: what kube-scheduler has written into it so far."""

    phase: str | None = None
    conditions: list[Condition] | None = None
    nominated_node_name: str | None = None


class PodStatus(PendingPodStatus, frozen=True):
    """``status`` of a Pod."""

    container_statuses: list[ContainerStatus] | None = None


class Pod(Object, frozen=True):
    """A Pod, as commands and checks read it; reviews and watches have the views below."""

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

    The watch decodes every node at each of its heartbeats; its fifty images, each with several names, are most of it.
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


class ReviewedPodSpec(SchedulingPodSpec, frozen=True):
    """``spec`` of a Pod that is created. What it requires of nodes is decoded only where a decision needs it."""

    node_selector: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    affinity: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    tolerations: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    def placed(self) -> Placed:
        """What it requires of nodes; a `msgspec.ValidationError` where the API server does not allow a field's type."""
        fields = {"nodeSelector": self.node_selector, "affinity": self.affinity, "tolerations": self.tolerations}
        written = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
        return msgspec.json.decode(msgspec.json.encode(written), type=Placed)


class SchedulingPod(Object, frozen=True):
    """A Pod (core/v1), as the scheduling policy reads it."""

    spec: ReviewedPodSpec | None = None


class ConfigMap(Object, frozen=True):
    """A ConfigMap (core/v1): the settings of the server or of a scheduler."""

    data: dict[str, str] | None = None


class DeleteOptions(View, frozen=True):
    """``deleteOptions`` of an Eviction (metav1.DeleteOptions)."""

    dry_run: list[str] | None = None


class Eviction(Object, frozen=True):
    """What is posted to ``pods/eviction``; its name is the pod's."""

    delete_options: DeleteOptions | None = None

    @property
    def dry_run(self) -> bool:
        """Whether its own options say that nothing shall happen; the request's may say so instead."""
        return "All" in ((self.delete_options.dry_run if self.delete_options else None) or ())


class NodeAffinityTerms(View, frozen=True):
    """The required node affinity of a pod (core/v1 NodeSelector), its terms as plain JSON."""

    node_selector_terms: list[dict[str, Any]] | None = None


class PodNodeAffinity(View, frozen=True):
    """``spec.affinity.nodeAffinity`` of a Pod, without preferred terms, which exclude no node."""

    required: NodeAffinityTerms | None = msgspec.field(default=None, name=REQUIRED)


class TargetPodAntiAffinity(View, frozen=True):
    """``spec.affinity.podAntiAffinity`` of a Pod, without preferred terms."""

    required: list[Any] | None = msgspec.field(default=None, name=REQUIRED)


class TargetPodAffinity(View, frozen=True):
    """``spec.affinity`` of a migration's target pod."""

    node_affinity: PodNodeAffinity | None = None
    pod_anti_affinity: TargetPodAntiAffinity | None = None


class TargetPodSpec(View, frozen=True):
    """``spec`` of a migration's target pod, as far as it selects nodes by their labels."""

    node_selector: dict[str, str] | None = None
    affinity: TargetPodAffinity | None = None


class TargetPod(Object, frozen=True):
    """A migration's target pod, with the terms of its required node affinity as plain JSON."""

    spec: TargetPodSpec | None = None

    @property
    def terms(self) -> list[dict[str, Any]] | None:
        """Without any, nothing matches; None: every node does."""
        node = self.spec.affinity.node_affinity if self.spec and self.spec.affinity else None
        return (node.required.node_selector_terms or []) if node and node.required else None

    @property
    def apart(self) -> list[Any] | None:
        """The terms of its required pod anti-affinity, as plain JSON; None: there is none."""
        rules = self.spec.affinity.pod_anti_affinity if self.spec and self.spec.affinity else None
        return rules.required if rules else None


class PendingPodSpec(SchedulingPodSpec, frozen=True):
    """With all that keeps a live scheduler from writing a condition into a pod (kube-scheduler 1.34 to 1.36).

    ``PreEnqueue`` holds pods back for gates, claims and groups: plugins SchedulingGates, DynamicResources,
    GangScheduling, DefaultPreemption. ``PreBind`` waits for the volumes of claims (plugin VolumeBinding).
    """

    scheduling_gates: list[Any] | None = None
    resource_claims: list[Any] | None = None
    scheduling_group: Any = None
    workload_ref: Any = None
    volumes: list[Volume] | None = None

    @property
    def is_gated(self) -> bool:
        """Whether a scheduler may leave the pod aside for as long as anything else lasts."""
        held = (self.scheduling_gates, self.resource_claims, self.scheduling_group, self.workload_ref)
        return any(each not in (None, []) for each in held)

    @property
    def has_claims(self) -> bool:
        """Whether a scheduler may wait for volumes before it binds the pod."""
        return any((volume.persistent_volume_claim, volume.ephemeral) != (None, None) for volume in self.volumes or ())


class PendingPod(Object, frozen=True):
    """A pod as the scheduler's health check watches it."""

    spec: PendingPodSpec | None = None
    status: PendingPodStatus | None = None

    @property
    def is_unnoticed(self) -> bool:
        """Whether the pod waits for a scheduler that has not looked at it; none looks at one that is being deleted."""
        if self.meta.deletion_timestamp or (self.spec and self.spec.node_name):
            return False
        # A scheduler, or the API server for a gated pod, writes a condition.
        status = self.status or PendingPodStatus()
        return not status.nominated_node_name and all(each.type != "PodScheduled" for each in status.conditions or ())
