"""Large objects in the cluster that the server watches and lists, made by any user; the API server is a fake one.

A real API server would have to hold and encode them too, and share the processor with what is measured.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import msgspec
import uvloop

from bench.reliability.client import PATIENCE, RetryingClients, Stream, answered, connect, head, request, unverified
from bench.reliability.outcome import ReliabilityOutcome
from bench.reliability.server import ReliabilityServer, serving
from tests.builders import VMI_UID, review, vm
from tests.cluster.fake_apiserver import FakeApiServer, running
from webhook import names
from webhook.k8s.resources import LEASES, NAMESPACES, NODES, PENDING_PODS
from webhook.kubevirt.resources import KUBEVIRTS, VMIS
from webhook.placement.machines import MIGRATIONS

SECONDS: Final = 10.0
# About as large as the annotations of an object may be together.
_FAT: Final = "x" * 250_000
_MIGRATE: Final = "/validate/migration/virtualmachineinstancemigrations/enforce"
_ASKING: Final = 50
_LEASE: Final = "kubevirt-scheduler"

Json = dict[str, Any]


class Scenario(NamedTuple):
    """What lies in the cluster, in words and in fact, and whether migrations are reviewed meanwhile."""

    attack: str
    prepare: Callable[[FakeApiServer, float], None]
    migrations: bool = False


def _gated(count: int) -> Callable[[FakeApiServer, float], None]:
    def prepare(cluster: FakeApiServer, scale: float) -> None:
        for number in range(int(count * scale) or 1):
            metadata = {"annotations": {"a": _FAT}}
            spec = {"schedulerName": "kubevirt", "resourceClaims": [{"name": "x", "resourceClaimName": "none"}]}
            cluster.put(
                PENDING_PODS, f"gated-{number}", "foreign", metadata=metadata, spec=spec, status={"phase": "Pending"}
            )

    return prepare


def _labelled(cluster: FakeApiServer, scale: float) -> None:
    for number in range(int(150 * scale) or 1):
        metadata = {"annotations": {"a": _FAT}, "labels": {"kubevirt.io/created-by": VMI_UID}}
        cluster.put(PENDING_PODS, f"fat-{number}", "demo", metadata=metadata, spec={"nodeName": "node-a"}, status={})


MEMORY: Final = {
    "gated": Scenario("200 gated pods with annotations of 250 kB name the scheduler", _gated(200)),
    "gated-many": Scenario("1,500 of them", _gated(1500)),
    "lists": Scenario("50 dry-run migrations at a time of a VM to whom 150 such pods belong", _labelled, True),
}


def run(name: str, scale: float) -> ReliabilityOutcome:
    """One of `MEMORY`, at a part of its size."""
    scenario = MEMORY[name]
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig, settings = Path(directory) / "kubeconfig", Path(directory) / "settings.yaml"
        settings.write_text(f"schedulers: {{kubevirt: {{healthCheck: lease {_LEASE}/{_LEASE}}}}}\n")
        with _cluster(scenario, scale, kubeconfig), serving(f"--kubeconfig={kubeconfig}", settings) as server:
            return uvloop.run(_attacked(name, scenario, server, scale))


async def _attacked(name: str, scenario: Scenario, server: ReliabilityServer, scale: float) -> ReliabilityOutcome:
    clients = RetryingClients(server.port, unverified(), request())
    statuses: Counter[str] = Counter()
    async with clients.running() as felt:
        end = time.monotonic() + SECONDS * scale
        while time.monotonic() < end:
            if scenario.migrations:
                await asyncio.gather(*(_migrate(server, statuses) for _ in range(_ASKING)))
            else:
                await asyncio.sleep(0.1)
    seen = "answers: " + ", ".join(f"{count:,} of {status}" for status, count in sorted(statuses.items()))
    return ReliabilityOutcome(name, scenario.attack, felt, server.peak, seen if statuses else "")


async def _migrate(server: ReliabilityServer, statuses: Counter[str]) -> None:
    asked: Json = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m", "namespace": "demo"},
        "spec": {"vmiName": "web01", "addedNodeSelector": {"zone": "a"}},
    }
    frame = review(vm(), dryRun=True)
    kind = {"group": "kubevirt.io", "version": "v1", "kind": asked["kind"]}
    frame["request"] |= {"kind": kind, "object": asked}
    body = msgspec.json.encode(frame)
    stream: Stream | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            stream = await connect(server.port, unverified())
            stream[1].write(head(len(body), f"{_MIGRATE}?timeout=3s") + body)
            statuses[str((await answered(stream))[0])] += 1
    except (OSError, EOFError, TimeoutError) as error:
        statuses[type(error).__name__] += 1
    finally:
        if stream:
            stream[1].transport.abort()


@contextmanager
def _cluster(scenario: Scenario, scale: float, kubeconfig: Path) -> Iterator[None]:
    """A fake API server in a thread of its own, with a VM, a scheduler that lives, and what the scenario brings."""
    cluster, ready, end = FakeApiServer(), Event(), Event()
    _furnish(cluster)
    scenario.prepare(cluster, scale)

    async def serve() -> None:
        async with running(cluster):
            cluster.kubeconfig(kubeconfig)
            ready.set()
            while not end.is_set():
                _renew(cluster)
                await asyncio.sleep(0.5)

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        ready.wait()
        yield
    finally:
        end.set()
        thread.join()


def _furnish(cluster: FakeApiServer) -> None:
    for resource in (NAMESPACES, KUBEVIRTS, NODES, PENDING_PODS, LEASES, VMIS, MIGRATIONS):
        cluster.serve(resource)
    labels = {names.policy_label(names.SCHEDULING): "enforce", names.policy_label(names.MIGRATION): "enforce"}
    cluster.put(NAMESPACES, "demo", metadata={"labels": labels})
    cluster.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={}, status={"phase": "Deployed"})
    for zone in "ab":
        metadata = {"labels": {"zone": zone, "kubernetes.io/hostname": f"node-{zone}"}}
        cluster.put(NODES, f"node-{zone}", metadata=metadata)
    cluster.put(VMIS, "web01", "demo", metadata={"uid": VMI_UID}, spec={}, status={"nodeName": "node-a"})


def _renew(cluster: FakeApiServer) -> None:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    cluster.put(LEASES, _LEASE, _LEASE, spec={"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": now})
