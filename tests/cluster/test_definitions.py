"""The server reads the definitions of KubeVirt's kinds whenever the KubeVirt object names another version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.cluster.fake_apiserver import FakeApiServer
from tests.cluster.live_case import LiveCase, ready
from tests.definitions import definitions
from tests.waiting import until
from webhook.cluster.definitions import RETRY_SECONDS
from webhook.facts import KubeVirtKey
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.definitions import DEFINITIONS, NAMES
from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.resources import KUBEVIRTS

PREFERRED_VIDEO = "devices.preferredVideoType"
PATHS = [DEFINITIONS.path(name=name) for name in NAMES.values()]


def put_kubevirt(server: FakeApiServer, observed: str = "v1.9.0", target: str = "", **spec: Any) -> None:
    status = {"phase": "Deployed", "observedKubeVirtVersion": observed, "targetKubeVirtVersion": target or observed}
    server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec=spec, status=status)


def put_definitions(server: FakeApiServer, *without: str) -> None:
    """Those of KubeVirt, without some fields of preferences."""
    server.serve(DEFINITIONS)
    lacking = dict.fromkeys((fields.PREFERENCE, fields.CLUSTER_PREFERENCE), without)
    for each in definitions(lacking):
        server.put(DEFINITIONS, each["metadata"]["name"], spec=each["spec"])


def installed(server: FakeApiServer) -> None:
    put_kubevirt(server)
    put_definitions(server, PREFERRED_VIDEO)


def release(case: LiveCase) -> Release:
    install: Any = case.cluster.peek(KubeVirtKey())
    assert isinstance(install.configuration, ClusterConfig)
    return install.configuration.release


def knows_video(case: LiveCase) -> bool:
    return PREFERRED_VIDEO not in release(case).unknown_fields(fields.PREFERENCE)


def reads(case: LiveCase) -> list[int]:
    return [len(case.server.requests(path)) for path in PATHS]


async def test_they_are_read_before_the_server_is_ready_and_not_again(tmp_path: Path) -> None:
    async with ready(tmp_path, prepare=installed) as case:
        assert not knows_video(case)
        put_kubevirt(case.server, configuration={"cpuModel": "a"})
        before = case.cluster.peek(KubeVirtKey())
        await until(lambda: case.cluster.peek(KubeVirtKey()) is not before)
        assert not knows_video(case)
        assert reads(case) == [1] * len(PATHS)


async def test_an_update_brings_the_fields_of_the_new_definitions(tmp_path: Path) -> None:
    async with ready(tmp_path, prepare=installed) as case:
        put_definitions(case.server)
        put_kubevirt(case.server, "v1.9.1")
        await until(lambda: str(release(case)) == "1.9.1")
        # Never the new rules with the old fields.
        assert knows_video(case)
        assert reads(case) == [2] * len(PATHS)


async def test_while_they_are_read_reviews_go_by_the_former_release(tmp_path: Path) -> None:
    async with ready(tmp_path, prepare=installed) as case:
        released = asyncio.Event()
        case.server.hang(PATHS[0], released)
        put_kubevirt(case.server, "v1.9.1")
        await case.asked(PATHS[0], 2)
        assert (str(release(case)), knows_video(case)) == ("1.9.0", False)
        put_definitions(case.server)
        released.set()
        await until(lambda: str(release(case)) == "1.9.1")


async def test_without_the_permission_the_tables_count_until_it_is_granted(tmp_path: Path) -> None:
    def forbidden(server: FakeApiServer) -> None:
        installed(server)
        server.fail(PATHS[0], 403, "Forbidden", times=2)

    async with ready(tmp_path, prepare=forbidden) as case:
        assert knows_video(case)
        assert release(case).definitions is None
        await until(lambda: case.clock.slept.count(RETRY_SECONDS) == 1)
        case.held.advance(RETRY_SECONDS)
        await until(lambda: case.clock.slept.count(RETRY_SECONDS) == 2)
        assert knows_video(case)
        case.held.advance(RETRY_SECONDS)
        await until(lambda: not knows_video(case))


async def test_an_update_is_not_kept_waiting_by_an_earlier_failure(tmp_path: Path) -> None:
    def forbidden(server: FakeApiServer) -> None:
        installed(server)
        server.fail(PATHS[0], 403, "Forbidden", times=1)

    async with ready(tmp_path, prepare=forbidden) as case:
        put_kubevirt(case.server, "v1.9.1")

        await until(lambda: str(release(case)) == "1.9.1")
        assert not knows_video(case)


async def test_what_is_no_definition_counts_as_unreadable(tmp_path: Path) -> None:
    def broken(server: FakeApiServer) -> None:
        installed(server)
        server.put(DEFINITIONS, NAMES[fields.MACHINE], spec={"versions": 7})

    async with ready(tmp_path, prepare=broken) as case:
        assert release(case).definitions is None


async def test_without_kubevirt_nothing_is_read(tmp_path: Path) -> None:
    async with ready(tmp_path) as case:
        assert reads(case) == [0] * len(PATHS)

        installed(case.server)
        await until(lambda: case.cluster.peek(KubeVirtKey()) is not None)
        await until(lambda: not knows_video(case))


async def test_a_cluster_without_definitions_goes_by_the_tables(tmp_path: Path) -> None:
    async with ready(tmp_path, prepare=put_kubevirt) as case:
        assert reads(case) == [1] * len(PATHS)
        assert release(case).definitions is None
