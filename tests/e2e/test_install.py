"""The manifests, and `install`, `uninstall` and `cleanup`, on a real API server with the controllers of a cluster."""

from __future__ import annotations

import base64
import copy
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from webhook.cli.main import main
from webhook.cli.serve import serve
from webhook.install import plan

from .conftest import OwnPlane
from .support import manifests
from .support.access import Access
from .support.installed import ServerReplica
from .support.kube import Json, Kube, KubeError, eventually
from .support.manifests import MANIFESTS
from .support.plane import ControlPlane
from .support.program import command
from .support.repeated import Repeated
from .support.webhook_server import CONFIGURATIONS

NAMESPACE = "kubevirt-webhook"
DEPLOYMENT = ("apps/v1/deployments", "kubevirt-webhook", NAMESPACE)
COMPONENTS = sorted(each.name for each in (MANIFESTS / "components").iterdir())
OVERLAYS = ["kubernetes", "openshift"]
# Their kinds are other projects', which a bare API server doesn't serve.
FOREIGN = ("cert-manager", "monitoring")


def objects(kube: Kube) -> dict[str, Json]:
    """All objects of the kinds that kubevirt-webhook installs, without what changes by itself."""
    found = {}
    seen = set()
    for manifest in plan.everything(MANIFESTS):
        collection = plan.path(manifest, collection=True)
        if collection in seen or (manifest["metadata"].get("namespace") and not _exists(kube, NAMESPACE)):
            continue
        seen.add(collection)
        for item in kube.request("GET", collection)["items"]:
            for field in ("managedFields", "resourceVersion", "generation"):
                item["metadata"].pop(field, None)
            item.pop("status", None)
            if "aggregationRule" in item:
                # A controller fills it when it comes to it.
                item.pop("rules", None)
            found[f"{collection}/{item['metadata']['name']}"] = item
    return found


def _exists(kube: Kube, namespace: str) -> bool:
    try:
        return bool(kube.get("v1/namespaces", namespace))
    except KubeError:
        return False


class NodesController(Repeated):
    """Stands for kubelets: pods of the Deployment become ready, a moment after they were made."""

    PAUSE_SECONDS = 0.2

    def __init__(self, kube: Kube) -> None:
        super().__init__()
        self._kube = kube

    def step(self) -> None:
        """Start the pods that are new."""
        with suppress(KubeError, OSError):
            for pod in self._kube.list("v1/pods", NAMESPACE):
                if pod["status"].get("phase") != "Running":
                    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                    status = {"phase": "Running", "conditions": [ready]}
                    name = pod["metadata"]["name"]
                    self._kube.patch("v1/pods", name, {"status": status}, NAMESPACE, subresource="status")


class PodWatcher(Repeated):
    """Looks at the webhook configurations all the time, and keeps what must never be seen."""

    PAUSE_SECONDS = 0.05

    def __init__(self, kube: Kube) -> None:
        super().__init__()
        self._kube = kube
        self.violations: set[str] = set()
        # Entries by the images of the replicas that were there when they were first called.
        self.called: dict[str, list[str]] = {}
        self.looks = 0

    def step(self) -> None:
        """Look once."""
        with suppress(KubeError, OSError):
            # Configurations first: replicas that are new afterwards don't count for what was called before.
            found = [one for resource in CONFIGURATIONS for one in self._kube.list(resource)]
            pods = self._kube.list("v1/pods", NAMESPACE)
            self._look(found, sorted(pod["spec"]["containers"][0]["image"] for pod in pods))
            self.looks += 1

    def _look(self, found: list[Any], images: list[str]) -> None:
        for configuration in found:
            for entry in configuration.get("webhooks", ()):
                if any(condition["expression"] == "false" for condition in entry["matchConditions"]):
                    continue
                name = str(entry["clientConfig"]["service"]["path"])
                if not entry["clientConfig"].get("caBundle"):
                    self.violations.add(f"{name} is called without caBundle")
                if not images:
                    self.violations.add(f"{name} is called while there are no replicas")
                self.called.setdefault(name, images)


