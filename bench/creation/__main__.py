"""Command line of the benchmark: ``python -m bench.creation``.

Starts a control plane with a real KubeVirt and this server, creates VMs that get defaults, and prints what the API
server says of each webhook entry, those of kubevirt-webhook and of virt-api, and what the server's account requested
meanwhile. Once with a pause before each VM, as on a quiet cluster, and once without, when KubeVirt's controllers
compete for the processor.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from bench.creation.cost import create
from bench.options import at_least
from hack.controlplane import build, bundles
from tests.e2e.kubevirt.conftest import CONFIGURATION, SETTINGS
from tests.e2e.kubevirt.control_plane import RunningKubeVirt, aggregation
from tests.e2e.kubevirt.place import DEFAULTS, POLICIES, make_place
from tests.e2e.support.audited import AuditLog
from tests.e2e.support.kube import KubeError
from tests.e2e.support.pki import Pki
from tests.e2e.support.plane import ControlPlane
from tests.e2e.support.processes import StartError
from tests.e2e.support.webhook_server import ACCOUNT, DOMAIN, WebhookServer, install


def main() -> int:
    """Measure and report; the exit code is 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.creation", description=__doc__.splitlines()[2])
    parser.add_argument("--vms", type=at_least(1), default=300, help="VMs that are measured (300)")
    parser.add_argument("--warm-up", type=at_least(0), default=50, help="VMs before those (50)")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds before each VM of the first run (0.3)")
    options = parser.parse_args()
    try:
        _measure(options.vms, options.warm_up, options.pause)
    except (build.UnavailableError, bundles.BuildError, StartError, KubeError, OSError, AssertionError) as error:
        print(f"bench.creation: {error}", file=sys.stderr)
        return 1
    return 0


def _measure(vms: int, warm_up: int, pause: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        binaries, kubevirt_binaries = build.ensure(os.environ), build.ensure(os.environ, bundle=bundles.KUBEVIRT)
        log, front = AuditLog(directory, ACCOUNT.user), Pki(directory / "front")
        plane = ControlPlane(
            directory / "plane",
            binaries,
            controller_manager=True,
            definitions=(),
            apiserver_flags=[*aggregation(front), *log.flags],
        )
        with plane, RunningKubeVirt(plane, kubevirt_binaries, CONFIGURATION) as kubevirt:
            install(plane.admin)
            settings = {**SETTINGS, "schedulers": {"kubevirt": {"healthCheck": "off"}}}
            with WebhookServer(plane, directory, "measured", settings) as server:
                assert server.validates
                labels = server.labels("enforce", [f"{DOMAIN}/{policy}" for policy in POLICIES])
                place = make_place(kubevirt, labels, DEFAULTS)
                create(place, log, warm_up, "warm-up")
                for run, before_each in (("paced", pause), ("at-once", 0.0)):
                    print(f"\n{run}: {before_each} s before each VM, load average {os.getloadavg()[0]:.1f}")
                    print(*create(place, log, vms, run, before_each).lines(), sep="\n")
                print(f"load average after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    sys.exit(main())
