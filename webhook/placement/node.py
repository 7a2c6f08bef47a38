"""What a placement depends on of a node."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook.errors import InputError
from webhook.k8s import nodes
from webhook.placement import resources
from webhook.placement.labels import Labels
from webhook.placement.reading import read

HOSTNAME: Final = "kubernetes.io/hostname"
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
# PreferNoSchedule only costs score.
_REPELLING: Final = (NO_SCHEDULE, NO_EXECUTE)


class Taint(msgspec.Struct, frozen=True, order=True, gc=False):
    """A taint that keeps pods away."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


# Equal to what `spec.unschedulable` means, with or without the taint (kube-scheduler's NodeUnschedulable).
CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node, trimmed; texts are interned, because thousands of nodes share them.

    Attributes:
        taints: those with the effects NoSchedule and NoExecute, sorted, each once; without a cordoned node's own.
        unschedulable: cordoned.
        no_kvm: KubeVirt's device plugin says that it has none to give; where it says nothing, it is not known.
        allocatable: what pods could request of the whole node, as `resources` counts it; None: the kubelet has not
            reported it yet.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    no_kvm: bool = False
    allocatable: dict[str, int] | None = None

    @classmethod
    def of(cls, view: nodes.NodeView) -> Node:
        """Trim what the API server sends.

        Raises:
            InputError: it has no name.
        """
        # Nearly always it is also the value of a label.
        name = sys.intern(view.meta.name or "")
        if not name:
            raise InputError("has no name", "a node's metadata")
        spec = view.spec or nodes.NodeSpec()
        unschedulable = bool(spec.unschedulable)
        taints = {
            Taint(sys.intern(taint.key or ""), sys.intern(taint.value or ""), sys.intern(taint.effect or ""))
            for taint in spec.taints or ()
            if taint.effect in _REPELLING
        }
        if unschedulable:
            taints.discard(CORDON)
        allocatable = view.status.allocatable if view.status else None
        return cls(
            name,
            Labels(view.meta.labels or {}),
            tuple(sorted(taints)),
            unschedulable,
            allocatable is not None and str(allocatable.get(resources.KVM_DEVICE)) == "0",
            None if allocatable is None else resources.NOT_REPORTED | resources.allocatable(allocatable),
        )

    def lacks(self, resource: str, amount: int) -> bool:
        """Whether a request can never fit, whatever runs here: the whole node has less, as far as it has reported."""
        return self.allocatable is not None and self.allocatable.get(resource, 0) < amount

    @classmethod
    def read(cls, json: Any) -> Node:
        """A node from plain JSON.

        Args:
            json: a Node (core/v1), decoded.

        Raises:
            InputError: the value is not a node.
        """
        return cls.of(read(nodes.NodeView, json, "node"))
