"""Where kinds live in the API, and the views to decode them with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from webhook.k8s.nodes import NodeView
from webhook.k8s.pods import PendingPod
from webhook.k8s.views import Lease, Namespace, Object, PartialObjectMetadata, Unstructured

V = TypeVar("V", bound=Object)


class Resource(msgspec.Struct, Generic[V], frozen=True):
    """Where a kind lives in the API, and the view to decode it with.

    Attributes:
        keep: what lists keep of an object, None for nothing; without it the whole view.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    view: type[V]
    keep: Callable[[V], V | None] | None = None

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of the resource's objects: ``GROUP/VERSION``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "") -> str:
        """The URL path of the collection (of all namespaces where none is given) or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "")


NODES: Final = Resource("", "v1", "nodes", "Node", False, NodeView)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False, Namespace)
PODS: Final = Resource("", "v1", "pods", "Pod", True, PendingPod)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
# Written, not read. Events of this group carry a series, which is what repeats of the same become.
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", True, PartialObjectMetadata)
POLICY_REPORTS: Final = Resource(
    "wgpolicyk8s.io", "v1alpha2", "policyreports", "PolicyReport", True, PartialObjectMetadata
)
# As the background scan reads them.
UNSTRUCTURED_PODS: Final = Resource("", "v1", "pods", "Pod", True, Unstructured)
