"""The server and the API server come and go independently of each other."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.builders import review
from webhook.server.runtime.logs import ServerEvent

from .conftest import NewTenant, NewWebhook, OwnPlane
from .support.access import Access
from .support.kube import eventually
from .support.plane import ControlPlane
from .support.processes import free_port
from .support.tenant import Tenant
from .support.webhook_server import WebhookServer, install
from .support.workloads import vm

SETTINGS = {"schedulers": {"kubevirt": {"healthCheck": "pods"}}}


NewServer = Callable[[Access, str], WebhookServer]


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[NewServer]:
    """Makes servers that the test starts and ends itself."""
    with ExitStack() as ends:

        def make(access: Access, name: str) -> WebhookServer:
            server = WebhookServer(access, tmp_path, name, SETTINGS)
            ends.callback(server.kill)
            return server

        yield make


@pytest.fixture(scope="module")
def stoppable(module_plane: OwnPlane) -> ControlPlane:
    return module_plane()


@pytest.fixture
def plane_to_stop(stoppable: ControlPlane) -> ControlPlane:
    """A plane of the module's own, whose API server a test may stop, and leave so."""
    if not stoppable.answers:
        stoppable.start_apiserver()
    return stoppable


def staleness(server: WebhookServer) -> float:
    """Seconds since the watch of namespaces last received data from the API server."""
    return server.metric("kubevirt_webhook_staleness_seconds", watch="namespaces")


def test_a_killed_server_costs_nobody_anything_and_its_configurations_are_never_overwritten(
    plane: Access, new_server: NewServer, new_tenant: NewTenant
) -> None:
    install(plane.admin)
    name = f"killed-{secrets.token_hex(4)}"
    killed, next_one = new_server(plane, name), new_server(plane, name)
    killed.start()
    killed.wait_called()
    left = killed.configurations()
    tenant = new_tenant(server=killed)
    assert tenant.choice() == "kubevirt"

    killed.kill()
    assert tenant.choice() is None

    next_one.start()
    assert next_one.wait_ended() == 2
    assert (
        next_one.log.read_text()
        .splitlines()[-1]
        .startswith(f"Error: MutatingWebhookConfiguration kubevirt-webhook-{name}: already exists; ")
    )
    assert next_one.configurations() == left
    killed.discard()

    # One that is ended by SIGTERM takes them back.
    other = new_server(plane, f"{name}-other")
    other.start()
    other.wait_logged("webhook configurations created")
    assert len(other.configurations()) == 3
    other.stop()  # which asserts the exit status, and that nothing is left
    assert [line["event"] for line in other.logged()][-1] == "stopping"


def test_an_api_server_that_restarts(plane_to_stop: ControlPlane, new_webhook: NewWebhook) -> None:
    plane = plane_to_stop
    server = new_webhook(SETTINGS, access=plane)
    before = Tenant.new(server)
    assert before.choice() == "kubevirt"

    plane.stop_apiserver()
    assert server.ops("/readyz") == (200, "ok\n")
    answer = server.ask("/mutate/scheduling/virtualmachines/enforce", review(vm(), namespace=before.namespace))
    assert "patch" in answer["response"]
    plane.start_apiserver()

    restarted = time.monotonic()
    eventually(lambda: before.choice() == "kubevirt", what="namespaces of before to be judged")
    assert Tenant.new(server).choice() == "kubevirt"
    eventually(lambda: staleness(server) < time.monotonic() - restarted, what="the watch to be up to date again")


def test_a_server_that_starts_before_the_api_server(plane_to_stop: ControlPlane, new_server: NewServer) -> None:
    plane = plane_to_stop
    install(plane.admin)
    plane.stop_apiserver()
    server = new_server(plane, "early")

    server.start()
    eventually(lambda: "no connection" in server.ops("/readyz")[1], what="the server to miss the API server")
    status, text = server.ops("/readyz")
    assert status == 503
    assert text.startswith("waiting for namespaces: no connection ")
    assert server.ops("/healthz") == (200, "ok\n")

    plane.start_apiserver()
    server.wait_called()
    assert server.ops("/readyz") == (200, "ok\n")
    tenant = Tenant.new(server)
    # Of the two configurations, the one for VMs may reach the API server a moment later than that for pods.
    eventually(lambda: tenant.choice() == "kubevirt", what="the API server to call it for VMs")
    server.stop()


def test_a_server_that_still_waits_can_be_ended(binaries: Path, tmp_path: Path, new_server: NewServer) -> None:
    nobody = Access(tmp_path / "no-plane", f"https://localhost:{free_port()}", binaries)
    server = new_server(nobody, "waiting")
    server.start()
    server.wait_logged("waiting before registration")

    server.terminate()

    assert server.wait_ended() == 0


def test_configurations_that_can_not_be_taken_back_are_named(
    plane_to_stop: ControlPlane, new_server: NewServer
) -> None:
    plane = plane_to_stop
    install(plane.admin)
    server = new_server(plane, "late")
    server.start()
    server.wait_logged("webhook configurations created")

    plane.stop_apiserver()
    server.terminate()

    assert server.wait_ended() == 0
    assert [line["problem"].partition(" ")[0] for line in server.events(ServerEvent.NOT_DELETED)] == [
        f"/apis/admissionregistration.k8s.io/v1/{name}"
        for name in (
            "mutatingwebhookconfigurations/kubevirt-webhook-late",
            "mutatingwebhookconfigurations/zz-kubevirt-webhook-late",
            "validatingwebhookconfigurations/kubevirt-webhook-late",
        )
    ]
