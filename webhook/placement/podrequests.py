"""What a pod requests of its node (k8s.io/component-helpers, resource, ``PodRequests``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from webhook.k8s.views import View
from webhook.placement import resources

_ALWAYS: Final = "Always"

# Billionths by the resource's name: amounts are added first and rounded then.
Nanos: TypeAlias = dict[str, int]


class ResourceRequirements(View, frozen=True):
    """A container's, a pod's or a guest's. Quantities stay as they are written."""

    requests: resources.Listed | None = None
    limits: resources.Listed | None = None


class Container(View, frozen=True):
    """One of the containers of a Pod (core/v1 Container), by what it requests."""

    name: str | None = None
    restart_policy: str | None = None
    resources: ResourceRequirements | None = None

    @property
    def requests(self) -> Nanos:
        """What it requests, without what is not a quantity."""
        return read((self.resources.requests if self.resources else None) or {})


def read(listed: resources.Listed) -> Nanos:
    """A resource list in billionths, without what is not a quantity."""
    if not listed:
        return {}
    found = {name: resources.nanos(value) for name, value in listed.items() if value is not None}
    return {name: value for name, value in found.items() if value is not None}


def total(
    containers: Iterable[Nanos],
    init_containers: Iterable[tuple[Nanos, bool]] = (),
    *,
    pod_level: resources.Listed | None = None,
    overhead: resources.Listed | None = None,
) -> Nanos:
    """The sum of what runs together, or what an init container needs where that is more.

    Args:
        containers: the requests of each container, in billionths by resource.
        init_containers: their requests in order, each with whether it is a sidecar (restartPolicy Always).
        pod_level: the pod's own requests, which replace those of its containers: CPU, memory and huge pages.
        overhead: the overhead of the pod's RuntimeClass, as quantities.
    """
    whole: Nanos = {}
    for each in containers:
        _add(whole, each)
    sidecars: Nanos = {}
    most: Nanos = {}
    for each, is_sidecar in init_containers:
        for name, value in each.items():
            needed = sidecars.get(name, 0) + value
            most[name] = max(most.get(name, 0), needed)
            if is_sidecar:
                sidecars[name] = needed
                whole[name] = whole.get(name, 0) + value
    for name, needed in most.items():
        whole[name] = max(whole.get(name, 0), needed)
    replaced = read(pod_level or {})
    whole |= {name: value for name, value in replaced.items() if _is_pod_level(name)}
    _add(whole, read(overhead or {}))
    return whole


def is_sidecar(container: Container) -> bool:
    """Whether an init container keeps running beside the containers."""
    return container.restart_policy == _ALWAYS


def _is_pod_level(resource: str) -> bool:
    return resource in {resources.CPU, resources.MEMORY} or resource.startswith(resources.HUGEPAGES)


def _add(whole: Nanos, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        whole[name] = whole.get(name, 0) + value
