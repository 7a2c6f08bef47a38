"""Roll-outs and rotations of replicas that a real API server calls with failurePolicy Fail."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvloop

from bench.reliability.client import Felt, RetryingClients, request
from bench.reliability.outcome import ReliabilityOutcome
from tests.e2e.support.installed import LiveInstallation, SteadyReviews
from tests.e2e.support.plane import ControlPlane
from tests.e2e.support.tenant import Tenant

REQUESTS: Final = 20_000
ROTATIONS: Final = 3
# How long the balancer goes on dialling a replica that is ending, as kube-proxies do.
LAG: Final = 1.0


class DirectRoute(threading.Thread):
    """Clients of a loop of their own that call the replicas as the API server does, by the balancer."""

    def __init__(self, installed: LiveInstallation, tenant: Tenant) -> None:
        super().__init__()
        trust = ssl.create_default_context(cadata=b64decode(installed.secret()["data"]["ca.crt"]).decode())
        self._clients = RetryingClients(installed.balancer.port, trust, request(tenant.namespace), count=8, pause=0)
        self._end = threading.Event()
        self.felt = self._clients.felt

    def run(self) -> None:
        uvloop.run(self._run())

    def end(self) -> Felt:
        """What was felt, once the last answer is there."""
        self._end.set()
        self.join()
        return self.felt

    async def _run(self) -> None:
        async with self._clients.running():
            while not self._end.is_set():
                await asyncio.sleep(0.05)


def rollout(binaries: Path, scale: float) -> ReliabilityOutcome:
    """Both replicas are replaced again and again, until enough requests have been sent."""
    wanted = int(REQUESTS * scale)
    with _installed(binaries) as (installed, tenant), SteadyReviews(tenant, threads=1) as load:
        direct = DirectRoute(installed, tenant)
        direct.start()
        replaced = 0
        try:
            while replaced < 2 or direct.felt.count < wanted:
                old = installed.replicas[0]
                installed.start()
                old.terminate()
                time.sleep(LAG)
                installed.remove(old)
                if old.wait_ended() != 0:
                    direct.felt.failures["replica ended badly"] += 1
                replaced += 1
        finally:
            felt = direct.end()
    _refused(felt, load)
    attack = f"{replaced} replicas of 2 replaced, the forwarder dials each for {LAG:g} s after SIGTERM"
    return ReliabilityOutcome(
        "rollout", attack, felt, seen=f"of {load.done:,} VMs by the API server {len(load.failures)} refused"
    )


def rotation(binaries: Path, scale: float) -> ReliabilityOutcome:
    """CA and leaves change while a GitOps tool re-applies and re-orders, and a replica is killed in between."""
    rotations = max(1, int(ROTATIONS * scale))
    killed = 0
    with _installed(binaries) as (installed, tenant):
        load = SteadyReviews(tenant, threads=2)
        began = time.monotonic()
        with load:
            for number in range(rotations):
                ca = installed.secret()["data"]["ca.crt"]
                installed.rotate()
                _gitops(installed)
                if number:
                    victim = installed.replicas[0]
                    # Ended before it is killed: what it has accepted by then, no other replica can answer.
                    victim.terminate()
                    time.sleep(LAG)
                    installed.remove(victim)
                    time.sleep(LAG)
                    victim.kill()
                    killed += 1
                    installed.start()
                installed.wait_serving(ca)
        seconds = time.monotonic() - began
    felt = Felt(list(load.times))
    _refused(felt, load)
    attack = f"{rotations} rotations under re-ordering server-side applies, {killed} of them with a replica killed"
    return ReliabilityOutcome("rotation", attack, felt, seen=f"VMs by the API server, within {seconds:.0f} s")


ROLLOUTS: Final[dict[str, Callable[[Path, float], ReliabilityOutcome]]] = {"rollout": rollout, "rotation": rotation}


@contextmanager
def _installed(binaries: Path) -> Iterator[tuple[LiveInstallation, Tenant]]:
    with tempfile.TemporaryDirectory(prefix="bench-reliability-") as name:
        directory = Path(name)
        with (
            ControlPlane(directory / "plane", binaries) as plane,
            LiveInstallation(plane, directory, "--tls=managed") as installed,
        ):
            installed.apply()
            for _ in range(2):
                installed.start()
            yield installed, installed.tenant()


def _gitops(installed: LiveInstallation) -> None:
    for _ in range(5):
        manifests = installed.manifests()
        manifests[0]["webhooks"].reverse()
        installed.apply(manifests)
        installed.apply()


def _refused(felt: Felt, load: SteadyReviews) -> None:
    felt.failures.update(Counter(failure[:80] for failure in load.failures))
