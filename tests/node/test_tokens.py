"""The token of a replica's service account expires while the replica runs; the kubelet has replaced it before."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.objects import ensure_namespace, install_rbac
from tests.e2e.support.workloads import PODS, VMIS, launcher_of, scheduler_of, vm, vmi_of

from .support import LABEL, NAMESPACE, NodeInstallation, NodeReviews, kustomization, servers

# The shortest that the API server issues; a kubelet replaces a token after four fifths of it.
LIFETIME_SECONDS = 600
DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"
NEW = "tokens"
SOURCES: list[Json] = [
    {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME_SECONDS}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
        }
    },
]
PATCH: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": NAMESPACE, "namespace": NAMESPACE},
    "spec": {
        "template": {
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [
                    {"name": "webhook", "volumeMounts": [{"name": "account", "mountPath": DIRECTORY, "readOnly": True}]}
                ],
                "volumes": [{"name": "account", "projected": {"sources": SOURCES}}],
            }
        }
    },
}
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def short_lived(node: NodeInstallation, tmp_path: Path) -> Iterator[NodeInstallation]:
    """An installation whose tokens live as shortly as can be."""
    node.run("uninstall")
    node.apply(kustomization(tmp_path, patches=[PATCH]))
    node.wait_ready()
    node.offer_namespace()
    yield node
    node.remove_everything()


def token_of(process: int) -> str:
    """The token that a replica reads."""
    return Path(f"/proc/{process}/root{DIRECTORY}/token").read_text()


def expiry(token: str) -> float:
    """When a token expires, in seconds since 1970."""
    payload = token.split(".")[1]
    return float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])


def is_accepted(node: NodeInstallation, token: str) -> bool:
    """Whether the API server knows the sender of a token."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = node.admin.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    return bool(answer["status"].get("authenticated"))


def test_requests_go_on_when_the_first_token_has_expired(short_lived: NodeInstallation) -> None:
    node = short_lived
    install_rbac(node.admin)
    # A VMI from before the namespace opted in: only who reads it can say that its launcher pod may be changed.
    ensure_namespace(node.admin, NEW)
    vmi = node.admin.create(VMIS, vmi_of(vm("before")), NEW)
    assert scheduler_of(vmi) is None
    node.admin.patch("v1/namespaces", NEW, {"metadata": {"labels": {LABEL: "enforce"}}})

    def is_read() -> bool:
        pod = node.kubevirt_controller.create(PODS, launcher_of(vmi), NEW, dryRun="All")
        return scheduler_of(pod) == "kubevirt"

    eventually(is_read, what="a launcher pod to be given the scheduler")
    first = {process: token_of(process) for process in servers()}
    assert len(first) == 2
    assert all(is_accepted(node, token) for token in first.values())

    with NodeReviews(node) as load:
        while time.time() < max(map(expiry, first.values())) + 5:
            time.sleep(5)
            assert is_read()
        assert not any(is_accepted(node, token) for token in first.values())
        # The same processes, with tokens that kubelets have brought.
        assert set(servers()) == set(first)
        assert all(is_accepted(node, token_of(process)) for process in first)
        for _ in range(20):
            assert is_read()
        load.more()
    assert (load.denied, load.unchanged) == ([], 0)
    for pod in node.ready_pods():
        assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]
    node.admin.delete("v1/namespaces", NEW)
