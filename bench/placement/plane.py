"""The control plane of the benchmark: one scheduler with all profiles, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.placement import profiles
from bench.placement.client import SchedulingClient
from tests.e2e.support.kube import Kube
from tests.e2e.support.pki import ADMIN, KUBE_SCHEDULER, KUBEVIRT_CONTROLLER
from tests.e2e.support.plane import KUBEVIRT_SCHEDULER_LEASE, ControlPlane, HeldLease

# The API server would taint each new node until its kubelet reports, and no kubelet is there.
_FLAGS: Final = ("--disable-admission-plugins=TaintNodesByCondition",)
# By default it sends fifty requests in a second, and all cases would be equally fast.
_REQUESTS_PER_SECOND: Final = 5000


class BenchPlane(ControlPlane):
    """A control plane whose scheduler's metrics can be read."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        super().__init__(directory, binaries, apiserver_flags=_FLAGS)
        self._scheduler_port = 0

    def start_profiles(self) -> None:
        """Start one scheduler with the stock profile, the shipped one and all candidates."""
        every = [{"schedulerName": profiles.STOCK}, profiles.shipped(), profiles.few(), *profiles.candidates()]
        connection = {
            "kubeconfig": str(self.kubeconfig_for(*KUBE_SCHEDULER)),
            "qps": _REQUESTS_PER_SECOND,
            "burst": _REQUESTS_PER_SECOND,
        }
        config = {"profiles": every, "clientConnection": connection}
        self.start_scheduler("all", config, lease=KUBEVIRT_SCHEDULER_LEASE)

    def client(self) -> SchedulingClient:
        """An administrator's connections."""
        return SchedulingClient(self.server, self.pki.ca, self.pki.client(*ADMIN))

    def controller_client(self) -> SchedulingClient:
        """The connections of KubeVirt's controller, whose pods the webhook looks at."""
        return SchedulingClient(self.server, self.pki.ca, self.pki.client(*KUBEVIRT_CONTROLLER))

    def scheduler_metrics(self) -> str:
        """The scheduler's metrics, as Prometheus reads them."""
        port = self._scheduler_port
        return Kube(f"https://localhost:{port}", self.pki.ca, self.pki.client(*ADMIN), ADMIN.user).text("/metrics")

    def _scheduler_command(self, name: str, config: Mapping[str, Any], lease: HeldLease | None, port: int) -> list[str]:
        self._scheduler_port = port
        return super()._scheduler_command(name, config, lease, port)
