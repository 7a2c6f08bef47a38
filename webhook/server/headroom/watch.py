"""Keeps headroom in step with the cluster, and reserves what was admitted.

Of several replicas each knows what it has admitted itself at once, and what others have admitted as soon as the pods
are there: one list or watch event later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from webhook.admission import wire
from webhook.errors import Unavailable
from webhook.k8s.client.api import Transport
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.freshness import Fresh
from webhook.k8s.client.reflector import Reflector
from webhook.k8s.resources import NODES, PODS
from webhook.k8s.types.core import NodeResources, NodeSpec, NodeWithoutImages
from webhook.k8s.types.meta import Object, ObjectMeta
from webhook.kubevirt.run_strategy import STARTED_VMS
from webhook.placement.headroom.headroom import Headroom
from webhook.placement.headroom.pods import KeptPod, KeptVm, read_pod, read_vm
from webhook.placement.running_pods import RunningPod
from webhook.policies.headroom import reasons
from webhook.policies.headroom.pods import placed_in
from webhook.policies.headroom.settings import HEADROOM
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Observer

# Once in so many seconds etcd is asked whether it has reached what is watched, as `webhook.cluster.live` does.
_VERIFY_SECONDS: Final = 10.0
# After which a change of nodes is taken in: several come together.
_SETTLE_SECONDS: Final = 1.0
_ADMITTED: Final = ("allowed", "would-deny", "error")


class HeadroomWatch(Observer):
    """Watches nodes, pods and VirtualMachines.

    Args:
        transport: the connection to the API server; the caller closes it.
        clock: the source of monotonic time, and of sleep.
        wall: returns Unix time in seconds.

    Attributes:
        headroom: what is kept in step.
    """

    def __init__(self, transport: Transport, clock: Clock = REAL_TIME, wall: Callable[[], float] = time.time) -> None:
        self.headroom: Final = Headroom(wall)
        self._clock: Final = clock
        self._has_begun = False
        self._informers: Final = (
            self._informer(transport, NODES, _reduce_node, self._on_node),
            self._informer(transport, STARTED_VMS, _reduce_vm, self._on_vm),
            self._informer(transport, PODS.decoded_as(RunningPod), _reduce_pod, self._on_pod),
        )

    async def run(self) -> None:
        """Watch indefinitely; ends when it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            group.create_task(self._verify())
            group.create_task(self._rebuild())

    def _informer(self, transport: Transport, resource: Any, reduce: Any, on_change: Any) -> Reflector[Any]:
        return Reflector(
            transport,
            resource,
            transform=reduce,
            on_change=on_change,
            on_restore=self._on_restore,
            clock=self._clock,
        )

    def peek(self) -> object:
        """The headroom, or why it says nothing now."""
        now = self._clock.now()
        for informer in self._informers:
            state = informer.freshness(now)
            if not isinstance(state, Fresh):
                cause = f": {state.problem.why}" if state.problem else ""
                return Unavailable(f"the watch of {informer.resource.plural} is not up to date{cause}")
        if not self._has_begun:
            self._has_begun = True
            self.headroom.begin()
        return self.headroom if self.headroom.is_ready else Unavailable("the cluster's pods have not been counted yet")

    def on_evaluated(self, endpoint: Endpoint, evaluation: Evaluation, seconds: float) -> None:
        """Reserve the room of a start that is admitted, in whatever mode: its pod will be there."""
        request, decision = evaluation.request, evaluation.decision
        if endpoint.policy != HEADROOM or request.operation != "CREATE" or not isinstance(request.object, RunningPod):
            return
        if evaluation.label not in _ADMITTED or decision.code not in _STARTS or wire.is_dry_run(request):
            return
        start = placed_in(request.object, request.namespace or "")
        if start is not None:
            self.headroom.reserve(start, has_run=decision.code == reasons.RESTARTS)

    def _on_restore(self, informer: Any, _why: str) -> None:
        for each in self._informers:
            if each is not informer:
                each.distrust()

    async def _verify(self) -> None:
        while True:
            await self._clock.sleep(_VERIFY_SECONDS)
            for informer in self._informers:
                await informer.verify()

    async def _rebuild(self) -> None:
        while True:
            await self._clock.sleep(_SETTLE_SECONDS)
            self.peek()
            if self._has_begun:
                # In a small cluster an answer does so.
                for _ in () if self.headroom.is_small else self.headroom.rebuild():
                    await asyncio.sleep(0)
                for _ in self.headroom.prepare():
                    await asyncio.sleep(0)

    def _on_node(self, old: NodeWithoutImages | None, new: NodeWithoutImages | None) -> None:
        if new:
            self.headroom.put_node(new)
        elif old:
            self.headroom.remove_node(old.meta.name or "")

    def _on_vm(self, old: KeptVm | None, new: KeptVm | None) -> None:
        name = _name(new or old)
        if new and new.known:
            self.headroom.put_vm(name, new.known)
        else:
            self.headroom.remove_vm(name)

    def _on_pod(self, old: KeptPod | None, new: KeptPod | None) -> None:
        if new and new.placed:
            self.headroom.put_pod(new.placed)
        else:
            self.headroom.remove_pod(_name(new or old))


# Codes of starts whose pods are created, if they are not denied.
_STARTS: Final = frozenset(
    (reasons.KEPT, reasons.NOT_PROVEN, reasons.RESTARTS, reasons.NO_PLACE, reasons.NO_ROOM, reasons.NO_MIGRATION)
)


def _name(kept: Object | None) -> tuple[str, str]:
    meta = kept.meta if kept else ObjectMeta()
    return meta.namespace or "", meta.name or ""


def _reduce_node(node: NodeWithoutImages) -> NodeWithoutImages:
    """What is kept of a node: all that changes with each heartbeat is left out."""
    spec, meta = node.spec or NodeSpec(), ObjectMeta(name=node.meta.name, labels=node.meta.labels)
    return NodeWithoutImages(
        metadata=meta,
        spec=replace(spec, pod_cidrs=None),
        status=NodeResources(allocatable=node.allocatable or None),
    )


def _reduce_pod(pod: RunningPod) -> KeptPod | None:
    placed = read_pod(pod)
    return KeptPod(ObjectMeta(name=pod.meta.name, namespace=pod.meta.namespace), placed) if placed else None


def _reduce_vm(vm: Any) -> KeptVm:
    return KeptVm(ObjectMeta(name=vm.meta.name, namespace=vm.meta.namespace), read_vm(vm))
