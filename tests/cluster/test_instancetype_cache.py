"""Watched instancetypes, preferences and presets: when a store answers, when a GET does, and which stores are kept."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.cluster.fake_apiserver import DEEP, ApiServers, FakeApiServer
from tests.cluster.live_case import LiveCase, live, ready
from tests.waiting import until
from webhook.cluster.instancetype_cache import CLUSTER_BYTES, LARGEST_BYTES, NAMESPACE_BYTES, InstancetypeCache
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, ListKey, ObjectKey
from webhook.k8s.client.reflector import CURRENT_SECONDS, ObjectStore
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, Unstructured
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES, PRESETS, UNSTRUCTURED
from webhook.kubevirt.types.views import Instancetype

KINDS = [resource for kind, resource in UNSTRUCTURED.items() if kind != "ControllerRevision"]
SMALL = ObjectKey(UNSTRUCTURED["VirtualMachineInstancetype"], "demo", "small")
UNCACHED = msgspec.structs.replace(SMALL, uncached=True)
IN_DEMO = ListKey(PRESETS, "demo")
# As the API server sends it, of which most is for others.
METADATA = {
    "labels": {"instancetype.kubevirt.io/vendor": "kubevirt.io"},
    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 2000},
    "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
}
SPEC = {"cpu": {"guest": 2}, "memory": {"guest": "4Gi"}}


def serving(*more: Callable[[FakeApiServer], object]) -> Callable[[FakeApiServer], None]:
    def prepare(server: FakeApiServer) -> None:
        for resource in (*KINDS, PRESETS):
            server.serve(resource)
        for each in more:
            each(server)

    return prepare


def put(
    server: FakeApiServer, name: str = "small", resource: Resource[Any] = INSTANCETYPES, namespace: str = "demo"
) -> None:
    server.put(resource, name, namespace if resource.namespaced else "", metadata=METADATA, spec=SPEC)


async def copied(case: LiveCase, key: ObjectKey[Any] | ListKey[Any] = SMALL) -> None:
    """Until a store answers."""
    await until(lambda: case.peek(key) is not NOT_READ)


@pytest.fixture
async def case(apiservers: ApiServers) -> AsyncIterator[LiveCase]:
    """A cluster that answers for one instancetype from a store."""
    async with live(apiservers, start=True, prepare=serving(put)) as case:
        await copied(case)
        yield case


async def guest(case: LiveCase, key: ObjectKey[Any] = SMALL) -> Any:
    return (await case.read(key)).spec["cpu"]["guest"]


@pytest.mark.parametrize("resource", KINDS)
async def test_a_kind_is_watched_from_its_first_look_up_on_and_then_costs_no_get(
    apiservers: ApiServers, resource: Resource[Unstructured]
) -> None:
    prepare = serving(lambda server: put(server, resource=resource))
    key = ObjectKey(resource, "demo" if resource.namespaced else "", "small")
    path = resource.path(key.namespace, "small")
    async with ready(apiservers, prepare=prepare) as case:
        assert not any(case.gets(one.path()) for one in (*KINDS, PRESETS))
        assert ([case.peek(key) for _ in range(20)], await guest(case, key)) == ([NOT_READ] * 20, 2)
        await copied(case, key)
        gets = case.gets(path)
        assert [await guest(case, key) for _ in range(20)] == [2] * 20
        assert case.gets(path) == gets <= 1
        assert [one for one in (*KINDS, PRESETS) if case.gets(one.path())] == [resource]
        assert case.gets(resource.path(), "get") == 1


async def test_both_views_of_a_kind_share_its_store_and_see_what_a_get_shows(apiservers: ApiServers) -> None:
    async with live(apiservers, start=True, prepare=serving(put)) as case:
        case.server.put(INSTANCETYPES, "other", "demo", spec={"schedulerName": "one"})
        await copied(case)
        typed = case.peek(ObjectKey(INSTANCETYPES, "demo", "other"))
        assert isinstance(typed, Instancetype) and typed.spec and typed.spec.scheduler_name == "one"
        stored, uncached = case.peek(SMALL), await case.read(UNCACHED)
        assert isinstance(stored, Unstructured)
        assert stored.plain() == {**uncached.plain(), "metadata": stored.plain()["metadata"]}
        assert (stored.meta.name, stored.meta.namespace, stored.meta.annotations) == ("small", "demo", None)


async def test_what_the_store_lacks_is_asked_for_each_time(case: LiveCase) -> None:
    missing = ObjectKey(SMALL.resource, "demo", "missing")
    assert [await case.read(missing), await case.read(missing)] == [None, None]
    assert case.gets(INSTANCETYPES.path("demo", "missing")) == 2
    case.server.end_watches()
    for number in range(5):
        put(case.server, f"new-{number}")
        assert await guest(case, ObjectKey(SMALL.resource, "demo", f"new-{number}")) == 2


async def test_changes_and_deletions_arrive(case: LiveCase) -> None:
    case.server.put(INSTANCETYPES, "small", "demo", spec={"cpu": {"guest": 8}})
    await until(lambda: case.peek(SMALL).spec["cpu"]["guest"] == 8)
    case.server.remove(INSTANCETYPES, "small", "demo")
    await until(lambda: case.peek(SMALL) is NOT_READ)
    assert await case.read(SMALL) is None


async def test_until_a_change_arrives_the_store_is_old_and_a_fresh_look_up_is_not(case: LiveCase) -> None:
    # In the API server, and not yet in any watch.
    case.server.held(INSTANCETYPES)["demo", "small"]["spec"] = {"cpu": {"guest": 8}}
    assert (await guest(case), await guest(case, UNCACHED)) == (2, 8)
    assert case.peek(UNCACHED) is NOT_READ


@pytest.mark.control("old-store-denies")
async def test_a_store_that_is_not_kept_in_step_is_not_asked(case: LiveCase) -> None:
    case.clock.advance(CURRENT_SECONDS)
    assert case.peek(SMALL) is NOT_READ
    assert await guest(case) == 2
    case.server.bookmark()
    await copied(case)
    case.server.fail(INSTANCETYPES.path(), 500, times=100, verb="watch")
    case.server.end_watches()
    await until(lambda: case.peek(SMALL) is NOT_READ)
    assert await guest(case) == 2


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_what_can_not_be_watched_is_read_by_get(apiservers: ApiServers, code: int) -> None:
    prepare = serving(put, lambda server: server.fail(INSTANCETYPES.path(), code, times=1000))
    async with ready(apiservers, prepare=prepare) as case:
        assert [await guest(case), await guest(case)] == [2, 2]
        await case.asked(INSTANCETYPES.path(), 1)
        assert await guest(case) == 2


async def test_readiness_does_not_wait_for_it(apiservers: ApiServers) -> None:
    prepare = serving(put, lambda server: server.hang(INSTANCETYPES.path()))
    async with live(apiservers, start=True, prepare=prepare) as case:
        assert await guest(case) == 2
        await case.ready()
        assert case.cluster.staleness()["virtualmachineinstancetypes"] == float("inf")


async def test_audit_lines_say_how_old_a_store_was(case: LiveCase) -> None:
    case.clock.advance(3.0)
    assert case.cluster.ages([SMALL]) == {"virtualmachineinstancetypes": 3.0}


async def test_other_settings_begin_anew(apiservers: ApiServers) -> None:
    async with ready(apiservers, prepare=serving(put), watches=3) as case:
        await copied(case)
        await until(lambda: case.server.watching == 4)
        case.cluster.use(builders.settings(schedulers={}))
        await until(lambda: case.server.watching == 3)
        assert "virtualmachineinstancetypes" not in case.cluster.staleness()
        assert await guest(case) == 2
        await copied(case)


async def test_presets_of_a_namespace_are_listed_from_the_store(apiservers: ApiServers) -> None:
    async with live(apiservers, start=True, prepare=serving()) as case:
        for name, namespace in (("b", "demo"), ("a", "demo"), ("c", "other")):
            put(case.server, name, PRESETS, namespace)
        first = await case.read(IN_DEMO)
        await copied(case, IN_DEMO)
        lists = case.gets(PRESETS.path("demo"))
        for found in (first, await case.read(IN_DEMO)):
            assert [one.meta.name for one in found] == ["a", "b"]
        assert (await case.read(ListKey(PRESETS, "empty")), case.gets(PRESETS.path("demo"))) == ((), lists)
        assert case.peek(msgspec.structs.replace(IN_DEMO, uncached=True)) is NOT_READ


async def test_presets_of_which_one_is_not_kept_are_listed_anew(apiservers: ApiServers) -> None:
    def prepare(server: FakeApiServer) -> None:
        server.put(PRESETS, "large", "demo", spec={"fat": "x" * LARGEST_BYTES})

    async with live(apiservers, start=True, prepare=serving(prepare)) as case:
        put(case.server, "c", PRESETS, "other")
        await copied(case, ListKey(PRESETS, "other"))
        assert case.peek(IN_DEMO) is NOT_READ
        assert [one.meta.name for one in await case.read(IN_DEMO)] == ["large"]


@pytest.mark.control("informers-filled")
class TestTenants:
    async def test_a_namespace_has_its_part_and_takes_nothing_from_another(self, apiservers: ApiServers) -> None:
        """Of 40 objects of 30 KiB a quarter of a MiB is kept; what is not is found by GET."""

        def fat(server: FakeApiServer, number: int, letter: str = "x") -> None:
            spec = SPEC | {"fat": letter * 30 * 1024}
            server.put(INSTANCETYPES, f"fat-{number:02}", "a-hostile", spec=spec)

        def prepare(server: FakeApiServer) -> None:
            for number in range(40):
                fat(server, number)

        async with live(apiservers, start=True, prepare=serving(prepare, put)) as case:
            await copied(case)
            keys = [ObjectKey(SMALL.resource, "a-hostile", f"fat-{number:02}") for number in range(40)]
            kept = [key for key in keys if case.peek(key) is not NOT_READ]
            assert (len(kept), await guest(case, keys[-1])) == (8, 2)
            # A deleted object makes room for others.
            for key in kept:
                case.server.remove(INSTANCETYPES, key.name, key.namespace)
            fat(case.server, 39, "y")
            await copied(case, keys[-1])

    async def test_one_that_grows_beyond_measure_leaves_the_store(self, case: LiveCase) -> None:
        case.server.put(INSTANCETYPES, "small", "demo", spec=SPEC | {"fat": "x" * LARGEST_BYTES})
        await until(lambda: case.peek(SMALL) is NOT_READ)
        assert await guest(case) == 2

    async def test_one_that_is_not_what_it_should_be_harms_no_other(self, apiservers: ApiServers) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.put(INSTANCETYPES, "odd", "demo", spec={"schedulerName": {"SECRET": 1}})
            server.put(INSTANCETYPES, "deep", "demo", spec={"deep": DEEP})

        async with live(apiservers, start=True, prepare=serving(prepare, put)) as case:
            await copied(case)
            odd = case.peek(ObjectKey(INSTANCETYPES, "demo", "odd"))
            assert odd == Unavailable("the API server's VirtualMachineInstancetype cannot be decoded")


@pytest.mark.control("informers-filled")
@pytest.mark.parametrize("count", [300, 3_000])
async def test_what_so_many_instancetypes_take(count: int) -> None:
    """All are kept, in less memory than they are counted with: 1 KiB each, however much is written into metadata."""
    made: list[InstancetypeCache] = []

    async def kept() -> int:
        parts: Any = (None, lambda *_: asyncio.ensure_future(asyncio.sleep(0)))
        catalog = InstancetypeCache(*parts, on_restore=print)
        catalog.peek(ObjectKey(CLUSTER_INSTANCETYPES, "", "any"))
        (store,) = catalog.informers.values()
        made.append(catalog)
        decode = msgspec.json.Decoder(store.resource.view).decode
        sizes = {"cpu": {"guest": 2}, "ioThreadsPolicy": "auto", "memory": {"guest": "4Gi", "overcommitPercent": 50}}
        for number in range(count):
            metadata = {"name": f"u1.size-{number}", **METADATA}
            body = msgspec.json.encode({"apiVersion": "a/v1", "kind": "b", "metadata": metadata, "spec": sizes})
            store._put(store.contents, decode(body), len(body))
        assert len(store.contents) == count
        return store.contents.size

    gc.collect()
    tracemalloc.start()
    try:
        size = await kept()
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < size < count * 1024
    assert CLUSTER_BYTES >= 10_000 * 1024


def test_a_namespace_holds_the_instancetypes_of_everyday_sizes() -> None:
    room: ObjectStore[Object] = ObjectStore(10 * NAMESPACE_BYTES, NAMESPACE_BYTES, lambda _: 800)
    assert sum(room.put(("demo", str(number)), Object()) for number in range(1000)) > 300
