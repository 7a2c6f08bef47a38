"""The server reads the definitions of KubeVirt's kinds whenever the KubeVirt object names another version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from tests.cluster.fake_apiserver import ApiServers, FakeApiServer
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


def put_kubevirt(server: FakeApiServer, version: str = "v1.9.0", **spec: Any) -> None:
    status = {"phase": "Deployed", "observedKubeVirtVersion": version, "targetKubeVirtVersion": version}
    server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec=spec, status=status)


def put_definitions(server: FakeApiServer, *without: str) -> None:
    """Those of KubeVirt, without some fields of preferences."""
    server.serve(DEFINITIONS)
    for each in definitions(dict.fromkeys((fields.PREFERENCE, fields.CLUSTER_PREFERENCE), without)):
        server.put(DEFINITIONS, each["metadata"]["name"], spec=each["spec"])


def installed(server: FakeApiServer, more: Callable[[FakeApiServer], object] = lambda _: None) -> None:
    put_kubevirt(server)
    put_definitions(server, PREFERRED_VIDEO)
    more(server)


def forbidden(times: int) -> Callable[[FakeApiServer], None]:
    """Installed, and the first definition is denied so often."""
    return partial(installed, more=lambda server: server.fail(PATHS[0], 403, "Forbidden", times=times))


def release(case: LiveCase) -> Release:
    install: Any = case.peek(KubeVirtKey())
    assert isinstance(install.configuration, ClusterConfig)
    return install.configuration.release


def knows_video(case: LiveCase) -> bool:
    return PREFERRED_VIDEO not in release(case).unknown_fields(fields.PREFERENCE)


def reads(case: LiveCase) -> set[int]:
    return {case.gets(path) for path in PATHS}


@pytest.fixture
async def case(apiservers: ApiServers) -> AsyncIterator[LiveCase]:
    async with ready(apiservers, prepare=installed) as case:
        yield case


@pytest.mark.control("large-definitions")
async def test_they_are_read_before_the_server_is_ready_and_not_again(case: LiveCase) -> None:
    assert not knows_video(case)
    before = case.peek(KubeVirtKey())
    put_kubevirt(case.server, configuration={"cpuModel": "a"})
    await until(lambda: case.peek(KubeVirtKey()) is not before)
    assert not knows_video(case)
    assert reads(case) == {1}


async def test_an_update_brings_the_fields_of_the_new_definitions(case: LiveCase) -> None:
    put_definitions(case.server)
    put_kubevirt(case.server, "v1.9.1")
    await until(lambda: str(release(case)) == "1.9.1")
    # Never the new rules with the old fields.
    assert knows_video(case)
    assert reads(case) == {2}
    # A vendor's build of the same release may have other fields.
    put_definitions(case.server, PREFERRED_VIDEO)
    put_kubevirt(case.server, "v1.9.1+vendor.2")
    await until(lambda: not knows_video(case))
    assert (str(release(case)), reads(case)) == ("1.9.1", {3})


@pytest.mark.control("mixed-releases")
async def test_while_they_are_read_reviews_go_by_the_former_release(case: LiveCase) -> None:
    released = case.server.hang(PATHS[0])
    put_kubevirt(case.server, "v1.9.1")
    await case.asked(PATHS[0], 2)
    assert (str(release(case)), knows_video(case)) == ("1.9.0", False)
    put_definitions(case.server)
    released.set()
    await until(lambda: str(release(case)) == "1.9.1")


async def test_without_the_permission_the_tables_count_until_it_is_granted(apiservers: ApiServers) -> None:
    async with ready(apiservers, prepare=forbidden(2)) as case:
        assert release(case).definitions is None
        for tries in (1, 2):
            await until(lambda tries=tries: case.clock.slept.count(RETRY_SECONDS) == tries)  # type: ignore[misc]
            assert knows_video(case)
            case.clock.advance(RETRY_SECONDS)
        await until(lambda: not knows_video(case))


async def test_an_update_is_not_kept_waiting_by_an_earlier_failure(apiservers: ApiServers) -> None:
    async with ready(apiservers, prepare=forbidden(1)) as case:
        put_kubevirt(case.server, "v1.9.1")
        await until(lambda: str(release(case)) == "1.9.1")
        assert not knows_video(case)


async def test_without_kubevirt_nothing_is_read(apiservers: ApiServers) -> None:
    async with ready(apiservers) as case:
        assert reads(case) == {0}
        installed(case.server)
        await until(lambda: case.peek(KubeVirtKey()) is not None)
        await until(lambda: not knows_video(case))


MALFORMED = partial(FakeApiServer.put, resource=DEFINITIONS, name=NAMES[fields.VMI], spec={"versions": 7})


@pytest.mark.control("broken-definitions")
@pytest.mark.parametrize("prepare", [put_kubevirt, partial(installed, more=MALFORMED)], ids=["none", "malformed"])
async def test_without_readable_definitions_the_tables_count(apiservers: ApiServers, prepare: Any) -> None:
    async with ready(apiservers, prepare=prepare) as case:
        assert reads(case) == {1}
        assert release(case).definitions is None
