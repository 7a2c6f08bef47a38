"""The migration policy while no replica answers: requested migrations wait, and a drain is not affected."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from .conftest import NewTenant
from .support.access import Access
from .support.kube import eventually
from .support.migrations import EAST, WEST, MigrationMover, guest, rejection, terms_of
from .support.objects import ZONE
from .support.tenant import Tenant
from .support.webhook_server import MIGRATION, WebhookServer, install

T = TypeVar("T")

ENTRY = "virtualmachineinstancemigrations.migration.enforce.kubevirt-webhook.github.io"
# The API server waits this long for one answer, in seconds; a request that does not wait for it is far faster.
TIMEOUT = 2
AT_ONCE = 1.0


@pytest.fixture
def server(plane: Access, kube_scheduler: Path, tmp_path: Path) -> Iterator[WebhookServer]:
    """A server that is not started yet."""
    install(plane.admin)
    name = f"outage-{secrets.token_hex(4)}"
    made = WebhookServer(plane, tmp_path, name, {"webhooks": {"timeoutSeconds": TIMEOUT}})
    yield made
    made.kill()
    for configuration in made.configurations():
        plane.kubectl("delete", configuration.replace("/", ".admissionregistration.k8s.io/"))


def seconds(act: Callable[[], object]) -> float:
    """How long something takes at best: other work on the machine may delay a single attempt."""

    def once() -> float:
        started = time.monotonic()
        act()
        return time.monotonic() - started

    return min(once() for _ in range(3))


def test_a_migration_from_before_our_time_is_held_to_what_it_adds(
    server: WebhookServer, plane: Access, new_namespace: Callable[..., str]
) -> None:
    tenant = Tenant(server, new_namespace(server.labels(policies=[MIGRATION])))
    vm = MigrationMover(tenant, guest(nodeSelector=EAST))
    asked = vm.ask(WEST)

    server.start()
    server.wait_called()
    target = vm.target(asked)

    (term,) = terms_of(target)
    assert {"key": ZONE, "operator": "In", "values": ["west"]} in term["matchExpressions"]
    assert "didn't match Pod's node affinity/selector" in vm.why_pending(target)
    server.stop()


def test_while_nobody_answers_choices_are_refused_and_a_drain_goes_on(
    server: WebhookServer, new_tenant: NewTenant
) -> None:
    server.start()
    server.wait_called()
    server.insist()
    tenant = new_tenant(server=server, policies=[MIGRATION])
    vm = MigrationMover(tenant, guest())

    for silence, why in ((server.freeze, "deadline exceeded"), (server.kill, "connection refused")):
        silence()

        assert seconds(vm.evacuate) < AT_ONCE
        status = eventually(lambda: rejection(lambda: vm.ask(WEST)), what="the failure policy to be known")
        assert (status["code"], status["reason"]) == (500, "InternalError")
        assert f'failed calling webhook "{ENTRY}"' in status["message"]
        assert why in status["message"]
        assert vm.ask().warnings == ()
        target = vm.target(vm.evacuate())
        assert vm.node_of(target) != "node-a"
        tenant.controller.delete("v1/pods", target["metadata"]["name"], tenant.namespace, gracePeriodSeconds="0")
