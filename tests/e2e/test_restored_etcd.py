"""etcd is restored from an older copy under a running replica: the replica must return to the past, too."""

from __future__ import annotations

from tests.builders import review
from webhook.server.runtime.logs import ServerEvent

from .conftest import NewWebhook, OwnPlane
from .support.kube import Json, eventually
from .support.tenant import Tenant
from .support.webhook_server import SCHEDULING, WebhookServer
from .support.workloads import vm

SETTINGS = {"schedulers": {"kubevirt": {"healthCheck": "off"}}}
# More than other writers bring etcd in the time that a replica may take.
CHANGES = 300


def is_patched(server: WebhookServer, namespace: str) -> bool:
    """Whether the replica enforces in a namespace, as it answers itself: no API server decides what it is asked."""
    answer: Json = server.ask("/mutate/scheduling/virtualmachines/enforce", review(vm(), namespace=namespace))
    return "patch" in answer["response"]


def test_a_replica_follows_etcd_into_the_past(own_plane: OwnPlane, new_webhook: NewWebhook) -> None:
    """Whether the API server is restarted with its etcd, or left running."""
    plane = own_plane()
    server = new_webhook(SETTINGS, access=plane)
    first, second = (Tenant.new(server).namespace for _ in range(2))

    def label(enforcing: str, other: str) -> None:
        for name, mode in ((enforcing, "enforce"), (other, "off")):
            plane.admin.patch("v1/namespaces", name, {"metadata": {"labels": {SCHEDULING: mode}}})

    def follows(enforcing: str, other: str, what: str) -> None:
        eventually(lambda: is_patched(server, enforcing) and not is_patched(server, other), what=what)

    for restores, restart in enumerate((True, False), 1):
        label(first, second)
        follows(first, second, "the replica to know the labels")
        saved = plane.save_etcd()
        eventually(lambda: plane.admin.text("/readyz") == "ok", what="the API server to have its etcd again")
        # Namespaces that enforced and did not at the time of the copy are changed, and etcd is restored.
        label(second, first)
        for number in range(CHANGES):
            plane.admin.patch("v1/namespaces", "default", {"metadata": {"annotations": {"number": str(number)}}})
        follows(second, first, "the replica to know the newest labels")
        plane.restore_etcd(saved)
        if restart:
            plane.restart_apiserver()

        follows(first, second, "the replica to enforce what etcd holds")
        assert server.metric("kubevirt_webhook_etcd_restores_total") >= restores
        assert len(server.events(ServerEvent.ETCD_RESTORED)) == restores
