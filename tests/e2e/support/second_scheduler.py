"""The component manifests/scheduler/second, run as its Deployment says: its arguments, its ConfigMap, its account."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path
from typing import Any, Self

import yaml

from . import pki
from .access import Access
from .commands import LOOPBACK
from .kube import PATIENCE, Json, KubeError, eventually
from .manifests import MANIFESTS
from .pki import service_account
from .plane import ControlPlane
from .processes import Process, StartError, free_port

NAME = "kubevirt-scheduler"
ACCOUNT = service_account(NAME, NAME)
LEASE = ("coordination.k8s.io/v1/leases", NAME, NAME)


def documents(variant: str = "spread") -> list[Json]:
    """What `install --with scheduler` applies."""
    return list(yaml.safe_load_all((MANIFESTS / "rendered" / f"scheduler-{variant}.yaml").read_text()))


def apply(plane: Access, variant: str = "spread") -> None:
    """Has the API server take all of it, strictly."""
    for document in sorted(documents(variant), key=lambda one: one["kind"] != "Namespace"):
        plane.admin.apply(document, fieldValidation="Strict")


class SchedulerReplica:
    """One replica of the Deployment, on a plane where the component has been applied.

    ``in_cluster`` is the environment variable by which a client finds what it finds by itself in a pod.
    """

    def __init__(self, plane: ControlPlane, directory: Path, name: str, binary: Path, *, in_cluster: str = "") -> None:
        self.port = free_port()
        kubeconfig = directory / f"{name}.kubeconfig"
        # In a pod it finds the API server and the token by itself.
        kubeconfig.write_text(pki.kubeconfig(plane.server, plane.pki.ca, {"token": plane.token(NAME, NAME)}))
        written = plane.admin.get("v1/configmaps", NAME, NAME)["data"]["config.yaml"]
        whole = {**yaml.safe_load(written), "clientConnection": {"kubeconfig": str(kubeconfig)}}
        config = directory / f"{name}.yaml"
        config.write_text(yaml.safe_dump(whole))
        deployment = plane.admin.get("apps/v1/deployments", NAME, NAME)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["kube-scheduler"]
        given = {
            "--config=/etc/kubevirt-scheduler/config.yaml": f"--config={config}",
            "--secure-port=10259": f"--secure-port={self.port}",
        }
        assert given.keys() <= set(container["args"])
        arguments = [given.get(one, one) for one in container["args"]]
        own = [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
        given_by = ["/usr/bin/env", f"{in_cluster}={kubeconfig}"] if in_cluster else []
        command = [*given_by, str(binary), *arguments, *own, f"--bind-address={LOOPBACK}"]
        self.process = Process(name, command, directory / f"{name}.log")

    def __enter__(self) -> Self:
        """Returns once the Deployment's probes would succeed."""
        self.process.start()
        try:
            self.process.wait_ready(lambda: self.get("/healthz") == "ok")
        except StartError:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()

    def get(self, path: str, token: str = "") -> str:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://{LOOPBACK}:{self.port}{path}", headers=headers)
        unverified = ssl._create_unverified_context()
        with urllib.request.urlopen(request, timeout=PATIENCE, context=unverified) as answer:
            return str(answer.read().decode())


def holder(plane: Access, other_than: str = "") -> str:
    """The holder of the Lease, once another replica than ``other_than`` holds it."""

    def held() -> str:
        try:
            spec: dict[str, Any] = plane.admin.get(*LEASE)["spec"]
        except KubeError:
            return ""
        found = str(spec.get("holderIdentity") or "")
        return found if found != other_than else ""

    return eventually(held, what="a replica to hold the Lease")
