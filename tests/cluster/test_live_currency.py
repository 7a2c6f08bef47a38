"""How old an answer may be: a restored etcd, watches that are frozen, and what the API server is asked instead."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_apiserver import FakeApiServer
from tests.cluster.live_case import VMI, LiveCase, abort, declared, live
from tests.waiting import until
from webhook import names
from webhook.cluster.live import VERIFY_EVERY_SECONDS
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, KubeVirtKey, NamespaceKey, NodesKey, SchedulerKey
from webhook.k8s.client.reflector import CURRENT_SECONDS
from webhook.k8s.resources import LEASES, NAMESPACES, NODES, PENDING_PODS
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.settings.model import SchedulerHealthSettings

pytestmark = pytest.mark.repeats

LABEL = names.policy_label(names.SCHEDULING)
DEMO = NamespaceKey("demo")
DEMO_PATH = NAMESPACES.path(name="demo")
WATCHED = (NAMESPACES, KUBEVIRTS, NODES)
LEASE = SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")

HOLDER = {"holderIdentity": "a"}


def put(server: FakeApiServer, mode: str) -> None:
    server.put(NAMESPACES, "demo", metadata={"labels": {LABEL: mode}})


def mode(answer: Any) -> str | None:
    return answer.meta.label(LABEL) if isinstance(answer, Namespace) else str(answer)


def prepare(server: FakeApiServer) -> None:
    put(server, "enforce")


async def watching(case: LiveCase, watches: int = 3) -> None:
    await case.ready()
    await until(lambda: case.server.watching == watches)


async def verified(case: LiveCase) -> None:
    """Has each store verified once."""
    for _ in range(2 * len(case.cluster.staleness())):
        slept = len(case.clock.slept)
        case.held.advance(VERIFY_EVERY_SECONDS / 2)
        await until(lambda slept=slept: len(case.clock.slept) >= slept)  # type: ignore[misc]
        await asyncio.sleep(0.02)


class TestRestoredEtcd:
    async def test_every_store_returns_to_the_past_within_the_bound(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True, prepare=prepare) as case:
            heard: list[str] = []
            case.cluster.on_restore(heard.append)
            await watching(case)
            case.put_vmi()
            await case.read(VMI)
            saved = case.server.save()
            put(case.server, "off")
            case.server.put(NODES, "n1")
            case.server.put(KUBEVIRTS, "kubevirt", "kubevirt")
            await until(lambda: mode(case.cluster.peek(DEMO)) == "off")
            await until(lambda: len(list(case.cluster.peek(NodesKey()))) == 1)  # type: ignore[call-overload]
            await until(lambda: case.cluster.peek(KubeVirtKey()) is not None)
            case.server.restore(saved)

            await verified(case)

            await until(lambda: mode(case.cluster.peek(DEMO)) == "enforce")
            await until(lambda: not list(case.cluster.peek(NodesKey())))  # type: ignore[call-overload]
            await until(lambda: case.cluster.peek(KubeVirtKey()) is None)
            assert case.cluster.peek(VMI) is NOT_READ
            assert case.cluster.restores == len(heard) == 1
            for resource in WATCHED:
                assert len(case.server.requests(resource.path(), "get")) == 2

    async def test_verification_costs_one_request_for_each_store_in_its_time(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True, prepare=prepare) as case:
            await watching(case)
            for _ in range(30):
                slept = len(case.clock.slept)
                case.held.advance(VERIFY_EVERY_SECONDS / 3)
                await until(lambda slept=slept: len(case.clock.slept) > slept)  # type: ignore[misc]
            asked = [each for each in case.server.asked if each.verb == "verify"]
            assert 27 <= len(asked) <= 31
            assert case.cluster.restores == 0
            for resource in WATCHED:
                assert len(case.server.requests(resource.path(), "get")) == 1

    async def test_a_polled_lease_that_is_older_than_it_was_has_all_verified_at_once(self, tmp_path: Path) -> None:
        def held(server: FakeApiServer) -> None:
            prepare(server)
            server.put(LEASES, LEASE.name, LEASE.namespace, spec=HOLDER | {"renewTime": "2026-01-01T00:00:00Z"})

        async with live(tmp_path, declared(kubevirt=LEASE), start=True, prepare=held) as case:
            await watching(case, 4)
            saved = case.server.save()
            put(case.server, "off")
            case.server.put(LEASES, LEASE.name, LEASE.namespace, spec=HOLDER | {"renewTime": "2026-01-01T00:00:02Z"})
            await until(lambda: mode(case.cluster.peek(DEMO)) == "off")
            await until(lambda: case.clock.slept.count(2.0) == 1)
            case.held.advance(2.0)
            await until(lambda: case.clock.slept.count(2.0) == 2)
            case.server.restore(saved)
            case.held.advance(2.0)
            await until(lambda: mode(case.cluster.peek(DEMO)) == "enforce")
            assert case.cluster.restores == 1
            assert case.cluster.peek(SchedulerKey("kubevirt")) is not None
            await until(lambda: len(case.server.requests(PENDING_PODS.path(), "get")) == 2)

    async def test_an_api_server_that_goes_on_with_its_cache_has_each_review_read(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True, prepare=prepare) as case:
            await watching(case)
            saved = case.server.save()
            put(case.server, "off")
            await until(lambda: mode(case.cluster.peek(DEMO)) == "off")
            case.server.restore(saved, cached=True)
            await verified(case)
            assert case.cluster.peek(DEMO) is NOT_READ
            assert mode(await case.read(DEMO)) == "enforce"
            assert case.cluster.has_namespace("demo")


class TestFrozenWatches:
    async def test_a_get_decides_once_the_store_is_too_old(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with live(tmp_path, start=True, prepare=prepare) as case:
            await watching(case)
            assert mode(case.cluster.peek(DEMO)) == "enforce"
            case.clock.time += CURRENT_SECONDS - 0.1
            assert mode(case.cluster.peek(DEMO)) == "enforce"
            case.clock.time += 0.1
            # The peer is alive and silent: what has changed is not heard.
            case.server.held(NAMESPACES)["", "demo"]["metadata"]["labels"][LABEL] = "off"
            assert case.cluster.peek(DEMO) is NOT_READ
            # Fifty reviews share one read, and so do those of the next second.
            answers = await asyncio.gather(*(case.read(DEMO) for _ in range(50)))
            assert {mode(answer) for answer in answers} == {"off"}
            assert mode(case.cluster.peek(DEMO)) == "off"
            assert 1 <= len(case.server.requests(DEMO_PATH)) <= 2
            asked = len(case.server.requests(DEMO_PATH))
            case.clock.time += 0.9
            assert mode(await case.read(DEMO)) == "off"
            assert len(case.server.requests(DEMO_PATH)) == asked
            case.clock.time += 0.1
            assert mode(await case.read(DEMO)) == "off"
            assert len(case.server.requests(DEMO_PATH)) == asked + 1
            assert case.cluster.waiting_for() == ()
            # The first word of the watch makes it count again.
            put(case.server, "warn")
            await until(lambda: mode(case.cluster.peek(DEMO)) == "warn")

    async def test_where_kubevirt_runs_is_listed(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True, prepare=prepare) as case:
            await watching(case)
            case.clock.time += CURRENT_SECONDS
            assert case.cluster.peek(KubeVirtKey()) is NOT_READ
            case.server.end_watches()
            case.server.put(KUBEVIRTS, "kubevirt", "kubevirt")
            found = await case.read(KubeVirtKey())
            assert found.namespaces == {"kubevirt"}

    async def test_without_any_answer_nothing_is_known_and_the_replica_is_not_ready(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with live(tmp_path, start=True, prepare=prepare) as case:
            await watching(case)
            case.server.answer(DEMO_PATH, abort, times=1000)
            for resource in WATCHED:
                case.server.answer(resource.path(), abort, times=1000)
            case.server.cut()
            await verified(case)
            assert case.cluster.waiting_for() == (), "the store is young enough to decide"
            with caplog.at_level(logging.WARNING):
                case.clock.time += CURRENT_SECONDS
                await verified(case)
            assert isinstance(await case.read(DEMO), Unavailable)
            (missing,) = case.cluster.waiting_for()
            assert missing.startswith("namespaces: nothing heard from the API server for ")
            assert caplog.text.count("namespaces: the watch is too old") == 1
            case.server.heal()
            case.server.cut()
            for _ in range(10):
                case.held.advance(10.0)
                await asyncio.sleep(0.01)
            await until(lambda: case.cluster.waiting_for() == ())
