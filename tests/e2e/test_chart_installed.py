"""The chart in a cluster: installed, upgraded, rolled back and uninstalled by the real Helm, and passed on to other
tools and back. Nothing waits for pods: there is no kubelet."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import OwnPlane
from .support.helm import CHART, IMAGE, Helm
from .support.kube import Json, Kube, eventually
from .support.manifests import MANIFESTS
from .support.plane import ControlPlane
from .support.program import command, run
from .support.webhook_server import CONFIGURATIONS
from .test_install import DEPLOYMENT, NAMESPACE, objects, settings_file

FIRST = (CONFIGURATIONS[0], "kubevirt-webhook")
CERTIFICATES = "kubevirt-webhook-certificates"
RELEASE = "kubevirt-webhook"
# As `install` is called below.
VALUES: dict[str, Any] = {
    "image": {"repository": "registry.example/a", "tag": "1"},
    "settings": {"schedulers": {"kubevirt": {"healthCheck": "off"}}},
}
MORE = {**VALUES, "image": IMAGE, "settings": {**VALUES["settings"], "scheduling": {"virtualMachineInstances": True}}}


@pytest.fixture(scope="module")
def cluster(module_plane: OwnPlane) -> ControlPlane:
    return module_plane(controller_manager=True)


@pytest.fixture
def namespace(cluster: ControlPlane) -> Iterator[str]:
    cluster.admin.create("v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield NAMESPACE
    cluster.admin.delete("v1/namespaces", NAMESPACE)
    eventually(lambda: NAMESPACE not in names(cluster.admin, "v1/namespaces"), what="the namespace to be gone")


@pytest.fixture
def helm(cluster: ControlPlane, helm_program: Path, tmp_path: Path) -> Iterator[Helm]:
    found = Helm(helm_program, tmp_path, Path(cluster.kubeconfig_for("admin", ("system:masters",))))
    yield found
    # Of a test that failed.
    found.run("uninstall", RELEASE, "--ignore-not-found")


def names(kube: Kube, resource: str) -> list[str]:
    return [one["metadata"]["name"] for one in kube.list(resource)]


def installed(kube: Kube) -> dict[str, Json]:
    """The objects, without Helm's records."""
    found = {path: one for path, one in objects(kube).items() if "/sh.helm.release." not in path}
    for one in found.values():
        for key in ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace"):
            one["metadata"].get("annotations", {}).pop(key, None)
    return found


def bundles(kube: Kube) -> dict[str, str | None]:
    return {one["name"]: one["clientConfig"].get("caBundle") for one in kube.get(*FIRST)["webhooks"]}


def write_bundle(cluster: ControlPlane) -> str:
    """As a replica does it; returns the entry's name."""
    name = next(iter(bundles(cluster.admin)))
    bundle = base64.b64encode(cluster.pki.ca.read_bytes()).decode()
    change = {"webhooks": [{"name": name, "clientConfig": {"caBundle": bundle}}]}
    cluster.admin.patch(*FIRST, change, kind="strategic", fieldManager=CERTIFICATES)
    return name


def image(kube: Kube) -> str:
    return str(kube.get(*DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]["image"])


