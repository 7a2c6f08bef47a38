"""A cluster in trouble: the server, the API server and etcd come and go, and other clients overload them."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders import review
from webhook.k8s.client.reflector import CURRENT_SECONDS

from .conftest import NewTenant, NewWebhook, OwnPlane
from .support import manifests
from .support.access import Access
from .support.failing_proxy import FailingProxy
from .support.kube import Json, KubeError, denial, eventually
from .support.pki import service_account
from .support.repeated import Repeated
from .support.sizes import LARGE, SMALL, offer
from .support.tenant import Tenant
from .support.webhook_server import ACCOUNT, INSTANCETYPES, SCHEDULING, WebhookServer, install
from .support.workloads import scheduler_of, vm

SETTINGS = {"schedulers": {"kubevirt": {"healthCheck": "off"}}}
# So many launcher pods at once as when a node is drained; more than this API server has seats for.
BURST = 30
SEATS = ("--max-requests-inflight=12", "--max-mutating-requests-inflight=8")


@pytest.mark.control("slow-lookups")
def test_launcher_pods_that_fill_their_priority_level_still_get_their_scheduler(
    own_plane: OwnPlane, new_webhook: NewWebhook, record_property: Callable[[str, object], None]
) -> None:
    """Each pod holds a seat of workload-low while the webhook reads its VMI; by default that read waits for a seat."""
    plane = own_plane(apiserver_flags=SEATS)
    tenant = Tenant.new(new_webhook(SETTINGS, access=plane))
    assert tenant.choice() == "kubevirt"
    record_property("chosen without our FlowSchema", str(burst(tenant, "before")))

    manifests.apply(plane.admin, "base/flowcontrol.yaml")
    levels = "/debug/api_priority_and_fairness/dump_priority_levels"
    eventually(lambda: "kubevirt-webhook" in plane.admin.text(levels), what="the API server to know our level")

    chosen = burst(tenant, "after")
    record_property("chosen with our FlowSchema", str(chosen))
    assert chosen == {"kubevirt": BURST}


class Flood(Repeated):
    """An account of the lowest priority asks without a pause."""

    def __init__(self, plane: Access) -> None:
        super().__init__(threads=4)
        self._kube = plane.kube(*service_account("flood", "flood"))

    def step(self) -> None:
        denial(lambda: self._kube.list("v1/secrets"))


def burst(tenant: Tenant, name: str) -> Counter[str]:
    """The scheduler of launcher pods that are all made at once; ``refused``: by the API server, which has no seat."""
    vmis = [tenant.start(vm(f"{name}-{number}")) for number in range(BURST)]

    def launch(vmi: Any) -> str:
        try:
            return str(scheduler_of(tenant.launch(vmi)))
        except KubeError as error:
            return f"refused: {error.status}"

    with Flood(tenant.server.access), ThreadPoolExecutor(BURST) as threads:
        return Counter(threads.map(launch, vmis))


# More than other writers bring etcd in the time that a replica may take.
CHANGES = 300


def is_patched(server: WebhookServer, namespace: str) -> bool:
    """Whether the replica enforces in a namespace, as it answers itself: no API server decides what it is asked."""
    answer: Json = server.ask("/mutate/scheduling/virtualmachines/enforce", review(vm(), namespace=namespace))
    return "patch" in answer["response"]


def test_a_replica_follows_etcd_into_the_past(own_plane: OwnPlane, new_webhook: NewWebhook) -> None:
    """While the API server is left running, with a watch of the lost future."""
    plane = own_plane()
    server = new_webhook(SETTINGS, access=plane)
    first, second = (Tenant.new(server).namespace for _ in range(2))

    def label(enforcing: str, other: str) -> None:
        for name, mode in ((enforcing, "enforce"), (other, "off")):
            plane.admin.patch("v1/namespaces", name, {"metadata": {"labels": {SCHEDULING: mode}}})

    def follows(enforcing: str, other: str, what: str) -> None:
        eventually(lambda: is_patched(server, enforcing) and not is_patched(server, other), what=what)

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

    follows(first, second, "the replica to enforce what etcd holds")
    # An API server that runs on may bring the former labels by its watch before any answer is behind the last one.
    restores = "kubevirt_webhook_etcd_restores_total"
    eventually(lambda: server.metric(restores) >= 1, what="the restore to be counted")
    assert len(server.events("etcd restored from an older copy; reading everything again")) == 1
    # Its own copies are still of the future that etcd has lost: it would show what the server takes back at its end.
    plane.restart_apiserver()


# More than are in one page of a list.
NAMESPACES = 150


def test_lists_that_fail_on_their_second_page_let_nothing_old_decide_for_long(
    own_plane: OwnPlane, tmp_path: Path
) -> None:
    """Their first page comes each time. Beyond 150 seconds each review reads its namespace by GET."""
    plane = own_plane()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: plane.admin.make_namespace("many-"), range(NAMESPACES)))
    install(plane.admin)
    with FailingProxy(plane, ACCOUNT) as proxy, WebhookServer(proxy, tmp_path, "behind-a-proxy", SETTINGS) as server:
        assert server.validates
        tenant = offer(Tenant.new(server, policies=[INSTANCETYPES]), "small", "large")

        def is_allowed(instancetype: Json) -> bool:
            return denial(lambda: tenant.create(vm(instancetype=instancetype), dryRun="All")) is None

        def allow(name: str) -> None:
            tenant.annotate(allowed_instancetypes=f"VirtualMachineInstancetype/{name}")

        def age() -> float:
            return server.metric("kubevirt_webhook_staleness_seconds", watch="namespaces")

        allow("small")
        eventually(lambda: is_allowed(SMALL) and not is_allowed(LARGE), what="the list to count", timeout=30)

        proxy.fail_lists()
        eventually(lambda: proxy.failed_pages, what="a page to fail")
        allow("large")
        changed = time.monotonic()
        eventually(lambda: not is_allowed(SMALL), what="the new list to count")
        assert time.monotonic() - changed < CURRENT_SECONDS + 30
        assert is_allowed(LARGE)
        # The gauge says why: the store does not count. Reviews are answered, so the replica is ready.
        assert age() >= CURRENT_SECONDS
        assert server.ops("/readyz") == (200, "ok\n")

        proxy.heal()
        eventually(lambda: age() < CURRENT_SECONDS, what="the store to be up to date again", timeout=60)
        allow("small")
        eventually(lambda: is_allowed(SMALL) and not is_allowed(LARGE), what="the list to count", timeout=30)


BY_PODS = {"schedulers": {"kubevirt": {"healthCheck": "pods"}}}
NewServer = Callable[[Access, str], WebhookServer]


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[NewServer]:
    """Makes servers that the test starts and ends itself."""
    with ExitStack() as ends:

        def make(access: Access, name: str) -> WebhookServer:
            server = WebhookServer(access, tmp_path, name, BY_PODS)
            ends.callback(server.kill)
            return server

        yield make


def test_a_killed_server_costs_nobody_anything_and_its_configurations_are_never_overwritten(
    plane: Access, new_server: NewServer, new_tenant: NewTenant
) -> None:
    """One that ends by SIGTERM takes them back, which `WebhookServer.stop` asserts of every server."""
    install(plane.admin)
    name = f"killed-{secrets.token_hex(4)}"
    killed, next_one = new_server(plane, name), new_server(plane, name)
    killed.start()
    killed.wait_called()
    left = killed.configurations()
    assert len(left) == 3
    tenant = new_tenant(server=killed)
    assert tenant.choice() == "kubevirt"

    killed.kill()
    assert tenant.choice() is None

    next_one.start()
    assert next_one.wait_ended() == 2
    said = f"Error: MutatingWebhookConfiguration kubevirt-webhook-{name}: already exists; "
    assert next_one.log.read_text().splitlines()[-1].startswith(said)
    assert next_one.configurations() == left
    killed.discard()


def test_an_api_server_that_restarts_and_a_server_that_starts_before_it(
    own_plane: OwnPlane, new_webhook: NewWebhook, new_server: NewServer
) -> None:
    plane = own_plane()
    server, early = new_webhook(BY_PODS, access=plane), new_server(plane, "early")
    before = Tenant.new(server)
    assert before.choice() == "kubevirt"

    plane.stop_apiserver()
    assert server.ops("/readyz") == (200, "ok\n")
    assert is_patched(server, before.namespace)
    early.start()
    eventually(lambda: "no connection" in early.ops("/readyz")[1], what="the server to miss the API server")
    status, text = early.ops("/readyz")
    assert (status, text.startswith("waiting for namespaces: no connection ")) == (503, True)
    assert early.ops("/healthz") == (200, "ok\n")

    plane.start_apiserver()
    restarted = time.monotonic()
    eventually(lambda: before.choice() == "kubevirt", what="namespaces of before to be evaluated")
    staleness = partial(server.metric, "kubevirt_webhook_staleness_seconds", watch="namespaces")
    eventually(lambda: staleness() < time.monotonic() - restarted, what="the watch to be up to date again")
    early.wait_called()
    assert early.ops("/readyz") == (200, "ok\n")
    # Of its configurations, the one for VMs may reach the API server a moment later than that for pods.
    tenants = [Tenant.new(each) for each in (server, early)]
    eventually(lambda: {each.choice() for each in tenants} == {"kubevirt"}, what="new namespaces to be evaluated")
    early.stop()
