"""The real cert-manager beside an API server: its kinds, its controllers and its cainjector."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import yaml

from hack.controlplane.build import location
from hack.controlplane.bundles import CERT_MANAGER

from .access import Access
from .kube import Json, eventually
from .pki import ADMIN
from .processes import Process

CERTIFICATES = "cert-manager.io/v1/certificates"
PROGRAMS = ("cert-manager-controller", "cert-manager-cainjector")


@contextlib.contextmanager
def running(access: Access) -> Iterator[None]:
    place = location(os.environ, bundle=CERT_MANAGER)
    for file in sorted((place / "crds").glob("*.yaml")):
        for definition in yaml.safe_load_all(file.read_text()):
            access.admin.apply(definition)

    def is_served() -> bool:
        served = access.admin.request("GET", "/apis/cert-manager.io/v1")["resources"]
        return {"issuers", "certificates", "certificaterequests"} <= {one["name"] for one in served}

    eventually(is_served, what="cert-manager's kinds")
    kubeconfig = str(access.kubeconfig_for(*ADMIN))
    logs = access.directory / "logs"
    processes = [Process(name, [str(place / name), kubeconfig], logs / f"{name}.log") for name in PROGRAMS]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def renew(access: Access, name: str, namespace: str) -> None:
    """Ask for a certificate to be issued now, as `cmctl renew` does; returns once it is."""
    before: Json = access.admin.get(CERTIFICATES, name, namespace)["status"]
    asked = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test"}
    issuing = {**asked, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [one for one in before["conditions"] if one["type"] != "Issuing"]
    status = {"status": {"conditions": [*conditions, issuing]}}
    access.admin.patch(CERTIFICATES, name, status, namespace, subresource="status")
    eventually(
        lambda: access.admin.get(CERTIFICATES, name, namespace)["status"]["revision"] > before["revision"],
        what=f"Certificate {name} to be issued again",
    )
