"""etcd is restored from an older copy under a running replica: the replica must return to the past, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import review
from webhook.server.runtime.logs import ServerEvent

from .conftest import NewWebhook, OwnPlane
from .support.kube import Json, eventually
from .support.plane import ControlPlane
from .support.tenant import Tenant
from .support.webhook_server import SCHEDULING, WebhookServer
from .support.workloads import vm

SETTINGS = {"schedulers": {"kubevirt": {"healthCheck": "off"}}}
# The bound that docs/reliability.md promises, with room for a machine that others use.
NOTICED_SECONDS = 60.0
# More than other writers bring etcd in the time that a replica may take.
CHANGES = 300


@pytest.fixture
def plane(own_plane: OwnPlane) -> ControlPlane:
    return own_plane()


def is_patched(server: WebhookServer, namespace: str) -> bool:
    """Whether the replica enforces in a namespace, as it answers itself: no API server decides what it is asked."""
    answer: Json = server.ask("/mutate/scheduling/virtualmachines/enforce", review(vm(), namespace=namespace))
    return "patch" in answer["response"]


def restored(
    plane: ControlPlane, server: WebhookServer, tenants: tuple[Tenant, Tenant], act: Callable[[], None]
) -> None:
    """Namespaces that enforced and did not at the time of the copy are changed, and etcd is restored."""
    enforcing, other = tenants
    saved = plane.save_etcd()
    eventually(lambda: plane.admin.text("/readyz") == "ok", what="the API server to have its etcd again")

    def label(tenant: Tenant, mode: str) -> None:
        plane.admin.patch("v1/namespaces", tenant.namespace, {"metadata": {"labels": {SCHEDULING: mode}}})

    label(enforcing, "off")
    label(other, "enforce")
    for number in range(CHANGES):
        plane.admin.patch("v1/namespaces", "default", {"metadata": {"annotations": {"number": str(number)}}})
    eventually(
        lambda: is_patched(server, other.namespace) and not is_patched(server, enforcing.namespace),
        what="the replica to know the newest labels",
    )
    plane.restore_etcd(saved)
    act()


@pytest.mark.parametrize("restarted", [True, False], ids=["API server restarted", "API server left running"])
def test_a_replica_follows_etcd_into_the_past(plane: ControlPlane, new_webhook: NewWebhook, restarted: bool) -> None:
    server = new_webhook(SETTINGS, access=plane)
    enforcing, other = Tenant.new(server), Tenant.new(server)
    plane.admin.patch("v1/namespaces", other.namespace, {"metadata": {"labels": {SCHEDULING: "off"}}})
    eventually(
        lambda: is_patched(server, enforcing.namespace) and not is_patched(server, other.namespace),
        what="the replica to know the labels",
    )

    restored(plane, server, (enforcing, other), plane.restart_apiserver if restarted else lambda: None)

    eventually(
        lambda: is_patched(server, enforcing.namespace) and not is_patched(server, other.namespace),
        what="the replica to enforce what etcd holds",
        timeout=NOTICED_SECONDS,
    )
    assert server.metric("kubevirt_webhook_etcd_restores_total") >= 1
    assert len(server.events(ServerEvent.ETCD_RESTORED)) == 1