@pytest.fixture(scope="module")
def cluster(module_plane: OwnPlane) -> ControlPlane:
    """A plane whose tests remove all that they install."""
    return module_plane(controller_manager=True)


@pytest.fixture
def replica(cluster: ControlPlane, tmp_path: Path) -> Iterator[ServerReplica]:
    """One that runs beside the Deployment's pods, as their account: it makes the CA and writes the caBundles."""
    settings = {"schedulers": {"kubevirt": {"healthCheck": "off"}}, "server": {"shutdownSeconds": 1}}
    one = ServerReplica(cluster, tmp_path / "replica", "", ["--tls=managed"], settings)
    one.start()
    yield one
    one.kill()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_the_program_carries_is_what_kustomize_makes(plane: Access, overlay: str) -> None:
    made = plane.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay)).stdout

    assert made == (MANIFESTS / "rendered" / f"{overlay}.yaml").read_text(), "run kubectl kustomize again"


HOSTILE = """\
kubevirt: {namespace: "a\\n---\\nkind: ClusterRoleBinding"}
# {{ .Values.image }} $(NAMESPACE) ${HOME} `id`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: owned}
...
\u2028\tend: 'of it'
"""


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_settings_are_one_value_for_kustomize_whatever_stands_in_them(
    plane: Access, tmp_path: Path, overlay: str
) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    place = tmp_path / "manifests" / "overlays" / overlay
    (place / "settings.yaml").write_text(HOSTILE)

    made = list(yaml.safe_load_all(plane.kubectl("kustomize", str(place)).stdout))

    rest = [one for one in manifests.rendered(overlay) if one["kind"] != "ConfigMap"]
    assert [one for one in made if one["kind"] != "ConfigMap"] == rest
    assert [one["data"] for one in made if one["kind"] == "ConfigMap"] == [{"settings.yaml": HOSTILE}]


# Of components for which `install` does the same.
SETTINGS = {
    "explain": "explain: {listen: '0.0.0.0:8090'}",
    "layers": "layers: {listen: '0.0.0.0:8446', clientCaFile: /etc/kubevirt-webhook-layers/ca.crt, clientNames: [x]}",
}


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_components_go_with_every_overlay(plane: Access, tmp_path: Path, overlay: str, component: str) -> None:
    base = {one["kind"] + one["metadata"]["name"] for one in manifests.rendered(overlay)}
    # It changes what two others add.
    wanted = ("metrics", "monitoring", component) if component.startswith("metrics-monitoring") else (component,)
    made = list(yaml.safe_load_all(plane.kubectl("kustomize", kustomization(tmp_path, overlay, *wanted)).stdout))

    more = [one for one in made if one["kind"] + one["metadata"]["name"] not in base]
    # Scores for layers need no further permission.
    assert bool(more) is (component != "layers")
    if component in SETTINGS:
        text = (MANIFESTS / "overlays" / overlay / "settings.yaml").read_text()
        planned = plan.of(MANIFESTS, overlay, f"{text}{SETTINGS[component]}\n", "", "")  # type: ignore[arg-type]
        kinds = ("Service", "NetworkPolicy")
        assert [one for one in planned.before if one["kind"] in kinds] == [one for one in made if one["kind"] in kinds]
        (deployment,) = (one for one in made if one["kind"] == "Deployment")
        pods = [one["spec"]["template"]["spec"] for one in (planned.deployment, deployment)]
        assert pods[0]["volumes"] == pods[1]["volumes"]
        assert pods[0]["containers"][0]["volumeMounts"] == pods[1]["containers"][0]["volumeMounts"]
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    name, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert name == serve.name
    # Below the program's context: click keeps the help option that a command's first context made.
    serve.make_context(name, arguments, parent=click.Context(main, **main.context_settings))
    assert all(one["metadata"]["labels"]["app.kubernetes.io/name"] == "kubevirt-webhook" for one in more)


