"""The manifests, the chart, README's commands, `install`, `uninstall` and `cleanup`, on a real API server."""

from __future__ import annotations

import base64
import copy
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from webhook.cli.main import main
from webhook.cli.serve import serve
from webhook.install import plan
from webhook.install.plan import path

from .conftest import NewWebhook, OwnPlane
from .support import manifests
from .support.access import Access
from .support.helm import CHART, IMAGE, Helm
from .support.installed import ServerReplica
from .support.kube import Json, Kube, KubeError, eventually
from .support.lent import OPERATOR, LentPlane
from .support.manifests import MANIFESTS, kustomization
from .support.pki import ADMIN
from .support.plane import ControlPlane
from .support.processes import ROOT
from .support.program import command, run
from .support.repeated import Repeated
from .support.sizes import DEFAULTS, offer
from .support.tenant import Tenant
from .support.webhook_server import CONFIGURATIONS, DOMAIN, INSTANCETYPES, SCHEDULING, entries
from .support.workloads import VMS, scheduler_of, vm

NAMESPACE = "kubevirt-webhook"
DEPLOYMENT = ("apps/v1/deployments", "kubevirt-webhook", NAMESPACE)
COMPONENTS = sorted(each.name for each in (MANIFESTS / "components").iterdir())
OVERLAYS = ["kubernetes", "openshift"]
# Their kinds are other projects', which a bare API server doesn't serve.
FOREIGN = ("cert-manager", "kubevirt-plugin", "monitoring")


def objects(kube: Kube) -> dict[str, Json]:
    """All objects of the kinds that kubevirt-webhook installs, without what changes by itself."""
    found = {}
    seen, is_there = set(), NAMESPACE in names(kube, "v1/namespaces")
    for manifest in _served_everything():
        collection = plan.path(manifest, collection=True)
        if collection in seen or (manifest["metadata"].get("namespace") and not is_there):
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


def _served_everything() -> list[Json]:
    """All that can be installed, without the Plugin, whose kind a bare API server does not serve."""
    return [one for one in plan.everything(MANIFESTS) if one["kind"] != "Plugin"]


class NodesController(Repeated):
    """Stands for kubelets: pods of the Deployment become ready, a moment after they were made."""

    PAUSE_SECONDS = 0.2

    def __init__(self, kube: Kube) -> None:
        super().__init__()
        self._kube = kube

    def step(self) -> None:
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
        with suppress(KubeError, OSError):
            # Configurations first: replicas that are new afterwards don't count for what was called before.
            found = [one for resource in CONFIGURATIONS for one in self._kube.list(resource)]
            pods = self._kube.list("v1/pods", NAMESPACE)
            self._look(found, sorted(pod["spec"]["containers"][0]["image"] for pod in pods))
            self.looks += 1

    def wait(self) -> None:
        """Until it has looked at what is there now: the look that is under way may have begun before."""
        looks = self.looks + 2
        eventually(lambda: self.looks >= looks, what="a whole look at the webhook configurations")

    def _look(self, found: list[Any], images: list[str]) -> None:
        for configuration in found:
            for entry in configuration.get("webhooks", ()):
                if any(condition["expression"] == "false" for condition in entry.get("matchConditions", ())):
                    continue
                name = str(entry["clientConfig"]["service"]["path"])
                if not entry["clientConfig"].get("caBundle"):
                    self.violations.add(f"{name} is called without caBundle")
                if not images:
                    self.violations.add(f"{name} is called while there are no replicas")
                self.called.setdefault(name, images)


@pytest.fixture(scope="module")
def cluster(module_plane: OwnPlane) -> LentPlane:
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


def test_the_documented_patch_for_argo_cd_adds_to_the_annotations(plane: Access, tmp_path: Path) -> None:
    """cert-manager fills in the caBundles by an annotation: without it, no API server would trust a replica."""
    page = (ROOT / "docs" / "installation.md").read_text()
    (patches,) = re.findall(r"```yaml\n(patches:\n  - target: \{group: admission.*?)```", page, re.DOTALL)
    place = Path(kustomization(tmp_path, "kubernetes", "cert-manager")) / "kustomization.yaml"
    place.write_text(json.dumps(json.loads(place.read_text()) | yaml.safe_load(patches)))

    made = manifests.parse(plane.kubectl("kustomize", str(tmp_path)).stdout)

    configurations = [one for one in made if "webhooks" in one]
    assert [one["kind"][0] for one in configurations] == ["M", "M", "V"]
    for one in configurations:
        assert one["metadata"]["annotations"].keys() == {
            "argocd.argoproj.io/sync-wave",
            "cert-manager.io/inject-ca-from",
        }


