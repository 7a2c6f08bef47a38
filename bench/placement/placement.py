"""One cell of the table: the VMs of a row come as it says, placed as a case says, and are counted."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bench.placement import launcher, webhook
from bench.placement.bindings import Bindings
from bench.placement.cases import PlacementCase
from bench.placement.client import SchedulingClient, SchedulingRequest
from bench.placement.cluster import NO_METADATA, PlacementCluster, machines_path, pods_path
from bench.placement.constraint import constrain
from bench.placement.figures import PlacementFigures, count_figures
from bench.placement.nodes import PlacedNode
from bench.placement.rows import Arrival, PlacementRow
from bench.placement.sizes import PlacementSize, draw_sizes
from webhook import names

_BOUND_WITHIN_SECONDS: Final = 180.0
_CHURNS: Final = 3
_LEAVING_SHARE: Final = 3
_DRAINED_NODES: Final = 2
_COMING_SHARE: Final = 5
_SEED: Final = 1


@dataclass(slots=True)
class PlacedVm:
    """A VM, its namespace, and the pod that runs it now."""

    name: str
    namespace: str
    size: PlacementSize
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    migrations: int = 0

    @property
    def pod_name(self) -> str:
        """The name of its present pod."""
        target = f"-{self.migrations}" if self.migrations else ""
        return f"virt-launcher-{self.name}{target}"


class PlacementClients(NamedTuple):
    """Who creates pods.

    Attributes:
        admin: an administrator, whose pods the webhook leaves alone.
        controller: KubeVirt's controller.
    """

    admin: SchedulingClient
    controller: SchedulingClient


class Placement:
    """The VMs of one cell, from the first that comes to the figures of all."""

    def __init__(
        self,
        row: PlacementRow,
        case: PlacementCase,
        cluster: PlacementCluster,
        clients: PlacementClients,
        bindings: Bindings,
    ) -> None:
        self._row = row
        self._case = case
        self._cluster = cluster
        self._clients = clients
        self._bindings = bindings
        # The webhook's are others: the label and the annotation of a namespace say what it does there.
        prefix = f"webhook-{case.spread}-" if case.through_webhook else ""
        self._namespaces = [f"{prefix}{name}" for name in row.namespace_names]
        self._random = random.Random(_SEED)  # noqa: S311 - not for secrets
        self._vms: list[PlacedVm] = []
        self._made = 0
        # Pods of one cell may not be taken for those of the one before, whose deletion is still being reported.
        self._prefix = f"vm-{uuid.uuid4().hex[:6]}"

    def run(self, nodes: tuple[PlacedNode, ...]) -> PlacementFigures:
        """Place the VMs, count them, and delete their pods.

        Raises:
            PlacementError: a pod was not bound.
            ApiError: the API server denied a request.
        """
        metadata = webhook.metadata(self._case) if self._case.through_webhook else NO_METADATA
        self._cluster.create_namespaces(self._namespaces, metadata)
        try:
            _ARRIVALS[self._row.arrival](self, nodes)
            placed = self._placed()
            return count_figures(nodes, placed, {vm.pod_name: vm.size for vm in self._vms})
        finally:
            self._cluster.empty_namespaces(self._namespaces)

    # -- how VMs come and go -------------------------------------------------------------------------------------------

    def burst(self, _: tuple[PlacedNode, ...]) -> None:
        """All at once."""
        self._come(self._row.vms)

    def one_by_one(self, _: tuple[PlacedNode, ...]) -> None:
        """Each when the one before it is bound."""
        for _number in range(self._row.vms):
            self._come(1)

    def churn(self, _: tuple[PlacedNode, ...]) -> None:
        """A third of them leaves, chosen by chance, and as many others come; three times."""
        self._come(self._row.vms)
        for _round in range(_CHURNS):
            leaving = self._random.sample(self._vms, self._row.vms // _LEAVING_SHARE)
            self._leave(leaving)
            self._come(len(leaving))

    def drain(self, nodes: tuple[PlacedNode, ...]) -> None:
        """Two nodes are drained by live migrations and opened again; then a fifth more VMs come."""
        self._come(self._row.vms - self._row.vms // _COMING_SHARE)
        drained = [node.name for node in nodes[:_DRAINED_NODES]]
        for node in drained:
            self._cluster.cordon(node, unschedulable=True)
        placed = self._placed()
        self._migrate([vm for vm in self._vms if placed[vm.pod_name] in drained])
        for node in drained:
            self._cluster.cordon(node, unschedulable=False)
        self._come(self._row.vms // _COMING_SHARE)

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _come(self, count: int) -> None:
        sizes = draw_sizes(self._row.sizes, count, _SEED + self._made)
        namespaces = self._namespaces
        coming = [
            PlacedVm(f"{self._prefix}-{self._made + index}", namespaces[(self._made + index) % len(namespaces)], size)
            for index, size in enumerate(sizes)
        ]
        self._made += count
        self._vms += coming
        self._create(coming)

    def _leave(self, leaving: list[PlacedVm]) -> None:
        self._cluster.delete_pods((vm.namespace, vm.pod_name) for vm in leaving)
        gone = {vm.name for vm in leaving}
        self._vms = [vm for vm in self._vms if vm.name not in gone]

    def _migrate(self, moving: list[PlacedVm]) -> None:
        sources = [(vm.namespace, vm.pod_name) for vm in moving]
        for vm in moving:
            vm.migrations += 1
        self._create(moving)
        self._cluster.delete_pods(sources)

    def _create(self, vms: list[PlacedVm]) -> None:
        if self._case.through_webhook:
            self._create_through_webhook(vms)
        else:
            self._clients.admin.send_all(
                SchedulingRequest("POST", pods_path(vm.namespace), self._pod(vm)) for vm in vms
            )
        self._bindings.wait((vm.pod_name for vm in vms), _BOUND_WITHIN_SECONDS)

    def _create_through_webhook(self, vms: list[PlacedVm]) -> None:
        """As KubeVirt does: the webhook reads the VMI that owns a launcher pod, a migration's target pod too."""
        controller = self._clients.controller
        scheduler = webhook.owners_scheduler(self._case)
        new = [vm for vm in vms if not vm.migrations]
        made = controller.send_all(
            SchedulingRequest("POST", machines_path(vm.namespace), launcher.machine(vm.name, scheduler)) for vm in new
        )
        for vm, vmi in zip(new, made, strict=True):
            vm.uid = vmi["metadata"]["uid"]
        pods = controller.send_all(SchedulingRequest("POST", pods_path(vm.namespace), self._pod(vm)) for vm in vms)
        webhook.check_injected(pods, self._case)

    def _pod(self, vm: PlacedVm) -> dict[str, Any]:
        vmi = {**launcher.machine(vm.name), "metadata": {"name": vm.name, "uid": vm.uid}}
        pod = launcher.pod(vmi, vm.size)
        pod["metadata"]["name"] = vm.pod_name
        scheduler = webhook.owners_scheduler(self._case) if self._case.through_webhook else self._case.profile
        if scheduler:
            pod["spec"]["schedulerName"] = scheduler
        if self._case.spread == names.OFF:
            constrain(pod, self._case.constraint, self._case.max_skew)
        if vm.migrations:
            launcher.keep_off_source(pod, vm.uid)
        return pod

    def _placed(self) -> Mapping[str, str]:
        return self._bindings.wait((vm.pod_name for vm in self._vms), _BOUND_WITHIN_SECONDS)


_ARRIVALS: Final = {
    Arrival.BURST: Placement.burst,
    Arrival.ONE_BY_ONE: Placement.one_by_one,
    Arrival.CHURN: Placement.churn,
    Arrival.DRAIN: Placement.drain,
}
