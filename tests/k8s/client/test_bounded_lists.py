"""Lists that a review waits for: bounded in their size, in their memory, and in the number of their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.cluster.fake_apiserver import why
from tests.cluster.live_case import LiveCase, live
from webhook.facts import ListKey
from webhook.k8s.client import list_pages
from webhook.k8s.client import list_pages as bounded_lists
from webhook.k8s.client.list_pages import KEPT_BYTES
from webhook.placement.machines import (
    EVACUATION,
    JOB_NAME,
    JOB_UID,
    LAUNCHER_PODS,
    MIGRATIONS,
    UNFINISHED,
    WORKLOAD_UPDATE,
)

MIB = 1024 * 1024
LABEL = "kubevirt.io/created-by"
PODS = ListKey(LAUNCHER_PODS, "demo", f"{LABEL}=uid-1")
PATH = LAUNCHER_PODS.path("demo")
FAT = {"fat": "x" * 250_000}
OWNER = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web01", "uid": "uid-1"}


def put_pod(case: LiveCase, name: str, namespace: str = "demo", **parts: Any) -> None:
    metadata = {"labels": {LABEL: "uid-1", JOB_UID: "j"}, "ownerReferences": [{**OWNER, "controller": True}]}
    case.server.put(
        LAUNCHER_PODS,
        name,
        namespace,
        metadata=metadata | parts.pop("metadata", {}),
        spec={"nodeName": "node-a"} | parts.pop("spec", {}),
        **parts,
    )


async def test_of_pods_only_what_placements_need_is_kept(tmp_path: Any) -> None:
    async with live(tmp_path) as case:
        for number in range(30):
            put_pod(case, f"pod-{number}", metadata={"annotations": FAT | {JOB_NAME: "m"}})
        put_pod(case, "over", status={"phase": "Succeeded"})
        put_pod(case, "unowned", metadata={"ownerReferences": []})

        found = await case.read(PODS)

        assert len(found) == 30
        assert found[0].meta.annotation(JOB_NAME) == "m"
        assert found[0].meta.label(JOB_UID) == "j"
        assert found[0].meta.controller_owner().uid == "uid-1"
        assert len(msgspec.json.encode(found)) < 30 * 1000


async def test_of_migrations_not_what_people_wrote(tmp_path: Any) -> None:
    async with live(tmp_path) as case:
        written = {"annotations": FAT | {EVACUATION: "x" * 9000}}
        for name, phase in (("done", "Succeeded"), ("runs", "Running")):
            spec = {"vmiName": "web01", "addedNodeSelector": FAT, "priority": "system-critical"}
            case.server.put(MIGRATIONS, name, "demo", metadata=written, spec=spec, status={"phase": phase})
        case.server.put(
            MIGRATIONS, "update", "demo", metadata={"annotations": {WORKLOAD_UPDATE: ""}}, spec={"vmiName": "b"}
        )

        (runs, update) = await case.read(ListKey(UNFINISHED, "demo"))
        everything = await case.read(ListKey(MIGRATIONS, "demo"))

        assert [one.meta.name for one in everything] == ["done", "runs", "update"]
        assert (runs.vmi_name, runs.evacuates, runs.is_prioritized, bool(runs.added_selector)) == (
            "web01",
            True,
            True,
            True,
        )
        assert (update.evacuates, update.is_prioritized, update.meta.annotation(WORKLOAD_UPDATE)) == (False, False, "")
        assert len(msgspec.json.encode(everything)) < 3000


@pytest.mark.parametrize(("namespace", "room"), [("demo", "LIST_BYTES"), ("", "CLUSTER_LIST_BYTES")])
async def test_no_more_is_read_than_there_is_room_for(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, namespace: str, room: str, golden: Callable[[str], None]
) -> None:
    most = getattr(bounded_lists, room)
    assert (bounded_lists.LIST_BYTES, bounded_lists.CLUSTER_LIST_BYTES) == (16 * MIB, 64 * MIB)
    monkeypatch.setattr(bounded_lists, room, most // 8)
    monkeypatch.setattr(list_pages, "PAGE_BYTES", MIB)
    async with live(tmp_path) as case:
        for number in range(most // 8 // 250_000 + 60):
            put_pod(case, f"pod-{number}", metadata={"annotations": FAT})

        found = await case.read(ListKey(LAUNCHER_PODS, namespace, PODS.label))

        golden(why(found))
        # Half full pages, and those that were tried in vain.
        assert len(case.server.asked) <= 2 * most // 8 // MIB + 6


async def test_no_more_is_kept_than_there_is_room_for(tmp_path: Any, golden: Callable[[str], None]) -> None:
    async with live(tmp_path) as case:
        selector = {f"key-{number}": "x" * 60 for number in range(3_000)}
        for number in range(KEPT_BYTES // 200_000 + 1):
            put_pod(case, f"pod-{number}", spec={"nodeSelector": selector})

        golden(why(await case.read(PODS)))


async def test_fifty_reviews_share_two_lists(tmp_path: Any) -> None:
    async with live(tmp_path) as case:
        put_pod(case, "first")
        release = asyncio.Event()
        case.server.hang(PATH, release)
        one = case.reading(PODS)
        await case.asked(PATH, 1)
        others = [case.reading(PODS) for _ in range(50)]
        await asyncio.sleep(0)
        # The requested objects may be younger than the list on its way.
        put_pod(case, "second")
        release.set()

        await one
        found = await asyncio.gather(*others)

        assert {tuple(pod.meta.name for pod in pods) for pods in found} == {("first", "second")}
        assert len(case.server.requests(PATH)) == 2


async def test_lists_of_different_vms_take_turns(tmp_path: Any) -> None:
    async with live(tmp_path) as case:
        put_pod(case, "pod")
        release = asyncio.Event()
        case.server.hang(PATH, release, times=100)
        reading = [case.reading(ListKey(LAUNCHER_PODS, "demo", f"{LABEL}=uid-{number}")) for number in range(30)]
        await case.asked(PATH, 4)
        await asyncio.sleep(0.05)
        assert len(case.server.requests(PATH)) == 4
        release.set()

        found = await asyncio.gather(*reading)

        assert sorted(map(len, found)) == [0] * 29 + [1]
