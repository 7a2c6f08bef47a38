"""Views of nodes."""

from __future__ import annotations

from webhook.k8s.types.scheduling import Taint
from webhook.k8s.views import Object, View


class NodeSpec(View, frozen=True):
    """``spec`` of a Node (core/v1 NodeSpec): what keeps pods away from it."""

    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeStatus(View, frozen=True):
    """``status`` of a Node (core/v1 NodeStatus): quantities by resource name, as the kubelet wrote them."""

    allocatable: dict[str, str | int | float | None] | None = None


class NodeView(Object, frozen=True):
    """A Node (core/v1), as far as eligibility depends on it; `webhook.placement.nodes` parses it."""

    spec: NodeSpec | None = None
    status: NodeStatus | None = None
