"""A row's cluster in the API server: nodes, namespaces, and pods made and deleted by the hundred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from bench.placement.client import SchedulingClient, SchedulingRequest
from bench.placement.nodes import LOAD_NAMESPACE, PlacedNode
from tests.e2e.support.kube import PATCHES, KubeError

NO_METADATA: Final[Mapping[str, object]] = MappingProxyType({})
_CONFLICT: Final = 409
_AT_ONCE: Final = "gracePeriodSeconds=0"


class PlacementCluster:
    """The nodes and namespaces that exist; each method leaves the API server as it says."""

    def __init__(self, client: SchedulingClient) -> None:
        self._client = client
        self._nodes: Sequence[PlacedNode] = ()
        self._namespaces: set[str] = set()

    def rebuild(self, nodes: Sequence[PlacedNode], devices: int) -> None:
        """Replace all nodes, and the load on them."""
        self.empty_namespaces([LOAD_NAMESPACE])
        self._client.send_all_patiently([SchedulingRequest("DELETE", "/api/v1/nodes")])
        self.create_namespaces([LOAD_NAMESPACE])
        objects = [node.object(devices) for node in nodes]
        self._client.send_all(SchedulingRequest("POST", "/api/v1/nodes", node) for node in objects)
        merge = PATCHES["merge"]
        self._client.send_all(
            SchedulingRequest("PATCH", f"{_node(node['metadata']['name'])}/status", {"status": node["status"]}, merge)
            for node in objects
        )
        loads = (pod for node in nodes if (pod := node.load_pod()))
        self._client.send_all(SchedulingRequest("POST", pods_path(LOAD_NAMESPACE), pod) for pod in loads)
        self._nodes = nodes

    def create_namespaces(self, namespaces: Iterable[str], metadata: Mapping[str, object] = NO_METADATA) -> None:
        """Create those that don't exist yet.

        Args:
            metadata: labels and annotations.
        """
        missing = [name for name in namespaces if name not in self._namespaces]
        for name in missing:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}
            try:
                self._client.send(SchedulingRequest("POST", "/api/v1/namespaces", namespace))
            except KubeError as error:
                if error.status != _CONFLICT:
                    raise
        self._namespaces.update(missing)

    def cordon(self, node: str, *, unschedulable: bool) -> None:
        """Close or open a node for new pods."""
        spec = {"spec": {"unschedulable": unschedulable or None}}
        self._client.send(SchedulingRequest("PATCH", _node(node), spec, PATCHES["merge"]))

    def empty_namespaces(self, namespaces: Iterable[str]) -> None:
        """Delete all pods and VMIs of these namespaces, and return when they are gone.

        They are gone at once, for no kubelet is there to end them. The scheduler knows it before it hears of the next
        pods: one watch reports both, in order.
        """
        existing = [name for name in namespaces if name in self._namespaces]
        self._client.send_all_patiently(
            SchedulingRequest("DELETE", f"{path(name)}?{_AT_ONCE}")
            for name in existing
            for path in (pods_path, machines_path)
        )

    def delete_pods(self, pods: Iterable[tuple[str, str]]) -> None:
        """Delete single pods, given by namespace and name."""
        self._client.send_all(
            SchedulingRequest("DELETE", f"{pods_path(namespace)}/{name}?{_AT_ONCE}") for namespace, name in pods
        )


def pods_path(namespace: str) -> str:
    """The URL path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def machines_path(namespace: str) -> str:
    """The URL path of a namespace's VirtualMachineInstances."""
    return f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"


def _node(name: str) -> str:
    return f"/api/v1/nodes/{name}"
