"""Lists in pages, and lists that a review waits for: bounded in their size, their memory and their requests."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import DEEP, FakeApiServer, why
from tests.cluster.live_case import LiveCase
from tests.golden_files import Golden
from tests.waiting import other_turns
from webhook.facts import ListKey
from webhook.k8s.client import list_pages
from webhook.k8s.client.api import LARGEST_ANSWER_BYTES, ApiError, TooLargeError, fetch_body
from webhook.k8s.client.list_pages import KEPT_BYTES, PAGE_BYTES, TURN_BYTES, decode_items, fetch_list, pages
from webhook.k8s.client.transport import KubernetesTransport
from webhook.k8s.resources import PENDING_PODS
from webhook.kubevirt.resources import UNSTRUCTURED_VMS
from webhook.placement import machines
from webhook.placement.machines import JOB_NAME, JOB_UID, LAUNCHER_PODS, MIGRATIONS, UNFINISHED, WORKLOAD_UPDATE


@pytest.fixture(autouse=True)
def pods(server: FakeApiServer) -> None:
    for number in range(5):
        server.put(PENDING_PODS, f"pod-{number}", "demo", status={"phase": "Pending" if number else "Running"})


async def names_of(transport: KubernetesTransport, resource: Any = PENDING_PODS, **options: Any) -> list[list[str]]:
    """The names in each page."""
    listed = pages(transport, resource, **{"limit": 100, "seconds": 20} | options)
    return [[item.meta.name for item in page.items or ()] async for page in listed]


async def test_all_pages_come(server: FakeApiServer, transport: KubernetesTransport) -> None:
    found = await names_of(transport, query={"fieldSelector": "status.phase=Pending"}, limit=3)
    assert found == [["pod-1", "pod-2", "pod-3"], ["pod-4"]]
    versions = [page.meta.resource_version async for page in pages(transport, PENDING_PODS, limit=3, seconds=5)]
    assert versions == [str(server.version)] * 2
    # A moment that is too long ago is an error.
    server.page_hook = server.compact
    with pytest.raises(ApiError) as caught:
        await names_of(transport, limit=2)
    assert caught.value.status == 410


@pytest.mark.control("watches-filled")
async def test_pages_of_large_objects_have_fewer_of_them(server: FakeApiServer, transport: KubernetesTransport) -> None:
    for number in range(60):
        server.put(PENDING_PODS, f"fat-{number:02}", "demo", metadata={"annotations": {"a": "x" * 250_000}})
    found = [page async for page in pages(transport, PENDING_PODS, limit=100, seconds=20)]
    assert sum(len(page.items) for page in found) == 65
    assert max(page.size for page in found) <= PAGE_BYTES
    # 15 MB: most pages are half full, and few were too large.
    assert len(found) <= 12
    assert len(server.asked) <= 16


async def test_pages_of_small_ones_are_as_large_as_they_may_be(
    server: FakeApiServer, transport: KubernetesTransport
) -> None:
    for number in range(500):
        server.put(PENDING_PODS, f"small-{number}", "demo")
    assert [len(names) for names in await names_of(transport)] == [100] * 5 + [5]


@pytest.mark.control("watches-filled")
async def test_one_object_may_be_larger_than_a_page_but_not_without_bounds(
    server: FakeApiServer, transport: KubernetesTransport
) -> None:
    # etcd's 1.5 MB of characters that JSON must escape.
    server.put(PENDING_PODS, "escaped", "demo", metadata={"annotations": {"a": "\u0001" * 1_500_000}})
    assert ["escaped"] in await names_of(transport)
    server.put(PENDING_PODS, "endless", "demo", metadata={"annotations": {"a": "x" * (LARGEST_ANSWER_BYTES + 1)}})
    with pytest.raises(TooLargeError, match="larger than 16 MiB"):
        await names_of(transport)


@pytest.mark.control("deep-objects-in-scans")
async def test_objects_that_are_too_deep_hide_no_other_and_not_themselves(
    server: FakeApiServer, transport: KubernetesTransport
) -> None:
    for number in range(40):
        server.put(UNSTRUCTURED_VMS, f"vm-{number:02}", "demo", spec={"running": True})
    for name in ("a-deep", "vm-17-deep", "z-deep"):
        server.put(UNSTRUCTURED_VMS, name, "demo", spec={"template": {"metadata": DEEP}})
    (found,) = await names_of(transport, UNSTRUCTURED_VMS)
    assert found == sorted([*(f"vm-{number:02}" for number in range(40)), "a-deep", "vm-17-deep", "z-deep"])
    server.answer(PENDING_PODS.path(), lambda _: web.Response(text="[" * 5000), times=9)
    with pytest.raises(msgspec.DecodeError):
        await names_of(transport)


async def test_other_tasks_get_their_turn_while_a_page_is_decoded() -> None:
    items = [msgspec.Raw(b'{"metadata": {"annotations": {"a": "%s"}}}' % (b"x" * (TURN_BYTES // 4)))] * 40
    async with other_turns() as turns:
        await decode_items(items, msgspec.json.Decoder(PENDING_PODS.view).decode)
    assert len(turns) > 10


@pytest.mark.control("deep-objects-in-lists")
async def test_an_object_that_only_its_own_decoder_finds_too_deep_hides_no_other() -> None:
    deep = msgspec.Raw(b'{"metadata": {"name": "deep"}, "x": %s1%s}' % (b"[" * 20_000, b"]" * 20_000))
    flat = msgspec.Raw(b'{"metadata": {"name": "flat"}}')
    items = await decode_items([deep, flat], msgspec.json.Decoder(PENDING_PODS.view).decode)
    assert [item.meta.name for item in items] == ["deep", "flat"]


MIB = 1024 * 1024
LABEL = "kubevirt.io/created-by"
PODS = ListKey(LAUNCHER_PODS, "demo", f"{LABEL}=uid-1")
PATH = LAUNCHER_PODS.path("demo")
FAT = {"fat": "x" * 250_000}
OWNER = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web01", "uid": "uid-1"}


def put_pod(case: LiveCase, name: str, *, spec: Any = None, status: Any = None, **metadata: Any) -> None:
    made = {"labels": {LABEL: "uid-1", JOB_UID: "j"}, "ownerReferences": [{**OWNER, "controller": True}]}
    spec = {"nodeName": "node-a"} | (spec or {})
    case.server.put(LAUNCHER_PODS, name, "demo", metadata=made | metadata, spec=spec, status=status)


@pytest.mark.control("lists-of-large-pods")
async def test_of_pods_only_what_placements_need_is_kept(case: LiveCase) -> None:
    for number in range(30):
        put_pod(case, f"pod-{number}", annotations=FAT | {JOB_NAME: "m"})
    put_pod(case, "over", status={"phase": "Succeeded"})
    put_pod(case, "unowned", ownerReferences=[])
    found = await case.read(PODS)
    meta = found[0].meta
    assert (len(found), meta.annotation(JOB_NAME), meta.label(JOB_UID)) == (30, "m", "j")
    assert meta.controller_owner().uid == "uid-1"
    assert len(msgspec.json.encode(found)) < 30 * 1000


@pytest.mark.control("lists-of-large-pods")
async def test_of_migrations_not_what_people_wrote(case: LiveCase) -> None:
    written = {"annotations": FAT | {machines.EVACUATION: "x" * 9000}}
    for name, phase in (("done", "Succeeded"), ("runs", "Running")):
        spec = {"vmiName": "web01", "addedNodeSelector": FAT, "priority": "system-critical"}
        case.server.put(MIGRATIONS, name, "demo", metadata=written, spec=spec, status={"phase": phase})
    of_update = {"annotations": {WORKLOAD_UPDATE: ""}}
    case.server.put(MIGRATIONS, "update", "demo", metadata=of_update, spec={"vmiName": "b"})
    (runs, update) = await case.read(ListKey(UNFINISHED, "demo"))
    everything = await case.read(ListKey(MIGRATIONS, "demo"))
    assert [one.meta.name for one in everything] == ["done", "runs", "update"]
    assert (runs.vmi_name, runs.evacuates, runs.is_prioritized, runs.adds_selector) == ("web01", *[True] * 3)
    assert not update.adds_selector
    # Who needs the selector itself must not take what a list keeps for it.
    with pytest.raises(TypeError):
        _ = runs.added_selector
    assert (update.evacuates, update.is_prioritized, update.meta.annotation(WORKLOAD_UPDATE)) == (False, False, "")
    assert len(msgspec.json.encode(everything)) < 3000


@pytest.mark.control("many-presets", "lists-of-large-pods")
@pytest.mark.parametrize(("namespace", "room"), [("demo", "LIST_BYTES"), ("", "CLUSTER_LIST_BYTES")])
async def test_no_more_is_read_than_there_is_room_for(
    case: LiveCase, monkeypatch: pytest.MonkeyPatch, namespace: str, room: str, golden: Golden
) -> None:
    assert (list_pages.LIST_BYTES, list_pages.CLUSTER_LIST_BYTES) == (16 * MIB, 64 * MIB)
    most = getattr(list_pages, room) // 8
    monkeypatch.setattr(list_pages, room, most)
    monkeypatch.setattr(list_pages, "PAGE_BYTES", MIB)
    for number in range(most // 250_000 + 60):
        put_pod(case, f"pod-{number}", annotations=FAT)
    golden(why(await case.read(ListKey(LAUNCHER_PODS, namespace, PODS.label))))
    # Half full pages, and those that were tried in vain.
    assert len(case.server.asked) <= 2 * most // MIB + 6


@pytest.mark.control("lists-of-large-pods")
async def test_no_more_is_kept_than_there_is_room_for(case: LiveCase, golden: Golden) -> None:
    selector = {f"key-{number}": "x" * 60 for number in range(3_000)}
    for number in range(KEPT_BYTES // 200_000 + 1):
        put_pod(case, f"pod-{number}", spec={"nodeSelector": selector})
    golden(why(await case.read(PODS)))


@pytest.mark.control("lists-of-large-pods")
async def test_fifty_reviews_share_two_lists(case: LiveCase) -> None:
    put_pod(case, "first")
    release = case.server.hang(PATH)
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


@pytest.mark.control("lists-of-large-pods")
async def test_lists_of_different_vms_take_turns(case: LiveCase) -> None:
    put_pod(case, "pod")
    release = case.server.hang(PATH, times=100)
    reading = [case.reading(ListKey(LAUNCHER_PODS, "demo", f"{LABEL}=uid-{number}")) for number in range(30)]
    await case.asked(PATH, 4)
    await asyncio.sleep(0.05)
    assert len(case.server.requests(PATH)) == 4
    release.set()
    assert sorted(map(len, await asyncio.gather(*reading))) == [0] * 29 + [1]


LONGEST = 253


@pytest.mark.control("names-in-paths")
@pytest.mark.parametrize(
    "name",
    [
        *("x" * (LONGEST + 1), "x" * 1_000_000, "\u00e9" * (LONGEST + 1), "", ".", "..", "a%2Fb", "a/b"),
        "../../../../api/v1/namespaces/kube-system/secrets/x",
    ],
)
async def test_names_that_no_object_can_have_are_not_asked_for(
    server: FakeApiServer, transport: KubernetesTransport, name: str
) -> None:
    assert await fetch_body(transport, PENDING_PODS, "demo", name, 5.0) is None
    assert await fetch_body(transport, PENDING_PODS, name, "pod", 5.0) is None
    # Without a namespace, a list is of all.
    assert not name or await fetch_list(transport, PENDING_PODS, name, "", 5.0) == ()
    assert server.asked == []


async def test_the_longest_name_is_asked_for(server: FakeApiServer, transport: KubernetesTransport) -> None:
    assert await fetch_body(transport, PENDING_PODS, "demo", "x" * LONGEST, 5.0) is None
    assert [asked.path for asked in server.asked] == [PENDING_PODS.path("demo", "x" * LONGEST)]