def test_the_documented_patch_for_a_prometheus_that_selects_by_a_label(plane: Access, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "installation.md").read_text()
    (patches,) = re.findall(r"```yaml\n(patches:\n  - target: \{group: monitoring.*?)```", page, re.DOTALL)
    place = Path(kustomization(tmp_path, "kubernetes", "monitoring")) / "kustomization.yaml"
    place.write_text(json.dumps(json.loads(place.read_text()) | yaml.safe_load(patches)))

    made = manifests.parse(plane.kubectl("kustomize", str(tmp_path)).stdout)

    labels = {one["kind"]: one["metadata"]["labels"] for one in made if "monitoring.coreos.com" in one["apiVersion"]}
    assert labels.keys() == {"ServiceMonitor", "PrometheusRule"}
    assert all(each["release"] == "kube-prometheus-stack" for each in labels.values())


def test_the_documented_kustomization_with_settings_of_ones_own(plane: Access, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "installation.md").read_text()
    (command, content) = re.findall(
        r"```console\n\$ (kubevirt-webhook manifests install .*)\n```\n\n```yaml\n(.*?)```", page, re.DOTALL
    )[0]
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "settings.yaml").write_text("scheduling: {spread: hostname, clusterWide: true}\n")
    (tmp_path / "kustomization.yaml").write_text(content)
    _, *arguments, _, file = shlex.split(command.replace("IMAGE", "registry.example/kubevirt-webhook:v1"))
    printed = subprocess.run(
        [sys.executable, "-m", "webhook", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (tmp_path / file).write_text(printed.stdout)

    made = manifests.parse(plane.kubectl("kustomize", str(tmp_path)).stdout)

    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    pods = deployment["spec"]["template"]["spec"]["securityContext"]
    assert (pods["runAsUser"], pods["runAsGroup"]) == (65532, 65532)
    (settings,) = (one for one in made if one["kind"] == "ConfigMap" and "settings.yaml" in one["data"])
    assert settings["metadata"]["labels"]["app.kubernetes.io/name"] == "kubevirt-webhook"
    assert {"ServiceMonitor", "PrometheusRule"} <= {one["kind"] for one in made}


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

    made = manifests.parse(plane.kubectl("kustomize", str(place)).stdout)

    rest = [one for one in manifests.rendered(overlay) if one["kind"] != "ConfigMap"]
    assert [one for one in made if one["kind"] != "ConfigMap"] == rest
    assert [one["data"] for one in made if one["kind"] == "ConfigMap"] == [{"settings.yaml": HOSTILE}]


# Of components for which `install` does the same.
SETTINGS = {
    "admin": "admin: {listen: '0.0.0.0:8090'}",
    "layers": "layers: {listen: '0.0.0.0:8446', clientCaFile: /etc/kubevirt-webhook-layers/ca.crt, clientNames: [x]}",
}


# Of the others, all go with OpenShift in `test_kubectl_applies_all_of_it`, and in the tests of the chart.
BY_THEMSELVES = [*SETTINGS, *(each for each in COMPONENTS if each.startswith("metrics-monitoring"))]


@pytest.mark.parametrize(
    ("overlay", "component"), [*product(OVERLAYS[:1], COMPONENTS), *product(OVERLAYS[1:], BY_THEMSELVES)]
)
def test_components_go_with_every_overlay(plane: Access, tmp_path: Path, overlay: str, component: str) -> None:
    base = {one["kind"] + one["metadata"]["name"] for one in manifests.rendered(overlay)}
    # It changes what two others add.
    wanted = ("admin", "monitoring", component) if component.startswith("metrics-monitoring") else (component,)
    made = manifests.parse(plane.kubectl("kustomize", kustomization(tmp_path, overlay, *wanted)).stdout)

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


def test_a_base_by_a_tag_is_that_of_the_repository(plane: Access, tmp_path: Path) -> None:
    repository, own = tmp_path / "repository", tmp_path / "own"
    shutil.copytree(MANIFESTS, repository / "manifests")
    git = ("git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.com")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "1"), ("tag", "v0.1.0")):
        subprocess.run([*git, *arguments], check=True)
    # What comes after the tag counts for nothing.
    shutil.rmtree(repository / "manifests" / "overlays")
    subprocess.run([*git, "commit", "-q", "-a", "-m", "2"], check=True)
    own.mkdir()
    kustomization(own, "kubernetes", "dashboard")
    expected = plane.kubectl("kustomize", str(own)).stdout
    content = json.loads((own / "kustomization.yaml").read_text())
    where = f"file://{repository}//manifests/{{}}?ref=v0.1.0"
    content |= {
        "resources": [where.format("overlays/kubernetes")],
        "components": [where.format("components/dashboard")],
    }
    (own / "kustomization.yaml").write_text(json.dumps(content))

    assert plane.kubectl("kustomize", str(own)).stdout == expected


