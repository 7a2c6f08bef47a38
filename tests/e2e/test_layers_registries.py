"""Registries that are slow, wrong, hostile or away: a real kube-scheduler places pods as if there were no scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from .conftest import NewWebhook, OwnPlane
from .support.hostile_registry import HostileRegistry, another_manifest, answering, dripping, endless
from .support.kube import Json, eventually
from .support.loopback import Answer
from .support.objects import launcher_pod, make_node
from .support.placing import place_one
from .support.plane import ControlPlane
from .support.processes import free_port
from .support.scored import NODES, clean_up, list_images, settings, start_scheduler

FETCHES = "kubevirt_webhook_layers_fetches_total"
METADATA = "http://169.254.169.254/latest/meta-data/"
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def plane(own_plane: OwnPlane) -> Iterator[ControlPlane]:
    started = own_plane()
    for name in NODES:
        make_node(started.admin, name, allocatable={"devices.kubevirt.io/kvm": "110"})
    yield started
    clean_up(started)


def pod(address: str, name: str) -> Json:
    """A launcher pod with a containerDisk of the registry, by digest."""
    made = launcher_pod(name, scheduler="kubevirt")
    made["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "1", "memory": "4Gi"}
    made["spec"]["containers"].append({"name": "volumedisk", "image": f"{address}/disk@{DIGEST}"})
    return made


def assert_harmless(plane: ControlPlane, new_webhook: NewWebhook, registries: dict[str, str]) -> None:
    """Pods are placed evenly while their images are asked for, and after that has failed; by address, its cause."""
    port = free_port()
    server = new_webhook(settings([*registries], port), access=plane)
    listed: list[Json] = [{"names": [f"{address}/disk@{DIGEST}"], "sizeBytes": 1} for address in registries]
    list_images(plane, NODES[0], listed)
    start_scheduler(plane, port, weight=2)

    def placed(when: str) -> list[str]:
        """Where three pods of each registry go."""
        found: list[str] = []
        for number, address in enumerate(registries):
            names = [f"{when}-{number}-{copy}" for copy in range(len(NODES))]
            found += sorted(place_one(plane.admin, pod(address, name)) for name in names)
        assert found == NODES * len(registries)
        return found

    first = placed("first")
    for cause in {*registries.values()}:
        least = [*registries.values()].count(cause)
        eventually(lambda: server.metric(FETCHES, result=cause) >= least, what=f"manifests that are {cause}")  # noqa: B023
    then = placed("then")
    asked = server.metric("kubevirt_webhook_layers_requests_total", result="no-scores")
    assert asked == len(first) + len(then)
    assert server.metric("kubevirt_webhook_layers_images", layers="known") == 0


def test_a_registry_that_is_wrong_slow_or_away(plane: ControlPlane, new_webhook: NewWebhook) -> None:
    wrong: list[Answer] = [
        answering(200, body=another_manifest()),
        answering(200, body=b"<html>"),
        endless,
        answering(200, {"Content-Length": str(2**40)}),
    ]
    with ExitStack() as running:
        registries = {running.enter_context(HostileRegistry(answer)).address: "invalid" for answer in wrong}
        registries[running.enter_context(HostileRegistry(dripping)).address] = "unavailable"
        registries[f"127.0.0.1:{free_port()}"] = "unavailable"
        assert_harmless(plane, new_webhook, registries)


def test_a_registry_that_is_hostile(plane: ControlPlane, new_webhook: NewWebhook) -> None:
    """It leads the server elsewhere, by a redirection or as if to a server of tokens."""
    with ExitStack() as running:
        inside = running.enter_context(HostileRegistry(answering(200, body=another_manifest())))
        registries = {}
        for target in (f"http://{inside.address}/secrets", METADATA):
            for answer in (
                answering(307, {"Location": target}),
                answering(401, {"WWW-Authenticate": f'Bearer realm="{target}",service="x"'}),
            ):
                registries[running.enter_context(HostileRegistry(answer)).address] = "denied"
        assert_harmless(plane, new_webhook, registries)
        assert inside.paths == []
