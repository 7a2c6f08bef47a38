"""The bundle on a node, installed as OLM does: without a ConfigMap of the admin's, and with one that comes later."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
import yaml

from certs.source import self_signed
from hack import bundle
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.rbac import account, grant

from .support import IMAGE, NAMESPACE, SELECTOR, NodeInstallation

CERTIFICATE = f"{NAMESPACE}-service-cert"
# A kubelet looks at mounted ConfigMaps every minute or so.
PATIENCE = 180


@pytest.fixture
def by_olm(restricted: NodeInstallation) -> Iterator[NodeInstallation]:
    node = restricted
    made = [yaml.safe_load(text) for name, text in bundle.files(IMAGE, {}).items() if name.startswith("manifests/")]
    (csv,) = (one for one in made if one["kind"] == "ClusterServiceVersion")
    for one in made:
        if one is not csv:
            where = {} if one["kind"] == "PriorityClass" else {"namespace": NAMESPACE}
            node.admin.apply({**one, "metadata": {**one["metadata"], **where}})
    node.admin.apply(obj("ServiceAccount", NAMESPACE, namespace=NAMESPACE))
    (permissions,) = csv["spec"]["install"]["spec"]["clusterPermissions"]
    binding = grant(node.admin, f"{NAMESPACE}-olm", permissions["rules"], subject=account(NAMESPACE, NAMESPACE))
    pair = self_signed([f"{NAMESPACE}-service.{NAMESPACE}.svc"])
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    encoded = {name: base64.b64encode(text).decode() for name, text in data.items()}
    node.admin.apply(obj("Secret", CERTIFICATE, namespace=NAMESPACE, data=encoded))
    (deployment,) = csv["spec"]["install"]["spec"]["deployments"]
    node.admin.apply(obj("Deployment", NAMESPACE, namespace=NAMESPACE, spec=mounted(deployment["spec"])))
    yield node
    node.kubectl("delete", f"clusterrole/{NAMESPACE}-olm", f"clusterrolebinding/{binding}")


def mounted(spec: Json) -> Json:
    """A Deployment with the certificate where OLM mounts it (installCertRequirementsForDeployment)."""
    pod = spec["template"]["spec"]
    items = [{"key": "tls.crt", "path": "apiserver.crt"}, {"key": "tls.key", "path": "apiserver.key"}]
    pod["volumes"].append({"name": "apiservice-cert", "secret": {"secretName": CERTIFICATE, "items": items}})
    mount = {"name": "apiservice-cert", "mountPath": "/apiserver.local.config/certificates"}
    pod["containers"][0]["volumeMounts"].append(mount)
    return spec


def test_replicas_have_defaults_until_the_admin_writes_settings(by_olm: NodeInstallation) -> None:
    by_olm.wait_ready()
    for pod in by_olm.pods():
        shown = by_olm.kubectl("-n", NAMESPACE, "exec", pod["metadata"]["name"], "--", *PROGRAM).stdout
        assert "kubevirt-scheduler/kubevirt-scheduler" in shown
    settings = {"settings.yaml": "schedulers: {mine: {healthCheck: 'off'}}\n"}
    by_olm.admin.apply(obj("ConfigMap", NAMESPACE, namespace=NAMESPACE, data=settings))
    eventually(lambda: len(by_olm.logs("settings reloaded")) == 2, what="both replicas to follow", timeout=PATIENCE)
    for pod in by_olm.admin.list("v1/pods", NAMESPACE, labelSelector=SELECTOR):
        shown = by_olm.kubectl("-n", NAMESPACE, "exec", pod["metadata"]["name"], "--", *PROGRAM).stdout
        assert "mine:" in shown
        assert "kubevirt-scheduler/kubevirt-scheduler" not in shown


PROGRAM = ("kubevirt-webhook", "config", "show", "--config=/etc/kubevirt-webhook/settings.yaml")