def test_from_the_first_installation_to_the_last_object(cluster: ControlPlane, namespace: str, helm: Helm) -> None:
    kube = cluster.admin
    before = installed(kube)

    helm.run("install", RELEASE, CHART, values=VALUES)
    first = installed(kube)
    assert image(kube) == "registry.example/a:1"
    entry = write_bundle(cluster)
    bundle = bundles(kube)[entry]

    # The replicas' caBundles are no difference to Helm, and stay.
    helm.run("upgrade", RELEASE, CHART, values=MORE)
    assert image(kube) == f"{IMAGE['repository']}:1"
    upgraded = bundles(kube)
    assert upgraded[entry] == bundle
    assert [name for name in upgraded if name.startswith("virtualmachineinstances.scheduling.")]

    helm.run("rollback", RELEASE, "1")
    assert bundles(kube)[entry] == bundle
    after = installed(kube)
    for found in (first, after):
        for one in found.values():
            for each in one.get("webhooks", ()):
                each["clientConfig"].pop("caBundle", None)
            one["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    assert after == first

    # A chart that the API server denies changes nothing that is called.
    wrong = {**VALUES, "tolerations": [{"key": "x", "operator": "Never"}]}
    assert "Deployment.apps" in helm.run("upgrade", RELEASE, CHART, values=wrong, check=False)
    assert image(kube) == "registry.example/a:1"
    assert bundles(kube)[entry] == bundle

    helm.run("uninstall", RELEASE)
    # Controllers make objects of their own in a new namespace, sooner or later.
    made = {path for path in first.keys() - before.keys() if "kubevirt-webhook" in path.rpartition("/")[2]}
    assert len(made) > 10
    eventually(lambda: not made & installed(kube).keys(), what="all objects to be gone")


CONDITIONAL = "virtualmachineinstances.scheduling.enforce.kubevirt-webhook.github.io"


def overlay(directory: Path, newer: str, *, more: bool) -> str:
    """Writes an admin's own kustomization, with an image and the webhooks that the settings need."""
    settings = {"schedulers": {"kubevirt": {"healthCheck": "off"}}, "scheduling": {"virtualMachineInstances": more}}
    (directory / "settings.yaml").write_text(json.dumps(settings))
    made = run("manifests", "webhooks", f"--config={directory / 'settings.yaml'}").stdout
    (directory / "webhooks.yaml").write_text(made)
    settings_map = {"name": "kubevirt-webhook", "namespace": NAMESPACE, "files": ["settings.yaml"]}
    content = {
        "resources": [os.path.relpath(MANIFESTS / "base", directory.resolve()), "webhooks.yaml"],
        "configMapGenerator": [settings_map | {"options": {"disableNameSuffixHash": True}}],
        "images": [{"name": "kubevirt-webhook", "newName": newer, "newTag": "1"}],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(content))
    return str(directory)


def owners(kube: Kube, resource: str = DEPLOYMENT[0]) -> set[str]:
    where = (resource, *DEPLOYMENT[1:]) if resource == DEPLOYMENT[0] else (resource, "kubevirt-webhook")
    fields = kube.get(*where)["metadata"]["managedFields"]
    return {one["manager"] for one in fields if not one.get("subresource")} - {"kube-controller-manager", CERTIFICATES}


def install(cluster: ControlPlane, directory: Path, newer: str, *, more: bool, check: bool = True) -> str:
    file = settings_file(directory, scheduling={"virtualMachineInstances": more})
    done = command(cluster, "install", f"--image={newer}:1", f"--config={file}", "--no-wait", check=check)
    return done.output


def test_from_install_to_kubectl_and_back(cluster: ControlPlane, tmp_path: Path) -> None:
    kube = cluster.admin
    install(cluster, tmp_path, "one", more=True)
    assert CONDITIONAL in bundles(kube)

    # Without a hand-over two tools get into each other's way.
    apply = ("apply", "--server-side", "-k", overlay(tmp_path, "two", more=False))
    refused = cluster.kubectl(*apply, check=False)
    assert 'conflict with "kubevirt-webhook-install"' in refused.stderr

    command(cluster, "hand-over", "--to-manager=kubectl")
    cluster.kubectl(*apply)
    assert image(kube) == "two:1"
    # Objects that the next tool leaves out are gone, also where the former tool had made them.
    assert CONDITIONAL not in bundles(kube)
    assert owners(kube) == owners(kube, CONFIGURATIONS[0]) == {"kubectl"}

    assert 'conflict with "kubectl"' in install(cluster, tmp_path, "three", more=True, check=False)
    command(cluster, "hand-over", "--from-manager=kubectl", "--to-manager=kubevirt-webhook-install")
    install(cluster, tmp_path, "three", more=True)
    install(cluster, tmp_path, "three", more=False)
    assert image(kube) == "three:1"
    assert CONDITIONAL not in bundles(kube)
    assert owners(kube) == {"kubevirt-webhook-install"}
    command(cluster, "uninstall")


def test_from_install_to_helm_and_back(cluster: ControlPlane, helm: Helm, tmp_path: Path) -> None:
    kube = cluster.admin
    install(cluster, tmp_path, "registry.example/a", more=False)
    entry = write_bundle(cluster)
    bundle = bundles(kube)[entry]

    # Helm adopts existing objects only with --take-ownership.
    assert "invalid ownership metadata" in helm.run("install", RELEASE, CHART, values=VALUES, check=False)
    command(cluster, "hand-over", "--to-manager=helm")
    helm.run("install", RELEASE, CHART, "--take-ownership", values=VALUES)
    helm.run("upgrade", RELEASE, CHART, values=MORE)
    assert CONDITIONAL in bundles(kube)
    helm.run("upgrade", RELEASE, CHART, values=VALUES)
    assert CONDITIONAL not in bundles(kube)
    assert bundles(kube)[entry] == bundle
    assert image(kube) == "registry.example/a:1"
    assert owners(kube) == {"helm"}

    # Back: the release is forgotten, not uninstalled.
    helm.run("upgrade", RELEASE, CHART, values=MORE)
    cluster.kubectl("-n", NAMESPACE, "delete", "secret", "-l", "owner=helm,name=kubevirt-webhook")
    command(cluster, "hand-over", "--from-manager=helm", "--to-manager=kubevirt-webhook-install")
    install(cluster, tmp_path, "two", more=False)
    assert image(kube) == "two:1"
    assert CONDITIONAL not in bundles(kube)
    assert owners(kube) == {"kubevirt-webhook-install"}
    command(cluster, "uninstall")
