"""Headroom that follows a cluster, and what it reserves for starts that are admitted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.builders import Json, changed, known, opted_in, settings
from tests.forecast.clusters import node, owned, vm
from tests.policies.headroom.test_pods import quota
from tests.policies.headroom.world import QUOTAS_OF_DEMO, review, starting_pod
from tests.review.memory import KeptInMemory, MemoryCluster
from tests.server.conftest import ServedApi, working
from tests.waiting import until
from webhook.errors import Unavailable
from webhook.facts import HeadroomKey, Key, VerdictKey
from webhook.k8s.resources import NODES, PODS, Resource
from webhook.kubevirt.run_strategy import STARTED_VMS
from webhook.placement.headroom.headroom import Headroom
from webhook.placement.quota import ResourceQuota
from webhook.policies.headroom import reasons
from webhook.policies.headroom.settings import HEADROOM, HeadroomSettings
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.server.headroom.decider import Decider
from webhook.server.headroom.watch import HeadroomWatch

PATHS = {"enforce": "/validate/headroom/pods/enforce", "warn": "/validate/headroom/pods/observe"}


class DecidingCluster(MemoryCluster):
    """A cluster in memory, with what decides about starts."""

    def __init__(self, facts: dict[Key[Any], object], decider: Decider) -> None:
        super().__init__(facts)
        self.decider = decider

    async def read(self, key: Key[Any], deadline: float) -> Any:
        if isinstance(key, VerdictKey):
            return await self.decider.read(key, deadline)
        return await super().read(key, deadline)


class WatchCase:
    """Three nodes, of which any may be lost; there is room for one VM more of 2Gi."""

    def __init__(self, api: ServedApi) -> None:
        self.server, connection = api
        self.quotas: tuple[ResourceQuota, ...] = ()
        for resource in (NODES, PODS, STARTED_VMS):
            self.server.serve(resource)
        for name in "abc":
            self.put(NODES, node(name))
        for place in "abc":
            for number in range(2):
                if (place, number) != ("a", 0):
                    self.run(vm(f"{place}{number}", place, "2500Mi"))
        self.watches = [HeadroomWatch(connection) for _ in range(2)]
        self.deciders = [Decider(watch.headroom) for watch in self.watches]

    def put(self, resource: Resource[Any], obj: Json) -> None:
        name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
        fields = {key: obj[key] for key in ("metadata", "spec", "status") if key in obj}
        self.server.put(resource, name, namespace, **fields)

    def run(self, machine: tuple[Json, Json], namespace: str = "shop") -> None:
        owner = owned(machine)
        for one, resource in ((machine[1], PODS), (owner, STARTED_VMS)):
            one["metadata"]["namespace"] = namespace
            self.put(resource, one)

    async def declare(self, *names: str) -> None:
        """VMs exist that have not started; before, all is listed, else they might be about to start again."""
        running = [watch for watch in self.watches if not isinstance(watch.peek(), Unavailable)]
        for name in names:
            owner = owned(vm(name, ""))
            owner["metadata"]["namespace"] = "demo"
            self.put(STARTED_VMS, owner)
        for watch in running:
            await until(partial(watch.headroom._vms.__contains__, ("demo", names[-1])), "the VMs to be seen")

    async def ask(self, pod: Json, replica: int = 0, mode: str = "enforce", **request: Any) -> Evaluation:
        watch = self.watches[replica]
        facts = {**known(), HeadroomKey(): watch.peek(), QUOTAS_OF_DEMO: self.quotas, **opted_in(HEADROOM, mode=mode)}
        cluster = DecidingCluster(facts, self.deciders[replica])
        used = changed(settings(), **{HEADROOM: changed(HeadroomSettings(), enabled=True)})
        kept = KeptInMemory()
        reviewer = Reviewer(cluster, lambda: used, kept, kept, watch)
        body = json.dumps(review(pod, **request)).encode()
        evaluation = await reviewer.evaluate(BY_PATH[PATHS[mode]], body, 1e12)
        assert not kept.errors, kept.errors
        return evaluation


@pytest.fixture
def case(api: ServedApi) -> WatchCase:
    return WatchCase(api)


def pod_of(name: str, memory: str = "2Gi") -> Json:
    pod = starting_pod(memory)
    pod["metadata"]["name"] = f"virt-launcher-{name}"
    pod["metadata"]["ownerReferences"][0] |= {"name": name, "uid": f"uid-{name}"}
    pod["metadata"]["labels"]["kubevirt.io/created-by"] = f"uid-{name}"
    return pod


@asynccontextmanager
async def watching(*watches: HeadroomWatch) -> AsyncIterator[None]:
    async with AsyncExitStack() as ends:
        for watch in watches:
            await ends.enter_async_context(working(watch.run()))
        yield


async def current(watch: HeadroomWatch) -> Headroom:
    await until(lambda: isinstance(watch.peek(), Headroom), "all to be listed")
    found = watch.peek()
    assert isinstance(found, Headroom)
    return found


async def test_of_two_starts_at_once_one_gets_the_last_room(case: WatchCase) -> None:
    async with watching(case.watches[0]):
        assert isinstance(case.watches[0].peek(), Unavailable)
        await current(case.watches[0])
        await case.declare("one", "two")
        first, second = await asyncio.gather(case.ask(pod_of("one")), case.ask(pod_of("two")))
    assert [each.decision.code for each in (first, second)] == [reasons.KEPT, reasons.NO_PLACE]
    assert [each.label for each in (first, second)] == ["allowed", "denied"]


@pytest.mark.control("room-taken-twice")
async def test_of_two_starts_at_once_one_gets_the_last_room_of_a_quota(case: WatchCase) -> None:
    case.quotas = (quota("2Gi", "0"),)
    async with watching(case.watches[0]):
        await current(case.watches[0])
        await case.declare("one", "two")
        pods = [pod_of(name, "768Mi") for name in ("one", "two")]
        first, second = await asyncio.gather(*map(case.ask, pods))
        # What it was about to take is free again.
        assert not case.watches[0].headroom.reserved_usages("demo", ("demo", "one"))
    assert [each.decision.code for each in (first, second)] == [reasons.KEPT, reasons.NO_MIGRATION]
    assert first.decision.details == {"shown-by": "simulation"}


async def test_a_dry_run_takes_no_room_and_mode_warn_does(case: WatchCase) -> None:
    async with watching(case.watches[0]):
        await current(case.watches[0])
        await case.declare("one", "two")
        await case.ask(pod_of("one"), dryRun=True)
        assert (await case.ask(pod_of("two"), dryRun=True)).decision.code == reasons.KEPT
        await case.ask(pod_of("one"), mode="warn")
        assert (await case.ask(pod_of("two"))).decision.code == reasons.NO_PLACE


@pytest.mark.control("room-taken-twice")
async def test_each_replica_may_admit_one_more_until_it_sees_the_pods_of_the_others(case: WatchCase) -> None:
    async with watching(*case.watches):
        for watch in case.watches:
            await current(watch)
        await case.declare("one", "two", "three")
        # Neither has seen the other's yet.
        assert (await case.ask(pod_of("one"), replica=0)).decision.code == reasons.KEPT
        assert (await case.ask(pod_of("two"), replica=1)).decision.code == reasons.KEPT
        case.put(PODS, pod_of("one"))
        await until(lambda: ("demo", "virt-launcher-one") in case.watches[1].headroom._pods, "the pod to be seen")
        assert (await case.ask(pod_of("three"), replica=1)).decision.code == reasons.NO_PLACE


async def test_it_says_nothing_while_its_watches_are_behind(case: WatchCase) -> None:
    async with watching(case.watches[0]):
        await current(case.watches[0])
        clock = case.watches[0]._clock
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(clock), "now", lambda _: 1e12)
            found = case.watches[0].peek()
        assert isinstance(found, Unavailable)
        assert found.why.startswith("the watch of nodes is not up to date")
        assert (await case.ask(pod_of("one"))).decision.code == reasons.KEPT


async def test_large_clusters_are_counted_beside_the_reviews(case: WatchCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.placement.headroom.headroom.MOST_SCORED", 1)
    monkeypatch.setattr("webhook.server.headroom.watch._SETTLE_SECONDS", 0.01)
    async with watching(case.watches[0]):
        await current(case.watches[0])
        await case.declare("one", "two")
        assert (await case.ask(pod_of("one"))).decision.code == reasons.KEPT
        assert (await case.ask(pod_of("two"))).decision.code == reasons.NO_PLACE


async def test_it_follows_nodes_pods_and_vms(case: WatchCase) -> None:
    async with watching(case.watches[0]):
        await current(case.watches[0])
        await case.declare("one")
        assert (await case.ask(pod_of("one"), dryRun=True)).decision.code == reasons.KEPT
        case.server.remove(NODES, "c")
        await until(lambda: "c" not in case.watches[0].headroom._nodes, "the node to be gone")
        assert (await case.ask(pod_of("one"), dryRun=True)).decision.denial
        case.put(NODES, node("c", memory="64Gi"))
        case.put(NODES, node("d", memory="64Gi"))
        await until(lambda: "d" in case.watches[0].headroom._nodes, "the nodes to be there")
        assert (await case.ask(pod_of("one"), dryRun=True)).decision.code == reasons.KEPT