@pytest.mark.parametrize(("overlay", "way"), [("kubernetes", ()), ("openshift", ("--server-side",))])
def test_kubectl_applies_all_of_it(cluster: ControlPlane, tmp_path: Path, overlay: str, way: tuple[str, ...]) -> None:
    own = kustomization(tmp_path, overlay, *(set(COMPONENTS) - set(FOREIGN)))
    before = objects(cluster.admin)

    # Strict: no field is unknown to the API server.
    done = cluster.kubectl("apply", *way, "--validate=strict", "-k", own)
    assert done.stderr == ""

    # Nothing is a difference then, nor are the caBundles that replicas write, and these stay.
    entry = write_bundle(cluster)
    bundle = bundles(cluster.admin)[entry]
    assert bundle
    assert cluster.kubectl("diff", *way, "-k", own).stdout == ""
    cluster.kubectl("apply", *way, "-k", own)
    assert bundles(cluster.admin)[entry] == bundle

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


def test_from_the_first_installation_to_the_last_object(
    cluster: ControlPlane, replica: ServerReplica, tmp_path: Path
) -> None:
    kube = cluster.admin
    before = objects(kube)

    with NodesController(kube), PodWatcher(kube) as watcher:
        assert command(cluster, "install", "--image=one").stdout.endswith("installed\n")
        # The pods are said to be ready before the one that writes the CA is.
        replica.wait_ready()
        installed = objects(kube)
        assert command(cluster, "install").stdout.endswith("\nno changes\n")
        assert objects(kube) == installed
        watcher.wait()
        assert {tuple(images) for images in watcher.called.values()} == {("one", "one")}

        # More entries than before: they are called only once all old replicas are gone.
        more = settings_file(
            tmp_path,
            scheduling={"virtualMachineInstances": True},
            instancetypes={"fidelityCheck": {"sample": 5}},
            server={"shutdownSeconds": 30},
        )
        command(cluster, "install", f"--config={more}", "--image=two")
        watcher.wait()
        new = {
            name: images for name, images in watcher.called.items() if "/scheduling/virtualmachineinstances/" in name
        }
        assert len(new) == 2
        assert {tuple(images) for images in new.values()} == {("two", "two")}
        assert kube.get(*DEPLOYMENT)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 50
        assert kube.get("rbac.authorization.k8s.io/v1/clusterroles", "kubevirt-webhook-fidelity")

        # And fewer again.
        fewer = settings_file(tmp_path)
        shown = command(cluster, "install", f"--config={fewer}", "--image=one").stdout
        assert "- ClusterRole kubevirt-webhook-fidelity" in shown
        assert not [one for one in entries(kube) if one["name"].startswith("virtualmachineinstances.scheduling.")]
        assert watcher.violations == set()
        assert watcher.looks > 50

    # What the page on certificates says of a replica that was taken over keeps the entries of these settings.
    command(cluster, "install", f"--config={more}", "--no-wait")
    page = (ROOT / "docs" / "certificates.md").read_text().partition("### After a replica was taken over")[2]
    (reading,) = re.findall(r"^\$ kubectl (.+) > settings\.yaml$", page, re.MULTILINE)
    present = tmp_path / "settings.yaml"
    present.write_text(cluster.kubectl(*shlex.split(reading)).stdout)
    emptied = run("manifests", "webhooks", f"--config={present}").stdout
    assert "caBundle" not in emptied
    entries_before = [one["name"] for one in entries(kube)]
    cluster.kubectl("replace", "-f", "-", stdin=emptied)
    assert [one["name"] for one in entries(kube)] == entries_before

    # The command leaves fields of another manager alone, unless an option says otherwise.
    patience = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
    kube.patch(*DEPLOYMENT[:2], patience, NAMESPACE, fieldManager="somebody")
    done = command(cluster, "install", check=False)
    assert done.exit_code == 2
    assert 'conflict with "somebody"' in done.stderr
    assert done.stderr.count("\n") == 1
    command(cluster, "install", "--force-conflicts", "--no-wait")
    assert kube.get(*DEPLOYMENT)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 1

    said = command(cluster, "uninstall").stdout.splitlines()
    deleted = [line for line in said if line.endswith(": deleted")]
    assert all("WebhookConfiguration" in line for line in deleted[:3])
    assert deleted[-1] == "Namespace kubevirt-webhook: deleted"
    assert objects(kube) == before


