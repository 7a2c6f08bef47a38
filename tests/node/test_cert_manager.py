"""The component cert-manager beside the real cert-manager: it issues, its cainjector trusts, replicas follow both."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.e2e.support import cert_manager
from tests.e2e.support.kube import eventually

from .support import NAMESPACE, NodeInstallation, NodeReviews

SERVING = "kubevirt-webhook-serving"


@pytest.fixture(scope="module")
def issuer(node: NodeInstallation) -> Iterator[None]:
    with cert_manager.running(node):
        yield


@pytest.fixture
def certified(node: NodeInstallation, issuer: None, tmp_path: Path) -> Iterator[NodeInstallation]:
    """An installation by kustomize whose certificates are cert-manager's."""
    node.run("uninstall")
    node.apply(tmp_path, "cert-manager")
    node.offer_namespace()
    yield node
    node.remove_everything()


def content(node: NodeInstallation) -> dict[str, bytes]:
    data = node.admin.get("v1/secrets", SERVING, NAMESPACE)["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def leaf(node: NodeInstallation) -> x509.Certificate:
    return x509.load_pem_x509_certificates(content(node)["tls.crt"])[0]


def bundles(node: NodeInstallation) -> set[bytes]:
    return {base64.b64decode(entry["clientConfig"].get("caBundle") or "") for entry in node.entries()}


def served(node: NodeInstallation) -> set[x509.Certificate]:
    """What replicas serve with at the addresses of their pods."""
    found = [ssl.get_server_certificate((pod["status"]["podIP"], 8443), timeout=5) for pod in node.ready_pods()]
    return {x509.load_pem_x509_certificate(pem.encode()) for pem in found}


def follow(node: NodeInstallation, before: x509.Certificate) -> None:
    """Wait until all replicas serve with the new certificate."""
    assert leaf(node) != before
    eventually(lambda: served(node) == {leaf(node)}, what="replicas to serve with the new certificate", timeout=150)
    # cainjector adds a new CA to the former one.
    eventually(
        lambda: all(content(node)["ca.crt"].strip() in bundle for bundle in bundles(node)),
        what="caBundles to have the CA",
        timeout=60,
    )


def test_issued_trusted_and_rotated_without_a_request_that_is_denied(certified: NodeInstallation) -> None:
    node = certified
    assert (bundles(node), served(node)) == ({content(node)["ca.crt"]}, {leaf(node)})
    # The replicas need, and have, no permission for Secrets.
    account = f"--as=system:serviceaccount:{NAMESPACE}:{NAMESPACE}"
    for verb in ("get", "list", "create"):
        answer = node.kubectl("auth", "can-i", verb, "secrets", "-n", NAMESPACE, account, check=False)
        assert answer.stdout.strip() == "no"

    with NodeReviews(node) as load:
        load.more()
        before = leaf(node)
        cert_manager.renew(node, NAMESPACE, NAMESPACE)
        follow(node, before)
        load.more()

        # A new CA signs with the key of before: what it signed then is trusted meanwhile.
        before = leaf(node)
        cert_manager.renew(node, "kubevirt-webhook-ca", NAMESPACE)
        cert_manager.renew(node, NAMESPACE, NAMESPACE)
        follow(node, before)
        load.more()
    assert (load.denied, load.unchanged) == ([], 0)
