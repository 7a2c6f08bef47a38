"""The chart on a node, by the real Helm: installed, tested, upgraded, rolled back, uninstalled beside new VMs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.build import location
from hack.controlplane.bundles import HELM
from tests.e2e.support.helm import CHART, Helm
from tests.e2e.support.objects import ensure_namespace, obj
from tests.e2e.support.pki import ADMIN

from .support import IMAGE, NAMESPACE, SETTINGS, UPGRADED, NodeInstallation, NodeReviews

RELEASE = "kubevirt-webhook"
NAMED = f"{RELEASE}-doctor"
WAIT = ("--wait", "--timeout=120s")


def values(image: str) -> dict[str, Any]:
    repository, _, tag = image.rpartition(":")
    return {"image": {"repository": repository, "tag": tag}, "settings": SETTINGS}


@pytest.fixture
def helm(restricted: NodeInstallation, tmp_path: Path) -> Iterator[Helm]:
    found = Helm(location(os.environ, bundle=HELM) / "helm", tmp_path, restricted.kubeconfig_for(*ADMIN))
    yield found
    found.run("uninstall", RELEASE, "--ignore-not-found")


def run_doctor(node: NodeInstallation, helm: Helm) -> None:
    """`helm test` runs `doctor` in a pod, and fails where that reports a failure: here until there is a KubeVirt."""
    test = ("test", RELEASE, "--logs", "--timeout=120s")
    assert "KubeVirt: the cluster has no KubeVirt object" in helm.run(*test, check=False)
    ensure_namespace(node.admin, "kubevirt")
    node.admin.apply(obj("KubeVirt", "kubevirt", namespace="kubevirt", spec={}))
    status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.8.1"}
    node.admin.patch("kubevirt.io/v1/kubevirts", "kubevirt", {"status": status}, "kubevirt", subresource="status")
    found = helm.run(*test)
    assert "Phase:          Succeeded" in found
    well = [line for line in found.splitlines() if line.startswith(("ok ", "   "))]
    for subject in (f"Pods of {NAMESPACE}/{NAMESPACE}: ", f"Service {NAMESPACE}/{NAMESPACE}: ", "metrics: "):
        assert any(subject in line for line in well), found
    # Its account is gone.
    assert NAMED not in {one["metadata"]["name"] for one in node.admin.list("v1/serviceaccounts", NAMESPACE)}
    assert NAMED not in {
        one["metadata"]["name"] for one in node.admin.list("rbac.authorization.k8s.io/v1/clusterroles")
    }
    node.kubectl("-n", "kubevirt", "delete", "kubevirt", "kubevirt")


def test_installed_upgraded_rolled_back_and_uninstalled_under_load(node: NodeInstallation, helm: Helm) -> None:
    helm.run("install", RELEASE, CHART, *WAIT, values=values(IMAGE))
    node.offer_namespace()
    run_doctor(node, helm)
    with NodeReviews(node) as load:
        helm.run("upgrade", RELEASE, CHART, *WAIT, values=values(UPGRADED))
        node.wait_ready()
        assert node.images() == {UPGRADED}
        load.more()
        helm.run("rollback", RELEASE, "1", *WAIT)
        node.wait_ready()
        assert node.images() == {IMAGE}
        load.more()
        assert (load.denied, load.unchanged) == ([], 0)

        helm.run("uninstall", RELEASE)
        load.more()
        assert load.denied == []
