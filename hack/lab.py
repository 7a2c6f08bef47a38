"""`make lab`: a control plane to try things on, as a KubeVirt cluster looks to the webhook server.

A real API server with KubeVirt's kinds, four nodes without kubelets, and the two schedulers that production has:
`default-scheduler`, and `kubevirt` with the shipped profile. `make kubevirt-lab` (``--kubevirt``) has a real KubeVirt
too, on nodes that are played: VMs start, stop and migrate. It runs in the foreground, and nothing of it is left after
Ctrl-C.

Since no kubelet starts containers, the lab does so for an installation of kubevirt-webhook alone: as long as there is
its Deployment, one server of this checkout runs on this machine with the installed settings, as the installed account,
and the API server calls it as the Service's endpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.kubevirt.control_plane import RunningKubeVirt, aggregation
from tests.e2e.support.kube import KubeError, KubeObject
from tests.e2e.support.machine import address_of_this_machine
from tests.e2e.support.migrations import migration
from tests.e2e.support.objects import make_node, obj
from tests.e2e.support.pki import ADMIN, KUBEVIRT_CONTROLLER, Pki
from tests.e2e.support.plane import KUBEVIRT_SCHEDULER_LEASE, ControlPlane
from tests.e2e.support.processes import LOOPBACK, TETHER, StartError, free_port
from tests.e2e.support.repeated import Repeated
from tests.e2e.support.webhook_server import ACCOUNT, DOMAIN, SCHEDULING, fetch
from tests.e2e.support.workloads import VMIS, launcher_of, vm, vmi_of
from webhook.policies.registry import BY_NAME

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "demo"
DEPLOYMENTS: Final = "apps/v1/deployments"
# The API server calls the endpoints of a Service itself: no kube-proxy is between.
ROUTING: Final = ("--enable-aggregator-routing=true",)

CONTEXT: Final = "kubevirt-webhook-lab"
# The Deployment, its Service and the ConfigMap of its settings have one name, which is that of their namespace too.
INSTALLED: Final = "kubevirt-webhook"

BEGINNING = """
A lab: Kubernetes {version} with {kinds}, until Ctrl-C, which deletes its directory with what
you have put there. It has no kubelet: pods are created and get a node, and no container runs. {labelled}
CONTRIBUTING.md says what cannot be tried here.

In a second terminal:

  export KUBECONFIG={kubeconfig} # context {context}
  export PATH={path}:$PATH
  cd {files}

  kubevirt-webhook install --image lab                # this checkout's server runs beside the API server
  tail -f server.log                                  # its log, with an audit line for each decision
"""

WITH_KINDS = """
  kubectl apply -n {namespace} -f vm.json             # a virtual machine
  kubectl get -n {namespace} vm web -o yaml           # schedulerName: kubevirt, and the annotation

  # What KubeVirt's controller does for a virtual machine that is older than the webhook, and where it goes:
  kubectl create -n {namespace} -f launcher.json --as={controller}
  kubectl get -n {namespace} pods -o custom-columns=POD:metadata.name,BY:spec.schedulerName,NODE:spec.nodeName

  kubectl label ns {namespace} --overwrite {label}=warn
  kubectl delete -n {namespace} vm web
  kubectl apply -n {namespace} -f vm.json             # warnings, and nothing else
  kubevirt-webhook uninstall
"""

WITH_KUBEVIRT = """
  kubectl apply -n {namespace} -f vm.json             # a VM that names no size
  kubectl get -n {namespace} vm,vmi,pods -o wide      # it runs, sized by the namespace's default
  kubectl create -n {namespace} -f migration.json     # to the other zone: refused, and why
  kubevirt-webhook explain migration {namespace}/web --to zone=b
  kubectl get -n {namespace} vm web -o json |
    kubevirt-webhook expand -f - --kubeconfig $KUBECONFIG --explain   # who set what

  kubectl apply -f vm.json                   # the same VM without kubevirt-webhook: KubeVirt alone
  kubectl get vm web -o jsonpath='{{.status.conditions}}'
  kubevirt-webhook uninstall
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
    with (
        ControlPlane(directory / "plane", binaries, controller_manager=True, apiserver_flags=ROUTING) as plane,
        Installed(plane, directory),
    ):
        _say("starting two schedulers")
        for node in ("node-a", "node-b", "node-c", "node-d"):
            make_node(plane.admin, node)
        _start_schedulers(plane)
        # By it the webhook finds KubeVirt, whose account creates launcher pods.
        plane.admin.apply(obj("KubeVirt", "kubevirt", "kubevirt.io/v1", namespace="kubevirt", spec={}))
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
        *(directory / "plane", binaries),
        controller_manager=True,
        # The policy preemption knows the taint controller by its account.
        controller_accounts=True,
        definitions=(),
        apiserver_flags=[*aggregation(front), *ROUTING],
    )
    _say("starting etcd, the API server and KubeVirt, which takes up to a minute")
    with (
        plane,
        RunningKubeVirt(
            *(plane, kubevirt, {"vmRolloutStrategy": "LiveUpdate", "evictionStrategy": "LiveMigrate"}),
            address=address_of_this_machine(),
        ),
        Installed(plane, directory),
    ):
        _say("starting two schedulers")
        _start_schedulers(plane)
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
    """Those of production: the second has the shipped profile, and its ConfigMap, from which plans learn it."""
    text = (ROOT / "manifests" / "scheduler" / "spread.yaml").read_text()
    plane.start_schedulers({"profiles": yaml.safe_load(text)["profiles"]})
    name, namespace = KUBEVIRT_SCHEDULER_LEASE.name, KUBEVIRT_SCHEDULER_LEASE.namespace
    plane.admin.apply(obj("ConfigMap", name, namespace=namespace, data={"scheduler.yaml": text}))


