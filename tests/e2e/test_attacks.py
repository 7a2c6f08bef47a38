"""A cluster in trouble: other clients overload the API server, or etcd is gone in the wrong moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import review

from .conftest import NewWebhook, OwnPlane
from .support.access import Access
from .support.balancer import Balancer
from .support.installed import LiveInstallation
from .support.kube import KubeError, denial, eventually
from .support.pki import service_account
from .support.processes import ROOT
from .support.repeated import Repeated
from .support.tenant import Tenant
from .support.workloads import scheduler_of, vm

FLOW_CONTROL = ROOT / "manifests" / "base" / "flowcontrol.yaml"
SETTINGS = {"schedulers": {"kubevirt": {"healthCheck": "off"}}}
# So many launcher pods at once as when a node is drained; more than this API server has seats for.
BURST = 30
SEATS = ("--max-requests-inflight=12", "--max-mutating-requests-inflight=8")


@pytest.fixture
def installed(own_plane: OwnPlane, tmp_path: Path) -> Iterator[LiveInstallation]:
    with ExitStack() as ends:
        balancer = ends.enter_context(Balancer())
        yield ends.enter_context(LiveInstallation(own_plane(), tmp_path, balancer, "--tls=managed"))


def test_etcd_goes_in_the_middle_of_a_rotation_and_comes_back(installed: LiveInstallation) -> None:
    plane: Any = installed.access
    installed.apply()
    replica = installed.start()
    tenant = installed.tenant()
    ca = installed.secret()["data"]["ca.crt"]
    installed.rotate()
    eventually(lambda: "next.crt" in installed.secret()["data"], what="the rotation to begin")

    plane.stop_etcd()
    asked = review(vm(), namespace=tenant.namespace)
    eventually(
        lambda: replica.metric("kubevirt_webhook_certificate_failures_total") > 0, what="the rotation to be stopped"
    )
    assert replica.ops("/readyz") == (200, "ok\n")
    assert "patch" in replica.ask("/mutate/scheduling/virtualmachines/enforce", asked)["response"]
    assert len(replica.events("serving certificate issued")) == 1, "the certificate in service stays"
    plane.start_etcd()

    eventually(lambda: tenant.choice() == "kubevirt", what="VMs to be admitted again")
    installed.wait_serving(ca)
    assert tenant.choice() == "kubevirt"
    assert "Traceback" not in replica.log.read_text()


def test_launcher_pods_that_fill_their_priority_level_still_get_their_scheduler(
    own_plane: OwnPlane, new_webhook: NewWebhook, record_property: Callable[[str, object], None]
) -> None:
    """Each pod holds a seat of workload-low while the webhook reads its VMI; by default that read waits for a seat."""
    plane = own_plane(apiserver_flags=SEATS)
    tenant = Tenant.new(new_webhook(SETTINGS, access=plane))
    assert tenant.choice() == "kubevirt"
    record_property("chosen without our FlowSchema", str(burst(tenant, "before")))

    for document in yaml.safe_load_all(FLOW_CONTROL.read_text()):
        plane.admin.apply(document)
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
        """Ask once."""
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
