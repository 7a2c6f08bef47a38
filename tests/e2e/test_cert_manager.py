"""The component cert-manager beside the real cert-manager; in `make e2e-node` replicas serve with what it issues."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
import yaml
from cryptography import x509

from .conftest import OwnPlane
from .support import cert_manager
from .support.access import Access
from .support.kube import eventually
from .support.manifests import MANIFESTS
from .support.objects import ensure_namespace
from .support.webhook_server import CONFIGURATIONS

NAMESPACE = "kubevirt-webhook"
INJECTED = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{NAMESPACE}"}


@pytest.fixture(scope="module")
def certified(module_plane: OwnPlane) -> Iterator[Access]:
    """A control plane with cert-manager, and the component's objects."""
    if not cert_manager.is_built():
        pytest.skip("cert-manager is not built; make e2e-node builds it")
    plane = module_plane()
    with cert_manager.running(plane):
        ensure_namespace(plane.admin, NAMESPACE)
        for manifest in yaml.safe_load_all((MANIFESTS / "components/cert-manager/certificate.yaml").read_text()):
            plane.admin.apply(manifest)
        eventually(lambda: certificates(plane), what="the serving certificate to be issued")
        yield plane


def certificates(access: Access) -> tuple[x509.Certificate, x509.Certificate] | None:
    """The serving certificate, and the CA beside it, which cainjector writes into the configurations."""
    for secret in access.admin.list("v1/secrets", NAMESPACE):
        if secret["metadata"]["name"] == "kubevirt-webhook-serving":
            data = {key: base64.b64decode(value) for key, value in secret["data"].items()}
            return x509.load_pem_x509_certificate(data["tls.crt"]), x509.load_pem_x509_certificate(data["ca.crt"])
    return None


def bundles(access: Access) -> list[list[x509.Certificate]]:
    """The CAs that the API server trusts, for each configuration."""
    entries = [access.admin.get(resource, "x")["webhooks"][0] for resource in CONFIGURATIONS]
    found = [base64.b64decode(one["clientConfig"].get("caBundle", "")) for one in entries]
    return [x509.load_pem_x509_certificates(pem) if pem else [] for pem in found]


@pytest.fixture(scope="module")
def injected(certified: Access) -> Access:
    """Configurations into which cainjector writes the CA."""
    client = {"service": {"name": NAMESPACE, "namespace": NAMESPACE, "path": "/none"}}
    entry = {
        "name": "none.example.org",
        "clientConfig": client,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    for resource in CONFIGURATIONS:
        certified.admin.create(resource, {"metadata": {"name": "x", "annotations": INJECTED}, "webhooks": [entry]})
    return certified


def test_the_ca_is_in_every_entry(injected: Access) -> None:
    def is_alone() -> bool:
        found = certificates(injected)
        assert found
        return bundles(injected) == [[found[1]]] * len(CONFIGURATIONS)

    eventually(is_alone, what="cainjector to write the CA")


def test_a_new_ca_trusts_what_the_former_one_has_signed(injected: Access) -> None:
    """Replicas serve with the former certificate until kubelets bring the next one: the caBundle is new at once."""
    before = certificates(injected)
    assert before

    cert_manager.renew(injected, "kubevirt-webhook-ca", NAMESPACE)
    cert_manager.renew(injected, NAMESPACE, NAMESPACE)

    after = certificates(injected)
    assert after
    assert after[1] != before[1]
    before[0].verify_directly_issued_by(after[1])
    after[0].verify_directly_issued_by(after[1])
    after[0].verify_directly_issued_by(before[1])
    # cainjector adds the new CA to the former one.
    eventually(lambda: all(after[1] in bundle for bundle in bundles(injected)), what="cainjector to write the new CA")

    def is_alone() -> bool:
        for resource, bundle in zip(CONFIGURATIONS, bundles(injected), strict=True):
            if before[1] in bundle:
                remove = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
                injected.admin.patch(resource, "x", remove, kind="json")
        return bundles(injected) == [[after[1]]] * len(CONFIGURATIONS)

    # A former CA whose key has leaked is trusted until it is removed; a cainjector that is late writes it once more.
    eventually(is_alone, what="cainjector to write the present CA alone")
