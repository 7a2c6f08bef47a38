"""Views of nodes."""

from __future__ import annotations

from webhook.k8s.views import Object, View


class TaintView(View, frozen=True):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(View, frozen=True):
    taints: list[TaintView] | None = None
    unschedulable: bool | None = None


class NodeStatus(View, frozen=True):
    allocatable: dict[str, str | int | float | None] | None = None


class NodeView(Object, frozen=True):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
