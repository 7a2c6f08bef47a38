"""Where kinds live in the API, and the views to decode them with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from webhook.k8s.paths import object_path
from webhook.k8s.types.core import ConfigMap, Node, NodeWithoutImages, PendingPod, Pod
from webhook.k8s.types.meta import Lease, Namespace, Object, Unstructured

V = TypeVar("V", bound=Object)
W = TypeVar("W", bound=Object)
# Two texts; a namespace that is empty is none.
NamespacedName: TypeAlias = tuple[str, str]


class Resource(msgspec.Struct, Generic[V], frozen=True):
    """Where a kind lives in the API, and the view to decode it with.

    Lists that are facts, of a server or of files, have what ``keep`` returns of each object, if anything;
    `webhook.cluster.reader.ObjectReader`, for commands, has whole objects.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    view: type[V]
    keep: Callable[[V], V | None] | None = None

    def decoded_as(self, view: type[W], keep: Callable[[W], W | None] | None = None) -> Resource[W]:
        """The same kind with another view, and what lists keep of that."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced, view, keep)

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of the resource's objects: ``GROUP/VERSION``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "") -> str:
        """The URL path of the collection or of one object; see `object_path`. Cluster-scoped ones have no namespace."""
        return object_path(self.api_version, self.plural, namespace if self.namespaced else "", name)


def _share_image_names(node: Node) -> Node:
    """Nodes have many images in common, so lists keep one copy of each name."""
    for image in node.images:
        if image.names:
            image.names[:] = map(sys.intern, image.names)
    return node


NODES: Final = Resource("", "v1", "nodes", "Node", False, NodeWithoutImages)
NODES_WITH_IMAGES: Final = NODES.decoded_as(Node, _share_image_names)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False, Namespace)
PODS: Final = Resource("", "v1", "pods", "Pod", True, Pod)
PENDING_PODS: Final = PODS.decoded_as(PendingPod)
POD_METADATA: Final = PODS.decoded_as(Object)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True, ConfigMap)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
# Written, not read. Events of this group carry a series, which is what repeats of the same become.
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", True, Object)
POLICY_REPORTS: Final = Resource("wgpolicyk8s.io", "v1alpha2", "policyreports", "PolicyReport", True, Object)
UNSTRUCTURED_PODS: Final = PODS.decoded_as(Unstructured)
