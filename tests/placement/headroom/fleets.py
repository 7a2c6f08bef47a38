"""Clusters whose headroom is asked about: by hand, and with starts, losses and scales at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.forecast.clusters import Json, owned, vm
from webhook.k8s.types.core import NodeWithoutImages
from webhook.kubevirt.run_strategy import RunnableVm
from webhook.placement.headroom.headroom import Headroom, of_objects
from webhook.placement.headroom.losses import Slices
from webhook.placement.headroom.pods import KnownVm, PlacedPod, read_pod, read_vm
from webhook.placement.headroom.verdicts import Verdict
from webhook.placement.running_pods import RunningPod


class Clock:
    """Unix time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def placed(pod: Json) -> PlacedPod:
    found = read_pod(msgspec.convert(pod, RunningPod))
    assert found
    return found


def machine(name: str, on: str, memory: str = "1Gi", **spec: Any) -> tuple[Json, Json]:
    """As `vm`, with a pod that selects nodes as its VMI does."""
    vmi, pod = vm(name, on, memory, **spec)
    pod["spec"]["nodeSelector"] = spec.get("nodeSelector")
    return vmi, pod


def starting(name: str, memory: str = "1Gi", **more: Any) -> PlacedPod:
    """The pod of a VM that starts, which has no node yet."""
    return replace(placed(machine(name, "", memory, **more)[1]), node="")


def finished(work: Slices[Verdict]) -> Verdict:
    """What some work comes to, at once."""
    while True:
        try:
            next(work)
        except StopIteration as returned:
            found: Verdict = returned.value
            return found


def node_view(node: Json) -> NodeWithoutImages:
    return msgspec.convert(node, NodeWithoutImages)


def known(owner: Json) -> tuple[tuple[str, str], KnownVm]:
    view = msgspec.convert(owner, RunnableVm)
    return (view.meta.namespace or "", view.meta.name or ""), read_vm(view)


def headroom(
    nodes: Sequence[Json],
    vms: Sequence[tuple[Json, Json]] = (),
    *,
    pods: Iterable[Json] = (),
    also: Sequence[str] = (),
    strategy: str = "Always",
    clock: Clock | None = None,
) -> Headroom:
    """A cluster whose VMs run; those of ``also`` exist, and do not run yet."""
    vm_pods = [placed(pod) for _, pod in vms]
    owners = [known(owned(each, strategy)) for each in vms]
    found = of_objects(clock or Clock(), map(node_view, nodes), [*vm_pods, *map(placed, pods)], owners)
    for name in also:
        found.put_vm(("shop", name), KnownVm(strategy))
    return found
