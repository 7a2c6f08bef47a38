"""Registries that are slow, wrong, hostile or away: a real kube-scheduler places pods as if there were no scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .conftest import NewWebhook, OwnPlane
from .support.hostile_registry import Answer, HostileRegistry, another_manifest, answering, dripping, endless
from .support.kube import Json, eventually
from .support.objects import launcher_pod, make_node
from .support.plane import ControlPlane
from .support.processes import free_port
from .support.scored import NODES, clean_up, list_images, place, settings, start_scheduler

FETCHES = "kubevirt_webhook_layers_fetches_total"
METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.fixture(scope="module")
def plane(module_plane: OwnPlane) -> ControlPlane:
    started = module_plane()
    for name in NODES:
        make_node(started.admin, name, allocatable={"devices.kubevirt.io/kvm": "110"})
    return started


@pytest.fixture(autouse=True)
def clean(plane: ControlPlane) -> Iterator[None]:
    yield
    clean_up(plane)


def pod(address: str, name: str) -> Json:
    """A launcher pod with a containerDisk of the registry, by digest."""
    made = launcher_pod(name, scheduler="kubevirt")
    made["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "2", "memory": "8Gi"}
    made["spec"]["containers"].append({"name": "volumedisk", "image": f"{address}/disk@sha256:{'a' * 64}"})
    return made


def assert_harmless(plane: ControlPlane, new_webhook: NewWebhook, address: str, cause: str) -> None:
    """Pods are placed evenly while their image is asked for, and after that has failed."""
    port = free_port()
    server = new_webhook(settings(address, port), access=plane)
    list_images(plane, NODES[0], [{"names": [f"{address}/disk@sha256:{'a' * 64}"], "sizeBytes": 1}])
    start_scheduler(plane, port, weight=2)
    first = [place(plane, pod(address, f"first-{number}")) for number in range(3)]
    eventually(lambda: server.metric(FETCHES, result=cause) >= 1, what=f"a manifest that is {cause}", timeout=30)
    then = [place(plane, pod(address, f"then-{number}")) for number in range(3)]
    assert sorted(first) == sorted(then) == NODES
    assert server.metric("kubevirt_webhook_layers_requests_total", result="no-scores") == 6
    assert server.metric("kubevirt_webhook_layers_images", layers="known") == 0


WRONG = {
    "another manifest": answering(200, body=another_manifest()),
    "no manifest": answering(200, body=b"<html>"),
    "an answer without end": endless,
    "too large an answer": answering(200, {"Content-Length": str(2**40)}),
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
def test_a_registry_that_is_wrong(plane: ControlPlane, new_webhook: NewWebhook, answer: Answer) -> None:
    with HostileRegistry(answer) as registry:
        assert_harmless(plane, new_webhook, registry.address, "invalid")


def test_a_registry_that_is_slow(plane: ControlPlane, new_webhook: NewWebhook) -> None:
    with HostileRegistry(dripping) as registry:
        assert_harmless(plane, new_webhook, registry.address, "unavailable")


def test_a_registry_that_is_away(plane: ControlPlane, new_webhook: NewWebhook) -> None:
    assert_harmless(plane, new_webhook, f"127.0.0.1:{free_port()}", "unavailable")


def redirecting(target: str) -> Answer:
    return answering(307, {"Location": target})


def naming_a_token_server(target: str) -> Answer:
    return answering(401, {"WWW-Authenticate": f'Bearer realm="{target}",service="x"'})


@pytest.mark.parametrize("lead", [redirecting, naming_a_token_server])
def test_a_registry_that_is_hostile(
    plane: ControlPlane, new_webhook: NewWebhook, lead: Callable[[str], Answer]
) -> None:
    with HostileRegistry(answering(200, body=another_manifest())) as inside:
        for target in (f"http://{inside.address}/secrets", METADATA):
            with HostileRegistry(lead(target)) as registry:
                assert_harmless(plane, new_webhook, registry.address, "denied")
            clean_up(plane)
        assert inside.paths == []
