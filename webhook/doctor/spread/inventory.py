"""The nodes and virtual machines of a cluster, as its objects show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from webhook import names
from webhook.doctor.spread import scores
from webhook.doctor.spread.hosts import GuestDemand, Host, VmGuest
from webhook.k8s.quantity import Nanos, nanos
from webhook.k8s.timestamps import unix_time
from webhook.k8s.types.core import Container, Node, NodeSpec, Pod
from webhook.kubevirt.launcher import NotLauncher, vmi_owner
from webhook.placement.demand import is_sidecar, sum_requests
from webhook.placement.nodes import CPU, KVM_DEVICE, MEMORY, SCHEDULABLE, parse_allocatable, to_scheduler_units

# What a kubelet reports unless its nodeStatusMaxImages says otherwise.
MAX_IMAGES: Final = 50
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

_LIVING: Final = ("Pending", "Running")
_CLOSING: Final = ("NoSchedule", "NoExecute")
_DEFAULT_PODS: Final = 110
# What NodeResourcesFit counts for a container that requests nothing (pkg/scheduler/util, GetNonzeroRequests).
_ASSUMED: Final = {CPU: 100 * 10**6, MEMORY: 200 * 2**20 * 10**9}


class Inventory(NamedTuple):
    """What there is.

    Attributes:
        hosts: all nodes, with all pods but those of `guests`.
        guests: launcher pods on open nodes, the oldest first.
        image: the image of the newest launcher pods' first container; empty where no VM runs.
        listing: how many open nodes list that image.
        full: how many open nodes report as many images as a kubelet does at most, and not this one.
        points: what ImageLocality gives to the nodes that list it.
        unzoned: how many open nodes have no label for their zone.
    """

    hosts: tuple[Host, ...]
    guests: tuple[VmGuest, ...]
    image: str
    listing: int
    full: int
    points: int
    unzoned: int

    @property
    def open(self) -> list[Host]:
        """Nodes that new VMs can go to."""
        return [host for host in self.hosts if host.is_open]

    def occupied_hosts(self) -> list[Host]:
        """Nodes that can take VMs, or have some, with everything on them."""
        copies = {host.name: host.copy() for host in self.hosts}
        for guest in self.guests:
            copies[guest.node].add_guest(guest)
        return [host for host in copies.values() if host.is_open or host.count]


def take(nodes: Iterable[Node], pods: Iterable[Pod], will_spread: Callable[[str], bool] = lambda _: False) -> Inventory:
    """Count what nodes offer and pods request.

    Args:
        nodes: all nodes of the cluster.
        pods: all pods of the cluster, launcher pods among them.
        will_spread: whether launcher pods made now in a namespace get a constraint on host names.
    """
    nodes = [node for node in nodes if node.meta.name]
    living = [pod for pod in pods if pod.spec.node_name and pod.status.phase in _LIVING]
    launchers = sorted(
        (pod for pod in living if not isinstance(vmi_owner(pod), NotLauncher)),
        key=lambda pod: (unix_time(pod.meta.creation_timestamp) or 0.0, pod.meta.namespace or "", pod.meta.name or ""),
    )
    image, per_image = _image(launchers)
    hosts = {host.name: host for host in (_host(node, image) for node in nodes)}
    guests = []
    is_guest = set()
    for pod in launchers:
        host = hosts.get(pod.spec.node_name or "")
        if host and host.is_open:
            guests.append(_guest(pod, is_spread=will_spread(pod.meta.namespace or "")))
            is_guest.add(id(pod))
    for pod in living:
        host = hosts.get(pod.spec.node_name or "")
        if host and id(pod) not in is_guest:
            _settle(host, pod)
    opened = [node for node in nodes if hosts[node.meta.name or ""].is_open]
    sizes = [size for node in nodes if (size := _image_size(node, image)) is not None]
    return Inventory(
        tuple(hosts.values()),
        tuple(guests),
        image,
        sum(hosts[node.meta.name or ""].lists_image for node in opened),
        sum(len(node.images) >= MAX_IMAGES and _image_size(node, image) is None for node in opened),
        scores.image_points([max(sizes)] * per_image, len(sizes) / len(nodes)) if sizes else 0,
        sum(not node.meta.label(ZONE) for node in opened),
    )


def _settle(host: Host, pod: Pod) -> None:
    """Leave a pod where it is; a launcher pod counts as a VM there."""
    if isinstance(vmi_owner(pod), NotLauncher):
        host.add(_demand(pod))
    else:
        host.add_guest(_guest(pod))


def _host(node: Node, image: str) -> Host:
    allocatable = parse_allocatable(node.allocatable)
    spec = node.spec or NodeSpec()
    taints = {taint.effect for taint in spec.taints or ()}
    return Host(
        node.meta.name or "",
        max(0, allocatable.get(CPU, 0)),
        max(0, allocatable.get(MEMORY, 0)),
        max(0, allocatable.get(KVM_DEVICE, 0)),
        _pods(node),
        lists_image=_image_size(node, image) is not None,
        labels=node.meta.labels or {},
        is_open=node.meta.label(SCHEDULABLE) == "true" and not spec.unschedulable and taints.isdisjoint(_CLOSING),
    )


def _pods(node: Node) -> int:
    written = node.allocatable.get("pods")
    amount = None if written is None else nanos(written)
    return _DEFAULT_PODS if amount is None else amount // 10**9


def _guest(pod: Pod, *, is_spread: bool = False) -> VmGuest:
    spec = pod.spec
    has = any(constraint.topology_key == HOSTNAME for constraint in spec.topology_spread_constraints or ())
    return VmGuest(
        pod.meta.namespace or "",
        pod.meta.name or "",
        _demand(pod),
        spec.node_name or "",
        spec.node_selector or {},
        # An owner's own constraints, on whatever, keep others from being written.
        is_spread=has or (is_spread and not spec.topology_spread_constraints),
        is_stock=spec.scheduler_name in (None, "", names.DEFAULT_SCHEDULER),
    )


def _demand(pod: Pod) -> GuestDemand:
    requested, scored = _total(pod, {}), _total(pod, _ASSUMED)
    return GuestDemand(
        _amount(requested, CPU),
        _amount(requested, MEMORY),
        _amount(requested, KVM_DEVICE),
        _amount(scored, CPU),
        _amount(scored, MEMORY),
    )


def _amount(amounts: Nanos, resource: str) -> int:
    return max(0, to_scheduler_units(resource, amounts.get(resource, 0)))


def _total(pod: Pod, assumed: Nanos) -> Nanos:
    """What a pod requests, where its containers request what is assumed of them unless they say."""

    def requests(container: Container) -> Nanos:
        return {**assumed, **container.requests}

    spec = pod.spec
    return sum_requests(
        [requests(container) for container in spec.containers or ()],
        [(requests(container), is_sidecar(container)) for container in spec.init_containers or ()],
        pod_level=spec.resources.requests if spec.resources else None,
        overhead=spec.overhead,
    )


def _image(launchers: Sequence[Pod]) -> tuple[str, int]:
    """The image of most launcher pods' containers, and in how many containers of such a pod it is."""
    launchers_by_image = Counter(
        (container.image, sum(other.image == container.image for other in _containers(pod)))
        for pod in launchers
        for container in (pod.spec.containers or ())[:1]
        if container.image
    )
    if not launchers_by_image:
        return "", 0
    ((image, number), _), *_ = launchers_by_image.most_common(1)
    return image or "", number


def _containers(pod: Pod) -> list[Container]:
    return [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]


def _image_size(node: Node, image: str) -> int | None:
    """The size of an image as a node lists it; None: it does not."""
    if not image:
        return None
    # kube-scheduler itself adds the tag that a container runtime would (imagelocality, normalizedImageName).
    wanted = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    return next((listed.size_bytes or 0 for listed in node.images if wanted in (listed.names or ())), None)
