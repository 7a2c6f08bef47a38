"""How much less a VM would have to request to start, where headroom denies its start as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from webhook.placement.headroom.headroom import Headroom
from webhook.placement.headroom.pods import PlacedPod
from webhook.placement.nodes import CPU, MEMORY, format_amount
from webhook.placement.scores import Load

# How exactly the amounts are found, in kube-scheduler's units, and what is left of a request at least. Overhead of
# virt-launcher alone takes some 250 MiB.
_STEPS: Final = {MEMORY: 256 * 2**20, CPU: 100}
_LEAST: Final = {MEMORY: 512 * 2**20, CPU: 100}
# For one amount: a quarter of what a review may take, since some ten are tried.
_MOST_STEPS: Final = 250_000


def smaller_starts(headroom: Headroom, pod: PlacedPod) -> Iterator[str]:
    """What would let a VM start that is denied now: less memory or less CPU, each by itself; clauses.

    Every amount that is named has been tried. A larger one than it may do, too: where the VM would be placed depends on
    what it requests, so that not every smaller VM has a place where a larger one has.
    """
    for resource, step in _STEPS.items():
        requested, least = pod.simulated.requests.get(resource, 0), _LEAST[resource]
        if least >= requested or not _starts(headroom, pod, resource, least):
            continue
        # By so many steps more than the least it starts, and by so many it does not.
        starts, denied = 0, -(-(requested - least) // step)
        while denied - starts > 1:
            middle = (starts + denied) // 2
            if _starts(headroom, pod, resource, least + middle * step):
                starts = middle
            else:
                denied = middle
        left = least + starts * step
        yield f"{format_amount(resource, left)} of {resource}, {format_amount(resource, requested - left)} less"


def _starts(headroom: Headroom, pod: PlacedPod, resource: str, amount: int) -> bool:
    """Whether it is certain that the VM may start, if its pod requested this amount."""
    load = Load.of({**pod.simulated.requests, resource: amount})
    smaller = replace(pod, simulated=replace(pod.simulated, load=load))
    return headroom.judge(smaller, _MOST_STEPS).kind == "kept"
