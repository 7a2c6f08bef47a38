"""Fixtures of the tests beside a real KubeVirt: one for all of them, as its build and its start take their time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from hack.controlplane.build import cache_root, location
from hack.controlplane.bundles import DESCHEDULER as DESCHEDULER_BUNDLE
from hack.controlplane.bundles import kubevirt_releases
from tests.e2e.support.audited import AuditLog
from tests.e2e.support.descheduler import ACCOUNT as DESCHEDULER
from tests.e2e.support.kube import KubeError, eventually
from tests.e2e.support.pki import Pki
from tests.e2e.support.plane import ControlPlane
from tests.e2e.support.webhook_server import ACCOUNT, DOMAIN, WebhookServer, install
from tests.e2e.support.workloads import PODS, VMIS, VMS

from .control_plane import RunningKubeVirt, aggregation
from .fleets import BUDGETS, CLAIMS, QUOTAS, VOLUMES
from .place import DEFAULTS, POLICIES, Place, make_place

SETTINGS: Mapping[str, Any] = {
    "schedulers": {
        "kubevirt": {"healthCheck": "lease kubevirt-scheduler/kubevirt-scheduler"},
        "ours-alone": {"healthCheck": "off", "onlyByWebhook": True},
    }
}
# A VM that is resized or moved while it runs, and is restored or cloned: until 1.8 snapshots have to be switched on.
CONFIGURATION = {
    "vmRolloutStrategy": "LiveUpdate",
    "evictionStrategy": "LiveMigrate",
    "developerConfiguration": {"featureGates": ["Snapshot"]},
}


# Makes a namespace in which every policy enforces, with annotations of its own.
NewPlace: TypeAlias = Callable[[Mapping[str, str]], Place]


@pytest.fixture(scope="session")
def kubevirt_binaries(binaries: Path) -> Path:
    """The directory of KubeVirt's binaries; to build them takes minutes, so it is not done in passing."""
    del binaries  # needed beside them
    releases = kubevirt_releases()
    directory = location(os.environ, bundle=releases[os.environ.get("KUBEVIRT") or next(iter(releases))])
    if not directory.is_dir():
        pytest.skip("KubeVirt isn't built; run make kubevirt")
    return directory


@pytest.fixture(scope="session")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    """The requests that the webhook and a descheduler send to the API server."""
    return AuditLog(tmp_path_factory.mktemp("audit"), ACCOUNT.user, DESCHEDULER.user)


@pytest.fixture(scope="session")
def real(
    binaries: Path, kubevirt_binaries: Path, audit_log: AuditLog, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningKubeVirt]:
    """A KubeVirt for all tests of this module, on nodes that are played."""
    directory = tmp_path_factory.mktemp("kubevirt")
    front = Pki(directory / "front")
    flags = [*aggregation(front), *audit_log.flags]
    plane = ControlPlane(directory / "plane", binaries, definitions=(), apiserver_flags=flags)
    with plane:
        # Pods are deleted by the account of the controller that enforces taints.
        plane.start_controller_manager(accounts=True)
        with RunningKubeVirt(plane, kubevirt_binaries, CONFIGURATION) as kubevirt:
            plane.start_schedulers()
            yield kubevirt
            assert kubevirt.nodes.mistakes == []


@pytest.fixture(scope="session")
def server(real: RunningKubeVirt, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    install(real.plane.admin)
    with WebhookServer(real.plane, tmp_path_factory.mktemp("webhook"), "beside", SETTINGS) as server:
        server.insist()
        assert server.validates
        yield server


@pytest.fixture(autouse=True)
def emptied(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test's VMs keep room on the nodes from those of the next ones."""
    yield
    if "real" in request.fixturenames:
        request.getfixturevalue("real").empty()


@pytest.fixture
def new_place(real: RunningKubeVirt, server: WebhookServer) -> NewPlace:
    def make(annotations: Mapping[str, str]) -> Place:
        return make_place(real, server.labels("enforce", [f"{DOMAIN}/{policy}" for policy in POLICIES]), annotations)

    return make


@pytest.fixture
def place(new_place: NewPlace) -> Place:
    """A namespace in which every policy enforces, with defaults."""
    return new_place(DEFAULTS)


@pytest.fixture
def apart(real: RunningKubeVirt) -> Place:
    """A namespace that the webhook skips: it shows what KubeVirt does by itself."""
    return make_place(real, {}, {})


@pytest.fixture
def fleet_place(real: RunningKubeVirt, apart: Place) -> Iterator[Place]:
    """A namespace that the webhook skips, whose objects leave nothing behind."""
    eventually(real.is_empty, what="the VMs of other tests to end")
    yield apart
    for resource in (QUOTAS, BUDGETS, VMS, VMIS, PODS, CLAIMS):
        with suppress(KubeError):
            apart.admin.delete_all(resource, apart.namespace)
    for volume in apart.admin.list(VOLUMES):
        apart.admin.delete(VOLUMES, volume["metadata"]["name"])
    real.configure(migrations=None)
    eventually(real.is_empty, what="the fleet to end")


@pytest.fixture(scope="session")
def descheduler() -> Path:
    """The binary of the upstream descheduler."""
    found = location({}, cache_root(os.environ), DESCHEDULER_BUNDLE) / "descheduler"
    if not found.exists():
        pytest.skip("the descheduler isn't built; run make kubevirt")
    return found
