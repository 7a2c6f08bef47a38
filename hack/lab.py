"""`make lab`: a control plane to try things on, as a KubeVirt cluster looks to the webhook server.

A real API server with KubeVirt's kinds, four nodes, and the two schedulers that production has: `default-scheduler`,
and one whose only profile is `kubevirt`. `make kubevirt-lab` (``--kubevirt``) has a real KubeVirt too, on nodes that
are played: VMs start, stop and migrate. It runs in the foreground, and nothing of it is left after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.kubevirt.control_plane import RunningKubeVirt, aggregation
from tests.e2e.support.migrations import migration
from tests.e2e.support.objects import make_node
from tests.e2e.support.pki import ADMIN, KUBEVIRT_CONTROLLER, Pki
from tests.e2e.support.plane import ControlPlane
from tests.e2e.support.processes import StartError
from tests.e2e.support.webhook_server import DOMAIN, SCHEDULING, install
from tests.e2e.support.workloads import VMIS, launcher_of, vm, vmi_of
from webhook.policies.registry import BY_NAME

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "demo"

BEGINNING = """
A control plane of Kubernetes {version} with {kinds} runs until Ctrl-C.
{labelled}

In a second terminal, the webhook server, which registers itself at the API server:

  {python} -m webhook serve --kubeconfig {kubeconfig} \\
    --listen 127.0.0.1:8443 --ops-listen 127.0.0.1:8080 --admin-listen 127.0.0.1:8090 \\
    --url https://localhost:8443 --register

In a third one:

  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}
  cd {files}
"""

WITH_KINDS = """
  kubectl apply -n {namespace} -f vm.json             # a virtual machine
  kubectl get -n {namespace} vm web -o yaml           # schedulerName: kubevirt, and the annotation

  # What KubeVirt's controller does for a virtual machine that is older than the webhook, and where it goes:
  kubectl create -n {namespace} -f launcher.json --as={controller}
  kubectl get -n {namespace} pods -o custom-columns=POD:metadata.name,BY:spec.schedulerName,NODE:spec.nodeName

  kubectl delete -n {namespace} vm web
  kubectl label ns {namespace} --overwrite {label}=warn
  kubectl apply -n {namespace} -f vm.json             # warnings, and nothing else
  curl http://127.0.0.1:8080/metrics
"""

WITH_KUBEVIRT = """
  kubectl apply -n {namespace} -f vm.json             # a VM that names no size
  kubectl get -n {namespace} vm,vmi,pods -o wide      # it runs, sized by the namespace's default
  kubectl create -n {namespace} -f migration.json     # to the other zone: refused, and why
  {python} -m webhook explain migration {namespace}/web --to zone=b
  kubectl get -n {namespace} vm web -o json |
    {python} -m webhook expand -f - --kubeconfig {kubeconfig} --explain   # who set what

  kubectl apply -f vm.json                   # the same VM without kubevirt-webhook: KubeVirt alone
  kubectl get vm web -o jsonpath='{{.status.conditions}}'
  curl http://127.0.0.1:8080/metrics
"""


def main() -> int:
    """Run the lab until a signal ends it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hack.lab", description="Run a cluster to try things on.")
    parser.add_argument("--kubevirt", action="store_true", help="with a real KubeVirt")
    with_kubevirt = parser.parse_args().kubevirt
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    binaries = _binaries()
    kubevirt = _binaries("--kubevirt") if binaries and with_kubevirt else None
    if binaries is None or (with_kubevirt and kubevirt is None):
        return 1
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kubevirt-webhook-lab-") as name,
            _kubevirt_lab(Path(name), binaries, kubevirt) if kubevirt else _lab(Path(name), binaries) as said,
        ):
            print(said, flush=True)
            signal.pause()
    except StartError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nlab: all gone")
    return 0


def _binaries(*which: str) -> Path | None:
    """The directory of a control plane's binaries, built where they are missing; None: it can't be, and is said."""
    built = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "controlplane" / "build.py"), *which],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Path(built.stdout.splitlines()[-1]) if built.returncode == 0 else None


@contextlib.contextmanager
def _lab(directory: Path, binaries: Path) -> Iterator[str]:
    """The plane, and the text to print about it."""
    _say("starting etcd and the API server")
    with ControlPlane(directory / "plane", binaries, controller_manager=True) as plane:
        _say("starting two schedulers")
        for node in ("node-a", "node-b", "node-c", "node-d"):
            make_node(plane.admin, node)
        _start_schedulers(plane)
        install(plane.admin)
        plane.admin.create("v1/namespaces", _namespace({SCHEDULING: "enforce"}, {}))
        _write_manifests(plane, directory)
        yield _said(
            plane, directory, "KubeVirt's kinds", f"Namespace {NAMESPACE} is labelled {SCHEDULING}=enforce.", WITH_KINDS
        )


@contextlib.contextmanager
def _kubevirt_lab(directory: Path, binaries: Path, kubevirt: Path) -> Iterator[str]:
    """The plane with a KubeVirt that works, and the text to print about it."""
    front = Pki(directory / "front")
    plane = ControlPlane(
        directory / "plane", binaries, controller_manager=True, definitions=(), apiserver_flags=aggregation(front)
    )
    _say("starting etcd, the API server and KubeVirt, which takes up to a minute")
    with (
        plane,
        RunningKubeVirt(plane, kubevirt, {"vmRolloutStrategy": "LiveUpdate", "evictionStrategy": "LiveMigrate"}),
    ):
        _say("starting two schedulers")
        _start_schedulers(plane)
        install(plane.admin)
        policies = {f"{DOMAIN}/{policy}": "enforce" for policy in BY_NAME}
        defaults = {f"{DOMAIN}/default-instancetype": "u1.small", f"{DOMAIN}/default-preference": "fedora"}
        plane.admin.create("v1/namespaces", _namespace(policies, defaults))
        zoned = vm()
        zoned["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
        (directory / "vm.json").write_text(json.dumps(zoned, indent=2))
        (directory / "migration.json").write_text(json.dumps(migration("web", {"zone": "b"}), indent=2))
        yield _said(
            plane,
            directory,
            "KubeVirt 1.9",
            f"Namespace {NAMESPACE} is labelled for all policies and has defaults.",
            WITH_KUBEVIRT,
        )


def _say(step: str) -> None:
    print(f"lab: {step}", file=sys.stderr, flush=True)


def _start_schedulers(plane: ControlPlane) -> None:
    plane.start_schedulers()


def _said(plane: ControlPlane, files: Path, kinds: str, labelled: str, then: str) -> str:
    return (BEGINNING + then).format(
        version=plane.admin.request("GET", "/version")["gitVersion"],
        kinds=kinds,
        labelled=labelled,
        namespace=NAMESPACE,
        label=SCHEDULING,
        python=sys.executable,
        kubeconfig=plane.kubeconfig_for(*ADMIN),
        kubectl=plane.binaries / "kubectl",
        controller=KUBEVIRT_CONTROLLER.user,
        files=files,
    )


def _write_manifests(plane: ControlPlane, directory: Path) -> None:
    """What there is to send: a VM, and the pod of one that is there already."""
    vmi = plane.kubevirt_controller.create(VMIS, vmi_of(vm("older")), NAMESPACE)
    for name, manifest in (("vm", vm()), ("launcher", launcher_of(vmi))):
        (directory / f"{name}.json").write_text(json.dumps(manifest, indent=2))


def _namespace(labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": NAMESPACE, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


if __name__ == "__main__":
    sys.exit(main())
