"""`make lab`: a control plane to try things on, as a KubeVirt cluster looks to the webhook server.

A real API server with KubeVirt's kinds, four nodes, and the two schedulers that production has: `default-scheduler`,
and one whose only profile is `kubevirt`. It runs in the foreground, and nothing of it is left after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.commands import (
    DEFAULT_SCHEDULER,
    DEFAULT_SCHEDULER_LEASE,
    KUBEVIRT_SCHEDULER,
    KUBEVIRT_SCHEDULER_LEASE,
)
from tests.e2e.objects import make_node
from tests.e2e.pki import ADMIN
from tests.e2e.plane import ControlPlane
from tests.e2e.processes import StartError
from tests.e2e.webhook_server import SCHEDULING, install
from tests.e2e.workloads import vm

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "demo"

WHAT_NEXT = """
A control plane of Kubernetes {version} with KubeVirt's kinds runs until Ctrl-C.
Namespace {namespace} is labelled {label}=enforce.

In a second terminal, the webhook server, which registers itself at the API server:

  {python} -m webhook serve --kubeconfig {kubeconfig} \\
    --listen 127.0.0.1:8443 --ops-listen 127.0.0.1:8080 --url https://localhost:8443 --register

In a third one:

  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}
  kubectl apply -n {namespace} -f {manifest}
  kubectl get -n {namespace} vm web -o yaml       # schedulerName: kubevirt, and our mark
  kubectl delete -n {namespace} vm web
  kubectl label ns {namespace} --overwrite {label}=warn
  kubectl apply -n {namespace} -f {manifest}      # a warning instead
  curl http://127.0.0.1:8080/metrics
"""


def main() -> int:
    """Run the lab until a signal ends it; returns the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    binaries = _binaries()
    if binaries is None:
        return 1
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kubevirt-webhook-lab-") as directory,
            _lab(Path(directory), binaries) as said,
        ):
            print(said, flush=True)
            signal.pause()
    except StartError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nlab: all gone")
    return 0


def _binaries() -> Path | None:
    """The directory of the control plane's binaries, built where they are missing; None: it can't be, and is said."""
    built = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "controlplane" / "build.py")],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Path(built.stdout.split("\n")[-2]) if built.returncode == 0 else None


@contextlib.contextmanager
def _lab(directory: Path, binaries: Path) -> Iterator[str]:
    """The plane, and what to tell about it."""
    with ControlPlane(directory / "plane", binaries, controller_manager=True) as plane:
        for node in ("node-a", "node-b", "node-c", "node-d"):
            make_node(plane.admin, node)
        plane.start_scheduler("default", DEFAULT_SCHEDULER, lease=DEFAULT_SCHEDULER_LEASE)
        plane.start_scheduler("kubevirt", KUBEVIRT_SCHEDULER, lease=KUBEVIRT_SCHEDULER_LEASE)
        install(plane.admin)
        plane.admin.create("v1/namespaces", _namespace())
        manifest = directory / "vm.json"
        manifest.write_text(json.dumps(vm(), indent=2))
        yield WHAT_NEXT.format(
            version=plane.admin.request("GET", "/version")["gitVersion"],
            namespace=NAMESPACE,
            label=SCHEDULING,
            python=sys.executable,
            kubeconfig=plane.kubeconfig_for(*ADMIN),
            kubectl=binaries / "kubectl",
            manifest=manifest,
        )


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {SCHEDULING: "enforce"}}}


if __name__ == "__main__":
    sys.exit(main())