def kustomization(directory: Path, overlay: str, *components: str) -> str:
    """Writes a directory with an admin's own kustomization."""

    def relative(*parts: str) -> str:
        return os.path.relpath(MANIFESTS.joinpath(*parts), directory.resolve())

    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [relative("overlays", overlay)],
        "components": [relative("components", component) for component in components],
        "images": [{"name": "kubevirt-webhook", "newName": "registry.example/kubevirt-webhook", "newTag": "1"}],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(content))
    return str(directory)


@pytest.mark.parametrize(
    ("overlay", "way"), [("kubernetes", ()), ("kubernetes", ("--server-side",)), ("openshift", ("--server-side",))]
)
def test_kubectl_applies_all_of_it(cluster: ControlPlane, tmp_path: Path, overlay: str, way: tuple[str, ...]) -> None:
    own = kustomization(tmp_path, overlay, *(set(COMPONENTS) - set(FOREIGN)))
    before = objects(cluster.admin)

    # Strict: no field is unknown to the API server.
    done = cluster.kubectl("apply", *way, "--validate=strict", "-k", own)
    assert done.stderr == ""
    assert cluster.kubectl("diff", *way, "-k", own).stdout == ""

    # The caBundles that replicas write are no difference, and stay.
    entry = {"name": cluster.admin.get(CONFIGURATIONS[0], "kubevirt-webhook")["webhooks"][0]["name"]}
    bundle = base64.b64encode(cluster.pki.ca.read_bytes()).decode()
    change = {"webhooks": [{**entry, "clientConfig": {"caBundle": bundle}}]}
    written = {"fieldManager": "kubevirt-webhook-certificates"}
    cluster.admin.patch(CONFIGURATIONS[0], "kubevirt-webhook", change, kind="strategic", **written)
    assert cluster.kubectl("diff", *way, "-k", own).stdout == ""
    cluster.kubectl("apply", *way, "-k", own)
    kept = cluster.admin.get(CONFIGURATIONS[0], "kubevirt-webhook")["webhooks"][0]["clientConfig"]
    assert kept["caBundle"] == bundle

    # The API server's own controller looks at the level that the FlowSchema names; one that was asked before it had
    # seen the level says first that there is none.
    def is_taken_up() -> bool:
        status = cluster.admin.get("flowcontrol.apiserver.k8s.io/v1/flowschemas", "kubevirt-webhook").get("status", {})
        dangling: Json = (status.get("conditions") or [{}])[0]
        return dangling.get("status") == "False"

    assert eventually(is_taken_up, what="the FlowSchema to be taken up")
    # PodSecurity's restricted lets the Deployment's pods in, into a namespace that enforces it.
    pods = eventually(lambda: cluster.admin.list("v1/pods", NAMESPACE), what="pods of the Deployment")
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"default-scheduler"}
    assert {pod["spec"]["priority"] for pod in pods} == {1_000_000_000}
    template = cluster.admin.get(*DEPLOYMENT)["spec"]["template"]
    loose = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}, "spec": copy.deepcopy(template["spec"])}
    del loose["spec"]["securityContext"]["seccompProfile"]
    with pytest.raises(KubeError, match="violates PodSecurity"):
        cluster.admin.create("v1/pods", loose, NAMESPACE)

    cluster.kubectl("delete", "-k", own)
    assert objects(cluster.admin) == before


def settings_file(directory: Path, **sections: Any) -> Path:
    file = directory / f"settings-{secrets.token_hex(2)}.yaml"
    file.write_text(yaml.safe_dump({"schedulers": {"kubevirt": {"healthCheck": "off"}}, **sections}))
    return file


def entries(kube: Kube) -> list[str]:
    return [
        entry["name"] for resource in CONFIGURATIONS for one in kube.list(resource) for entry in one.get("webhooks", ())
    ]