FIRST = (CONFIGURATIONS[0], "kubevirt-webhook")
CERTIFICATES = "kubevirt-webhook-certificates"
RELEASE = "kubevirt-webhook"
CONDITIONAL = "virtualmachineinstances.scheduling.enforce.kubevirt-webhook.github.io"
# As `install` is called below.
VALUES: dict[str, Any] = {
    "image": {"repository": "registry.example/a", "tag": "1"},
    "settings": {"schedulers": {"kubevirt": {"healthCheck": "off"}}},
}
MORE = {**VALUES, "image": IMAGE, "settings": {**VALUES["settings"], "scheduling": {"virtualMachineInstances": True}}}


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


def test_helm_from_the_first_installation_over_install_to_the_last_object(
    cluster: ControlPlane, namespace: str, helm: Helm, tmp_path: Path
) -> None:
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
    assert bundles(kube)[entry] == bundle
    assert CONDITIONAL in bundles(kube)

    helm.run("rollback", RELEASE, "1")
    assert bundles(kube)[entry] == bundle
    after = installed(kube)
    for found in (first, after):
        for one in found.values():
            for each in one.get("webhooks", ()):
                each["clientConfig"].pop("caBundle", None)
            one["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    assert after == first

    # What an admin deleted in an emergency is back by the command that doctor names.
    entries = bundles(kube).keys()
    kube.delete(*FIRST)
    report = json.loads(command(cluster, "doctor", "-o", "json", check=False).stdout)
    (todo,) = (each["todo"] for each in report["findings"] if each["code"] == "configuration-missing")
    program, *arguments = shlex.split(todo.split('"')[1])
    assert program == "helm"
    helm.run(*(CHART if each == "charts/kubevirt-webhook" else each for each in arguments))
    assert bundles(kube).keys() == entries
    entry = write_bundle(cluster)
    bundle = bundles(kube)[entry]

    # A chart that the API server denies changes nothing that is called.
    wrong = {**VALUES, "tolerations": [{"key": "x", "operator": "Never"}]}
    assert "Deployment.apps" in helm.run("upgrade", RELEASE, CHART, values=wrong, check=False)
    assert image(kube) == "registry.example/a:1"
    assert bundles(kube)[entry] == bundle

    # To `install`: the release is forgotten, not uninstalled.
    helm.run("upgrade", RELEASE, CHART, values=MORE)
    cluster.kubectl("-n", NAMESPACE, "delete", "secret", "-l", "owner=helm,name=kubevirt-webhook")
    command(cluster, "hand-over", "--from-manager=helm", "--to-manager=kubevirt-webhook-install")
    install(cluster, tmp_path, "two", more=False)
    assert image(kube) == "two:1"
    assert CONDITIONAL not in bundles(kube)
    assert owners(kube) == {"kubevirt-webhook-install"}

    # And back: Helm adopts existing objects only with --take-ownership.
    assert "invalid ownership metadata" in helm.run("install", RELEASE, CHART, values=MORE, check=False)
    command(cluster, "hand-over", "--to-manager=helm")
    helm.run("install", RELEASE, CHART, "--take-ownership", values=MORE)
    assert CONDITIONAL in bundles(kube)
    helm.run("upgrade", RELEASE, CHART, values=VALUES)
    assert CONDITIONAL not in bundles(kube)
    assert bundles(kube)[entry] == bundle
    assert image(kube) == "registry.example/a:1"
    assert owners(kube) == {"helm"}

    helm.run("uninstall", RELEASE)
    # Controllers make objects of their own in a new namespace, sooner or later.
    made = {path for path in first.keys() - before.keys() if "kubevirt-webhook" in path.rpartition("/")[2]}
    assert len(made) > 10
    eventually(lambda: not made & installed(kube).keys(), what="all objects to be gone")


def test_install_keeps_the_number_of_replicas_that_others_chose(cluster: ControlPlane, tmp_path: Path) -> None:
    def replicas() -> int:
        return int(cluster.admin.get(*DEPLOYMENT)["spec"]["replicas"])

    install(cluster, tmp_path, "one", more=False)
    assert replicas() == 2
    cluster.kubectl("-n", NAMESPACE, "scale", "deployment", "kubevirt-webhook", "--replicas=3")
    install(cluster, tmp_path, "two", more=True)
    assert (image(cluster.admin), replicas()) == ("two:1", 3)

    # As an admin who edits the Deployment, and one who takes it back.
    cluster.kubectl("-n", NAMESPACE, "patch", "deployment", "kubevirt-webhook", "-p", '{"spec":{"replicas":4}}')
    install(cluster, tmp_path, "three", more=False)
    assert replicas() == 4
    # Nobody owns a scale of 0, so that it is not kept.
    cluster.kubectl("-n", NAMESPACE, "scale", "deployment", "kubevirt-webhook", "--replicas=0")
    install(cluster, tmp_path, "three", more=False)
    assert replicas() == 2

    # Who edits the Deployment owns it: without replicas an installation would end well, and evaluate nothing.
    cluster.kubectl("-n", NAMESPACE, "patch", "deployment", "kubevirt-webhook", "-p", '{"spec":{"replicas":0}}')
    refused = command(cluster, "install", "--no-wait", check=False)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "kubectl -n kubevirt-webhook scale deployment kubevirt-webhook --replicas 2" in refused.stderr
    command(cluster, "install", "--no-wait", "--force-conflicts")
    assert replicas() == 2
    command(cluster, "uninstall")


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


@pytest.mark.control("fields-taken-over")
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


SECTION = re.search(r"^## Install\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
assert SECTION
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(yaml|console)\n(.*?)^```$", SECTION[1], re.MULTILINE | re.DOTALL)
# The first one builds the image.
(_, *CONSOLES) = (text for kind, text in BLOCKS if kind == "console")
COMMANDS = [line.removeprefix("$ ") for text in CONSOLES for line in re.split(r"\n(?=\$ )", text.strip())]
(KUSTOMIZATION,) = (text for kind, text in BLOCKS if kind == "yaml")
# The namespace that Helm installs into is made first.
PREPARING = ("kubectl create namespace ", "kubectl label namespace ")
INSTALLING = [line.split()[0] for line in COMMANDS if not line.startswith(PREPARING)]
assert INSTALLING == ["kubevirt-webhook", "kubectl", "helm"]
REPOSITORY = "registry.example/kubevirt-webhook"
DIGEST = f"sha256:{'5' * 64}"
NAMES = {CONFIGURATIONS[0]: (NAMESPACE, f"zz-{NAMESPACE}"), CONFIGURATIONS[1]: (NAMESPACE,)}


def with_image(text: str) -> str:
    """A text of README's section on installing with an image; nothing else is put in."""
    return text.replace("REGISTRY/kubevirt-webhook", REPOSITORY).replace("sha256:DIGEST", DIGEST)


def test_a_command_installs_everything(
    cluster: ControlPlane, replica: ServerReplica, helm_program: Path, tmp_path: Path
) -> None:
    """Replicas are pods that are said to be ready, and one process, which goes on while each command is tried."""
    kube, checkout = cluster.admin, tmp_path / "checkout"
    # As a reader does, in an empty directory with what the section names.
    for name in ("manifests", "charts"):
        shutil.copytree(ROOT / name, checkout / name)
    (checkout / "kustomization.yaml").write_text(with_image(KUSTOMIZATION))
    programs = (helm_program.parent, cluster.binaries, Path(sys.executable).parent)
    environ = {
        **os.environ,
        "HOME": str(checkout),
        "KUBECONFIG": str(cluster.kubeconfig_for(*ADMIN)),
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
    }
    run_in = partial(subprocess.run, cwd=checkout, env=environ, stdin=subprocess.DEVNULL, capture_output=True)
    base = [one for one in _served_everything() if one["metadata"]["name"] in (NAMESPACE, f"{NAMESPACE}-certificates")]

    def is_trusted() -> bool:
        found = [kube.get(resource, name) for resource, names in NAMES.items() for name in names]
        return all(entry["clientConfig"].get("caBundle") for one in found for entry in one["webhooks"])

    with NodesController(kube):
        for line in COMMANDS:
            done = run_in(["bash", "-c", with_image(line)])
            assert done.returncode == 0, done.stdout + done.stderr
            if line.startswith(PREPARING):
                continue
            (container,) = kube.get(*DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
            assert container["image"] == f"{REPOSITORY}@{DIGEST}"
            assert [one["kind"] for one in base if not kube.request("GET", path(one))] == []
            eventually(is_trusted, what=f"every entry to have a caBundle after {line}")
            command(cluster, "uninstall")
    assert replica.running


ADMINS = "system:masters"


@pytest.mark.control("impersonation-is-sent")
def test_every_request_of_a_command_is_one_of_the_impersonated_user(cluster: LentPlane, tmp_path: Path) -> None:
    """Dropped in silence, `install` and `uninstall` would write with the permissions of the user behind it."""
    log = cluster.requests_of(OPERATOR)
    kubeconfig = cluster.kubeconfig_for(OPERATOR, [ADMINS])
    document = json.loads(kubeconfig.read_text())
    document["users"][0]["user"] |= {
        "as": "ann",
        "as-uid": "1234",
        "as-groups": [ADMINS, "ops"],
        "as-user-extra": {"acme.com/Reason": ["upgrade", "night"]},
    }
    acting = tmp_path / "kubeconfig"
    acting.write_text(yaml.safe_dump(document))

    def act(*arguments: str) -> int:
        return run(*arguments, f"--kubeconfig={acting}", check=False).exit_code

    # By the kubeconfig.
    before = len(log.requests())
    assert act("install", "--image=one", "--no-wait") == 0
    for arguments in (["doctor"], ["explain", "spread", "vm", "-n", "default"], ["uninstall"], ["cleanup"]):
        act(*arguments)
    requests = log.requests()[before:]
    assert {(line["verb"], line["objectRef"]["resource"]) for line in requests} >= {
        ("patch", "namespaces"),
        ("delete", "namespaces"),
        ("patch", "validatingwebhookconfigurations"),
        ("delete", "validatingwebhookconfigurations"),
        ("list", "virtualmachines"),
    }
    for line in requests:
        assert line["impersonatedUser"] == {
            "username": "ann",
            "uid": "1234",
            "groups": [ADMINS, "ops", "system:authenticated"],
            "extra": {"acme.com/reason": ["upgrade", "night"]},
        }, line

    # By the options, in place of the same fields: a user without permissions changes nothing.
    before = len(log.requests())
    assert act("install", "--image=one", "--no-wait", "--as=bob", "--as-group=interns", "--as-group=ops") == 2
    requests = log.requests()[before:]
    assert requests
    for line in requests:
        user = line["impersonatedUser"]
        assert (user["username"], user["groups"]) == ("bob", ["interns", "ops", "system:authenticated"])
    assert not cluster.admin.list("admissionregistration.k8s.io/v1/mutatingwebhookconfigurations")


def marks(found: Mapping[str, Any]) -> set[str]:
    inner = found["spec"]["template"].get("metadata", {}).get("annotations", {})
    outer = found["metadata"].get("annotations", {})
    return {key.rpartition("/")[2] for key in (*outer, *inner) if key.startswith(f"{DOMAIN}/injected-")}


@pytest.fixture
def marked(own_plane: OwnPlane, tmp_path: Path) -> Iterator[Tenant]:
    """A namespace whose VMs got schedulers and sizes from a trial of the server, which does not look at it any more."""
    plane = own_plane()
    with ExitStack() as servers:
        server = NewWebhook(plane, tmp_path, servers)({"schedulers": {"kubevirt": {"healthCheck": "off"}}})
        labels = server.labels("enforce", (SCHEDULING, INSTANCETYPES))
        yield _mark(Tenant(server, plane.admin.make_namespace("e2e-", labels, DEFAULTS)))


def _mark(tenant: Tenant) -> Tenant:
    offer(tenant, "small", "linux")
    for name in ("stopped", "running", "chosen"):
        made = tenant.create(vm(name))
        assert marks(made) == {"injected-scheduler", "injected-instancetype", "injected-preference"}, made
        assert scheduler_of(made) == "kubevirt"
    for policy in (SCHEDULING, INSTANCETYPES):
        tenant.label(None, policy)
    eventually(lambda: marks(tenant.create(vm("probe"), dryRun="All")) == set(), what="the labels' end to be known")
    tenant.owner.create(VMS, vm("plain", scheduler="kubevirt"), tenant.namespace)
    tenant.owner.patch(VMS, "chosen", {"spec": {"template": {"spec": {"schedulerName": "theirs"}}}}, tenant.namespace)
    tenant.owner.patch(VMS, "running", {"status": {"created": True}}, tenant.namespace, subresource="status")
    return tenant


def found(tenant: Tenant, name: str) -> Json:
    return tenant.owner.get(VMS, name, tenant.namespace)


@pytest.mark.control("fields-of-others")
def test_cleanup_takes_back_what_is_ours(marked: Tenant) -> None:
    access, where = marked.server.access, f"--namespace={marked.namespace}"
    stored = {name: found(marked, name) for name in ("stopped", "running", "chosen", "plain")}

    # It could put everything back.
    refused = command(access, "cleanup", where, check=False)
    assert refused.exit_code == 2
    assert all(name in refused.stderr for _, name in marked.server.configurations())
    assert {name: found(marked, name) for name in stored} == stored
    marked.server.stop()

    shown = command(access, "cleanup", where, "--dry-run").stdout
    assert {name: found(marked, name) for name in stored} == stored
    assert f"VirtualMachine {marked.namespace}/stopped: remove schedulerName kubevirt" in shown
    assert f"{marked.namespace}/running: skipped " in shown
    assert "plain" not in shown

    cleaned = command(access, "cleanup", where).stdout
    assert cleaned.endswith("cleaned 3/3 VMs\n1 running VM keeps what is skipped above\n")
    assert [scheduler_of(found(marked, name)) for name in stored] == [None, "kubevirt", "theirs", "kubevirt"]
    assert [marks(found(marked, name)) for name in stored] == [set(), {"injected-scheduler"}, set(), set()]
    # Its template is as it was: it requires no restart.
    assert found(marked, "running")["spec"] == stored["running"]["spec"]
    for name in ("stopped", "running", "chosen"):
        for field in ("instancetype", "preference"):
            assert found(marked, name)["spec"][field] == stored[name]["spec"][field]
    assert found(marked, "plain")["metadata"]["resourceVersion"] == stored["plain"]["metadata"]["resourceVersion"]

    assert "no VM to clean" in command(access, "cleanup", where).stdout
    command(access, "cleanup", where, "--allow-restart-required")
    assert scheduler_of(found(marked, "running")) is None
    assert marks(found(marked, "running")) == set()
    assert command(access, "cleanup", where).stdout.endswith("no VM to clean\n")
