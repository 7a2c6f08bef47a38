"""How much smaller a VM has to be: what is named has been tried, and a step more is too much."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from tests.forecast.clusters import node, vm
from tests.placement.headroom.fleets import headroom, starting
from webhook.forecast.smaller_start import smaller_starts
from webhook.placement.headroom.headroom import Headroom
from webhook.placement.headroom.pods import PlacedPod
from webhook.placement.nodes import CPU, MEMORY
from webhook.placement.scores import Load

NODES = [node(name, cpu="4") for name in "abc"]
MIB = 2**20


def full(memory: str = "2500Mi") -> Headroom:
    """Three nodes of 8Gi and four CPUs, each with two VMs."""
    vms = [vm(f"{place}{number}", place, memory) for place in "abc" for number in range(2)]
    return headroom(NODES, vms, also=["new"])


def asking(cpu: int, memory: int) -> PlacedPod:
    """A VM that starts, with so many thousandths of CPUs and so many bytes."""
    pod = starting("new")
    load = Load.of({**pod.simulated.requests, CPU: cpu, MEMORY: memory})
    return replace(pod, simulated=replace(pod.simulated, load=load))


@pytest.mark.parametrize("requested", range(1024, 4096, 300))
def test_so_much_less_memory_is_enough_and_a_step_more_is_not(requested: int) -> None:
    found = full()
    pod = asking(100, requested * MIB)
    assert found.judge(pod).denies
    (clause,) = smaller_starts(found, pod)
    amounts = re.fullmatch(r"(\d+)Mi of memory, (\d+)(Mi|Gi) less", clause)
    assert amounts
    left, less = int(amounts[1]), int(amounts[2]) * (1024 if amounts[3] == "Gi" else 1)
    assert left + less == requested
    assert found.judge(asking(100, left * MIB)).kind == "kept"
    assert found.judge(asking(100, (left + 256) * MIB)).kind != "kept"


def test_of_cpus_too_by_themselves() -> None:
    found = headroom(NODES, [], also=["new"])
    assert [*smaller_starts(found, asking(4200, 2**30))] == ["4 of cpu, 200m less"]
    # Neither is enough alone, where both are too much.
    assert [*smaller_starts(found, asking(4200, 9 * 2**30))] == []


def test_nothing_is_said_of_what_has_no_less_to_request() -> None:
    assert [*smaller_starts(full("3900Mi"), asking(100, 400 * MIB))] == []