def test_from_the_first_installation_to_the_last_object(
    cluster: ControlPlane, replica: ServerReplica, tmp_path: Path
) -> None:
    kube = cluster.admin
    before = objects(kube)

    first = command(cluster, "install", "--image=one", "--dry-run").stdout
    assert "+ Deployment kubevirt-webhook/kubevirt-webhook" in first
    assert objects(kube) == before

    with NodesController(kube), PodWatcher(kube) as watcher:
        assert command(cluster, "install", "--image=one").stdout.endswith("installed\n")
        installed = objects(kube)
        assert command(cluster, "install").stdout.endswith("\nno changes\n")
        assert objects(kube) == installed
        assert {tuple(images) for images in watcher.called.values()} == {("one", "one")}
        assert command(cluster, "cleanup", check=False).stderr.startswith(
            "Error: MutatingWebhookConfiguration kubevirt-webhook: "
        )

        # More entries than before: they are called only once all old replicas are gone.
        more = settings_file(
            tmp_path,
            scheduling={"virtualMachineInstances": True},
            instancetypes={"fidelityCheck": {"sample": 5}},
            server={"shutdownSeconds": 30},
        )
        shown = command(cluster, "install", f"--config={more}", "--image=two", "--dry-run").stdout
        assert "+ ClusterRole kubevirt-webhook-fidelity" in shown
        changed = [line.split() for line in shown.splitlines() if "image: " in line]
        assert changed == [["-", "image:", "one"], ["+", "image:", "two"]]
        assert objects(kube) == installed
        command(cluster, "install", f"--config={more}", "--image=two")
        new = {
            name: images for name, images in watcher.called.items() if "/scheduling/virtualmachineinstances/" in name
        }
        assert len(new) == 2
        assert {tuple(images) for images in new.values()} == {("two", "two")}
        assert kube.get(*DEPLOYMENT)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 50
        assert kube.get("rbac.authorization.k8s.io/v1/clusterroles", "kubevirt-webhook-fidelity")
        # Settings and image stay where none are given.
        assert command(cluster, "install").stdout.endswith("\nno changes\n")

        # And fewer again.
        fewer = settings_file(tmp_path)
        shown = command(cluster, "install", f"--config={fewer}", "--image=one").stdout
        assert "- ClusterRole kubevirt-webhook-fidelity" in shown
        assert not [name for name in entries(kube) if name.startswith("virtualmachineinstances.scheduling.")]
        assert watcher.violations == set()
        assert watcher.looks > 50

    # The command leaves fields of another manager alone, unless an option says otherwise.
    kube.patch(*DEPLOYMENT[:2], {"spec": {"replicas": 3}}, NAMESPACE, fieldManager="somebody")
    done = command(cluster, "install", check=False)
    assert done.exit_code == 2
    assert 'conflict with "somebody"' in done.stderr
    assert done.stderr.count("\n") == 1
    command(cluster, "install", "--force-conflicts", "--no-wait")
    assert kube.get(*DEPLOYMENT)["spec"]["replicas"] == 2

    present = objects(kube)
    assert "- Secret kubevirt-webhook/kubevirt-webhook-ca" in command(cluster, "uninstall", "--dry-run").stdout
    assert objects(kube) == present
    said = command(cluster, "uninstall").stdout.splitlines()
    deleted = [line for line in said if line.endswith(": deleted")]
    assert all("WebhookConfiguration" in line for line in deleted[:3])
    assert deleted[-1] == "Namespace kubevirt-webhook: deleted"
    assert objects(kube) == before
    assert command(cluster, "uninstall").stdout.endswith("\nkubevirt-webhook is not installed\n")


def test_replicas_that_do_not_become_ready_are_told(own_plane: OwnPlane) -> None:
    cluster = own_plane(controller_manager=True)
    done = command(cluster, "install", "--image=one", "--timeout=2", check=False)

    assert done.exit_code == 2
    assert "0/2 replicas are ready" in done.stderr
    assert done.stderr.count("\n") == 1
    # No node at all: the scheduler's own words, and the command that shows more; nothing is left to change, and no
    # run says that all is well.
    for again in (done, command(cluster, "install", "--timeout=1", check=False)):
        assert again.exit_code == 2
        assert "describe pod kubevirt-webhook-" in again.stderr
    # The API server does not call an endpoint that no replica serves.
    conditions = [
        entry["matchConditions"]
        for resource in CONFIGURATIONS
        for one in cluster.admin.list(resource)
        for entry in one["webhooks"]
    ]
    assert conditions
    assert all(each == [{"name": "not-yet-served", "expression": "false"}] for each in conditions)
