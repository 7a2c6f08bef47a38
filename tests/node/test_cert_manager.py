"""The component cert-manager beside the real cert-manager: it issues, its cainjector trusts, replicas follow both."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from hack.controlplane.build import CERT_MANAGER, location
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.processes import Process

from .support import CONFIGURATIONS, NAMESPACE, NodeInstallation, NodeReviews, kustomization, served_certificate

CERTIFICATES = "cert-manager.io/v1/certificates"
SERVING = "kubevirt-webhook-serving"


@pytest.fixture(scope="module")
def cert_manager(node: NodeInstallation) -> Iterator[None]:
    """The kinds and the controllers of cert-manager."""
    place = location(os.environ, bundle=CERT_MANAGER)
    for file in sorted((place / "crds").glob("*.yaml")):
        for definition in yaml.safe_load_all(file.read_text()):
            node.admin.apply(definition)
    eventually(lambda: node.admin.list(CERTIFICATES, NAMESPACE) == [], what="cert-manager's kinds to be served")
    kubeconfig = str(node.kubeconfig_for(*ADMIN))
    names = ("cert-manager-controller", "cert-manager-cainjector")
    running = [
        Process(name, [str(place / name), kubeconfig], node.directory / "logs" / f"{name}.log") for name in names
    ]
    for process in running:
        process.start()
    yield
    for process in running:
        process.kill()


@pytest.fixture
def certified(node: NodeInstallation, cert_manager: None, tmp_path: Path) -> Iterator[NodeInstallation]:
    """An installation by kustomize whose certificates are cert-manager's."""
    node.run("uninstall")
    node.kubectl("apply", "--server-side", "-k", kustomization(tmp_path, "cert-manager"), timeout=100)
    node.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/kubevirt-webhook", "--timeout=150s", timeout=160)
    node.wait_ready()
    node.offer_namespace()
    yield node
    node.remove_everything()


def content(node: NodeInstallation) -> dict[str, bytes]:
    """The Secret that cert-manager writes."""
    data = node.admin.get("v1/secrets", SERVING, NAMESPACE)["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def leaf(node: NodeInstallation) -> bytes:
    """The certificate in it, as DER."""
    return x509.load_pem_x509_certificates(content(node)["tls.crt"])[0].public_bytes(Encoding.DER)


def bundles(node: NodeInstallation) -> set[bytes]:
    """The CAs that the API server trusts, over all entries."""
    entries = [entry for where in CONFIGURATIONS for entry in node.admin.get(*where)["webhooks"]]
    return {base64.b64decode(entry["clientConfig"].get("caBundle") or "") for entry in entries}


def served(node: NodeInstallation) -> set[bytes]:
    """The certificates that the replicas serve with."""
    return {served_certificate(pod["status"]["podIP"]) for pod in node.ready_pods()}


def renew(node: NodeInstallation, name: str) -> None:
    """Ask for a certificate to be issued now, as `cmctl renew` does; returns once it is."""
    before: Json = node.admin.get(CERTIFICATES, name, NAMESPACE)
    now = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test"}
    issuing = {**now, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [one for one in before["status"]["conditions"] if one["type"] != "Issuing"]
    node.admin.patch(
        CERTIFICATES, name, {"status": {"conditions": [*conditions, issuing]}}, NAMESPACE, subresource="status"
    )
    eventually(
        lambda: node.admin.get(CERTIFICATES, name, NAMESPACE)["status"]["revision"] > before["status"]["revision"],
        what=f"Certificate {name} to be issued again",
        timeout=60,
    )


def follow(node: NodeInstallation, before: bytes) -> None:
    """Wait until all replicas serve with the new certificate."""
    assert leaf(node) != before
    eventually(lambda: served(node) == {leaf(node)}, what="replicas to serve with the new certificate", timeout=150)
    eventually(lambda: bundles(node) == {content(node)["ca.crt"]}, what="caBundles to be the CA", timeout=60)


def test_issued_trusted_and_rotated_without_a_request_that_is_denied(certified: NodeInstallation) -> None:
    node = certified
    assert bundles(node) == {content(node)["ca.crt"]}
    assert served(node) == {leaf(node)}
    # The replicas need, and have, no permission for Secrets.
    account = f"--as=system:serviceaccount:{NAMESPACE}:{NAMESPACE}"
    for verb in ("get", "list", "create"):
        answer = node.kubectl("auth", "can-i", verb, "secrets", "-n", NAMESPACE, account, check=False)
        assert answer.stdout.strip() == "no"

    with NodeReviews(node) as load:
        load.more()
        before = leaf(node)
        renew(node, NAMESPACE)
        follow(node, before)
        load.more()

        # A new CA signs with the key of before: what it signed then is trusted meanwhile.
        before = leaf(node)
        renew(node, "kubevirt-webhook-ca")
        renew(node, NAMESPACE)
        follow(node, before)
        load.more()
    assert (load.denied, load.unchanged) == ([], 0)
