"""What a live cluster keeps of objects that go, and of objects that stay."""

from __future__ import annotations

import json
import tracemalloc
from uuid import UUID

import msgspec
import pytest

from tests.cluster.fake_apiserver import ApiServers, FakeClock
from tests.cluster.live_case import ready
from tests.waiting import until
from webhook.cluster.live import (
    CACHED_VMIS,
    REMEMBERED_SECONDS,
    SHARED_BYTES,
    RecentAnswers,
    RememberedVmis,
    shared_text,
)
from webhook.k8s.resources import NODES
from webhook.kubevirt.types.views import VirtualMachineInstance


def vmi(number: int, scheduler: str = "kubevirt-scheduler") -> VirtualMachineInstance:
    meta = {"name": f"vm-{number}", "namespace": f"tenant-{number % 40:03}", "uid": str(UUID(int=number))}
    body = json.dumps({"metadata": meta, "spec": {"schedulerName": scheduler}})
    return msgspec.json.decode(body, type=VirtualMachineInstance)


def test_a_remembered_vmi_takes_600_bytes_at_most_and_is_forgotten() -> None:
    """VMIs that are gone, too, of which nobody hears."""
    tracemalloc.start()
    try:
        clock = FakeClock()
        remembered = RememberedVmis(clock)
        for number in range(CACHED_VMIS * 3 // 2):
            remembered.put(vmi(number))
        assert len(remembered) == CACHED_VMIS
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < CACHED_VMIS * 600
    clock.time += REMEMBERED_SECONDS
    remembered.put(vmi(0))
    assert len(remembered) == 1


@pytest.mark.parametrize("body", [2, 200, 20_000])
@pytest.mark.parametrize("longest", [1, 253])
def test_recent_answers_take_no_more_than_their_bound(body: int, longest: int) -> None:
    """However small each is: names, and their places in dictionaries, count, too."""
    tracemalloc.start()
    try:
        recent = RecentAnswers(FakeClock())
        for number in range(2 * SHARED_BYTES // body if body > 2 else 20_000):
            recent[f"{number}".zfill(min(longest, 63)), f"{number}".zfill(longest)] = bytes(body)
        taken, kept = tracemalloc.get_traced_memory()[0], len(recent)
    finally:
        tracemalloc.stop()
    assert kept >= SHARED_BYTES // (body + 1200)
    assert taken < SHARED_BYTES


async def test_a_node_is_in_memory_once(apiservers: ApiServers) -> None:
    """The informer's store and the index share it, after heartbeats and after another list, too."""

    def put(name: str, beat: str) -> None:
        labels = {"kubernetes.io/hostname": name}
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": beat}
        status = {"allocatable": {"cpu": "8"}, "conditions": [condition]}
        case.server.put(NODES, name, metadata={"labels": labels}, status=status)

    def are_shared() -> bool:
        index = case.cluster._index
        return all(kept.node is index.get(kept.meta.name or "") for kept in case.cluster._nodes)

    async with ready(apiservers, watches=3) as case:
        for number in range(10):
            put(f"node-{number}", "first")
        await until(lambda: len(case.cluster._index) == 10)
        for number in range(10):
            put(f"node-{number}", "second")
        put("last", "first")
        await until(lambda: case.cluster._index.get("last"))
        assert are_shared()
        lists = case.gets(NODES.path(), "get")
        case.server.compact()
        case.server.end_watches()
        await until(lambda: case.gets(NODES.path(), "get") > lists)
        put("later", "first")
        await until(lambda: case.cluster._index.get("later"))
        assert are_shared()


def test_texts_that_tenants_make_up_are_forgotten_on_every_interpreter() -> None:
    """A replica runs for months, and each change of a scheduler's name brings another text."""
    assert shared_text("x".zfill(253)) is shared_text("x".zfill(253))
    tracemalloc.start()
    try:
        for number in range(30_000):
            shared_text(f"{number}".zfill(253))
            shared_text(f"{number}".zfill(1000))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 5 * 1024 * 1024