def _said(plane: ControlPlane, files: Path, kinds: str, labelled: str, then: str) -> str:
    kubeconfig = files / "kubeconfig"
    kubeconfig.write_text(plane.kubeconfig_for(*ADMIN).read_text().replace('"e2e"', f'"{CONTEXT}"'))
    return (BEGINNING + then).format(
        version=plane.admin.request("GET", "/version")["gitVersion"],
        kinds=kinds,
        labelled=labelled,
        namespace=NAMESPACE,
        label=SCHEDULING,
        kubeconfig=kubeconfig,
        context=CONTEXT,
        path=f"{Path(sys.executable).parent}:{plane.binaries}",
        controller=KUBEVIRT_CONTROLLER.user,
        files=files,
    )


class Installed(Repeated):
    """Does for an installation of kubevirt-webhook what kubelets and kube-proxy would do, as long as there is one."""

    PAUSE_SECONDS = 0.5

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        super().__init__()
        self._kube, self._directory = plane.admin, directory
        # Not beside what users write: their draft would be in force at once.
        self._settings_file = plane.directory / "settings.yaml"
        self._kubeconfig = plane.kubeconfig_for(*ACCOUNT)
        self._server: subprocess.Popen[bytes] | None = None
        self._settings = ""
        self._template: object = None
        self._port, self._ops_port = free_port(), free_port()

    def __exit__(self, *of: object) -> None:
        super().__exit__(*of)
        self._stop()

    def step(self) -> None:
        """Let the server run with the settings of now, and say that the pods of the Deployment are ready."""
        with contextlib.suppress(KubeError, OSError):
            found = [one for one in self._kube.list(DEPLOYMENTS, INSTALLED) if one["metadata"]["name"] == INSTALLED]
            if found:
                settings = self._kube.get("v1/configmaps", INSTALLED, INSTALLED)["data"]["settings.yaml"]
                # The server follows the file itself, as it does a mounted ConfigMap.
                if settings != self._settings:
                    self._write(settings)
                template = found[0]["spec"]["template"]
                if template != self._template or self._server is None or self._server.poll() is not None:
                    self._stop()
                    self._start()
                    self._template = template
            else:
                self._stop()
            if is_ready := self._is_ready():
                self._publish()
            for pod in self._kube.list("v1/pods", INSTALLED):
                self._play(pod, is_ready=is_ready)

    def _is_ready(self) -> bool:
        """Whether the server of now answers reviews, as a kubelet's probe asks."""
        if self._server is None or self._server.poll() is not None:
            return False
        try:
            return fetch(self._ops_port, "/readyz", tls=False)[0] == 200
        except OSError:
            return False

    def _play(self, pod: KubeObject, *, is_ready: bool) -> None:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            self._kube.delete("v1/pods", name, INSTALLED, gracePeriodSeconds="0")
        elif is_ready and pod["spec"].get("nodeName") and pod["status"].get("phase") != "Running":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            status = {"phase": "Running", "conditions": [ready]}
            self._kube.patch("v1/pods", name, {"status": status}, INSTALLED, subresource="status")

    def _write(self, settings: str) -> None:
        """Replace the file at once, as a kubelet does: half a file is none."""
        written = self._settings_file.with_suffix(".new")
        written.write_text(settings)
        written.replace(self._settings_file)
        self._settings = settings

    def _start(self) -> None:
        address = _address()
        command = [sys.executable, "-m", "webhook", "serve", "--tls=managed", f"--config={self._settings_file}"]
        command += [
            f"--kubeconfig={self._kubeconfig}",
            f"--listen={address}:{self._port}",
            f"--ops-listen={LOOPBACK}:{self._ops_port}",
        ]
        with (self._directory / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                process_group=0,
            )

    def _publish(self) -> None:
        """Let the Service lead to the server."""
        endpoints = obj("EndpointSlice", f"{INSTALLED}-lab", "discovery.k8s.io/v1", namespace=INSTALLED)
        endpoints["metadata"]["labels"] = {"kubernetes.io/service-name": INSTALLED}
        endpoints |= {"addressType": "IPv4", "ports": [{"name": "webhooks", "port": self._port}]}
        self._kube.apply({**endpoints, "endpoints": [{"addresses": [_address()], "conditions": {"ready": True}}]})

    def _stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
        self._server = None


def _address() -> str:
    """Where the API server reaches the server."""
    return address_of_this_machine() or LOOPBACK


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
