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
from tests.e2e.pki import ADMIN, KUBEVIRT_CONTROLLER
from tests.e2e.plane import ControlPlane
from tests.e2e.processes import StartError
from tests.e2e.webhook_server import SCHEDULING, install
from tests.e2e.workloads import VMIS, launcher_of, vm, vmi_of

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
  cd {files}

  kubectl apply -n {namespace} -f vm.json             # a virtual machine
  kubectl get -n {namespace} vm web -o yaml           # schedulerName: kubevirt, and our mark

  # What KubeVirt's controller does for a virtual machine that is older than the webhook, and where it goes:
  kubectl create -n {namespace} -f launcher.json --as={controller}
  kubectl get -n {namespace} pods -o custom-columns=POD:metadata.name,BY:spec.schedulerName,NODE:spec.nodeName

  kubectl delete -n {namespace} vm web
  kubectl label ns {namespace} --overwrite {label}=warn
  kubectl apply -n {namespace} -f vm.json             # warnings, and nothing else
  curl http://127.0.0.1:8080/metrics
"""


def main() -> int:
    """Run the lab until a signal ends it; returns the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
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
    return Path(built.stdout.splitlines()[-1]) if built.returncode == 0 else None


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
        _write_manifests(plane, directory)
        yield WHAT_NEXT.format(
            version=plane.admin.request("GET", "/version")["gitVersion"],
            namespace=NAMESPACE,
            label=SCHEDULING,
            python=sys.executable,
            kubeconfig=plane.kubeconfig_for(*ADMIN),
            kubectl=binaries / "kubectl",
            controller=KUBEVIRT_CONTROLLER.user,
            files=directory,
        )


def _write_manifests(plane: ControlPlane, directory: Path) -> None:
    """What there is to send: a VM, and the pod of one that is there already."""
    vmi = plane.kubevirt_controller.create(VMIS, vmi_of(vm("older")), NAMESPACE)
    for name, manifest in (("vm", vm()), ("launcher", launcher_of(vmi))):
        (directory / f"{name}.json").write_text(json.dumps(manifest, indent=2))


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {SCHEDULING: "enforce"}}}


if __name__ == "__main__":
    sys.exit(main())
