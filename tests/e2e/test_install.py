"""The manifests, and `install`, `uninstall` and `cleanup`, on a real API server with the controllers of a cluster."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from webhook.cli.serve import serve
from webhook.install import plan
from webhook.install.cleanup import Cleanup
from webhook.k8s.client.transport import connect

from .conftest import NewTenant, NewWebhook, OwnPlane
from .support import manifests
from .support.access import Access
from .support.installed import Replica
from .support.kube import ApiError, Json, Kube, eventually
from .support.manifests import MANIFESTS
from .support.plane import ControlPlane
from .support.sizes import DEFAULTS, offer
from .support.tenant import Tenant
from .support.webhook_server import CONFIGURATIONS, DOMAIN, INSTANCETYPES, ROOT, SCHEDULING
from .support.workloads import MARK, VMS, scheduler_of, vm

NAMESPACE = "kubevirt-webhook"
DEPLOYMENT = ("apps/v1/deployments", "kubevirt-webhook", NAMESPACE)
COMPONENTS = sorted(each.name for each in (MANIFESTS / "components").iterdir())
OVERLAYS = ["kubernetes", "openshift"]
# Their kinds are other projects', which a bare API server doesn't serve.
FOREIGN = ("cert-manager", "monitoring")


def command(access: Access, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs the program as the cluster's admin."""
    kubeconfig = access.kubeconfig_for("admin", ("system:masters",))
    program = [sys.executable, "-m", "webhook", *map(str, arguments), f"--kubeconfig={kubeconfig}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL, timeout=120)
    assert "Traceback" not in done.stderr
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def objects(kube: Kube) -> dict[str, Json]:
    """All that there is of the kinds that we install, without what changes by itself."""
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
    except ApiError:
        return False


class Nodes:
    """What kubelets do here: pods of our Deployment become ready, a moment after they were made."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.2):
            with suppress(ApiError, OSError):
                for pod in self._kube.list("v1/pods", NAMESPACE):
                    if pod["status"].get("phase") != "Running":
                        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                        status = {"phase": "Running", "conditions": [ready]}
                        name = pod["metadata"]["name"]
                        self._kube.patch("v1/pods", name, {"status": status}, NAMESPACE, subresource="status")


class Watcher:
    """Looks at the webhook configurations all the time, and keeps what must never be seen."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.violations: set[str] = set()
        # Entries by the images of the replicas that were there when they were first called.
        self.called: dict[str, list[str]] = {}
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.02):
            with suppress(ApiError, OSError):
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
    """Whose tests take away all that they install."""
    return module_plane(controller_manager=True)


@pytest.fixture
def replica(cluster: ControlPlane, tmp_path: Path) -> Iterator[Replica]:
    """One that runs beside the Deployment's pods, as their account: it makes the CA and writes the caBundles."""
    settings = {"schedulers": {"kubevirt": {"guard": "off"}}, "server": {"drainSeconds": 1}}
    one = Replica(cluster, tmp_path / "replica", "", ["--tls=managed"], settings)
    one.start()
    yield one
    one.kill()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_the_program_carries_is_what_kustomize_makes(plane: Access, overlay: str) -> None:
    made = plane.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay)).stdout

    assert made == (MANIFESTS / "rendered" / f"{overlay}.yaml").read_text(), "run kubectl kustomize anew"


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
    wanted = ("metrics", "monitoring", component) if component == "metrics-monitoring" else (component,)
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
    serve.make_context(name, arguments)
    assert all(one["metadata"]["labels"]["app.kubernetes.io/name"] == "kubevirt-webhook" for one in more)


def kustomization(directory: Path, overlay: str, *components: str) -> str:
    """A directory with a kustomization of somebody's own."""

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
    with pytest.raises(ApiError, match="violates PodSecurity"):
        cluster.admin.create("v1/pods", loose, NAMESPACE)

    cluster.kubectl("delete", "-k", own, timeout=90)
    assert objects(cluster.admin) == before


def settings_file(directory: Path, **sections: Any) -> Path:
    file = directory / f"settings-{secrets.token_hex(2)}.yaml"
    file.write_text(yaml.safe_dump({"schedulers": {"kubevirt": {"guard": "off"}}, **sections}))
    return file


def entries(kube: Kube) -> list[str]:
    return [
        entry["name"] for resource in CONFIGURATIONS for one in kube.list(resource) for entry in one.get("webhooks", ())
    ]


def test_from_the_first_installation_to_the_last_object(
    cluster: ControlPlane, replica: Replica, tmp_path: Path
) -> None:
    kube = cluster.admin
    before = objects(kube)

    first = command(cluster, "install", "--dry-run").stdout
    assert "+ Deployment kubevirt-webhook/kubevirt-webhook" in first
    assert objects(kube) == before

    with Nodes(kube), Watcher(kube) as watcher:
        assert command(cluster, "install", "--image=one").stdout.endswith("installed\n")
        installed = objects(kube)
        assert command(cluster, "install").stdout == "no changes\n"
        assert objects(kube) == installed
        assert {tuple(images) for images in watcher.called.values()} == {("one", "one")}
        assert command(cluster, "cleanup", check=False).stderr.startswith(
            "Error: MutatingWebhookConfiguration kubevirt-webhook: "
        )

        # More entries than before: they are called only once all old replicas are gone.
        more = settings_file(
            tmp_path,
            scheduling={"virtualMachineInstances": True},
            instancetypes={"parity": {"sample": 5}},
            server={"drainSeconds": 30},
        )
        shown = command(cluster, "install", f"--config={more}", "--image=two", "--dry-run").stdout
        assert "+ ClusterRole kubevirt-webhook-parity" in shown
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
        assert kube.get("rbac.authorization.k8s.io/v1/clusterroles", "kubevirt-webhook-parity")
        # Settings and image stay where none are given.
        assert command(cluster, "install").stdout == "no changes\n"

        # And fewer again.
        fewer = settings_file(tmp_path)
        shown = command(cluster, "install", f"--config={fewer}", "--image=one").stdout
        assert "- ClusterRole kubevirt-webhook-parity" in shown
        assert not [name for name in entries(kube) if name.startswith("virtualmachineinstances.scheduling.")]
        assert watcher.violations == set()
        assert watcher.looks > 50

    # Somebody else's fields are left to him, unless told otherwise.
    kube.patch(*DEPLOYMENT[:2], {"spec": {"replicas": 3}}, NAMESPACE, fieldManager="somebody")
    done = command(cluster, "install", check=False)
    assert done.returncode == 2
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
    assert command(cluster, "uninstall").stdout == "kubevirt-webhook is not installed\n"


def test_replicas_that_do_not_become_ready_are_told(own_plane: OwnPlane) -> None:
    cluster = own_plane(controller_manager=True)
    done = command(cluster, "install", "--timeout=2", check=False)

    assert done.returncode == 2
    assert "0/2 replicas are ready" in done.stderr
    assert done.stderr.count("\n") == 1
    # What nobody serves is not called.
    conditions = [
        entry["matchConditions"]
        for resource in CONFIGURATIONS
        for one in cluster.admin.list(resource)
        for entry in one["webhooks"]
    ]
    assert conditions
    assert all(each == [{"name": "not-yet-served", "expression": "false"}] for each in conditions)


# -- cleanup -----------------------------------------------------------------------------------------------------------


def marks(found: Mapping[str, Any]) -> set[str]:
    """All marks on a VM and its template."""
    inner = found["spec"]["template"].get("metadata", {}).get("annotations", {})
    outer = found["metadata"].get("annotations", {})
    return {key.rpartition("/")[2] for key in (*outer, *inner) if key.startswith(f"{DOMAIN}/injected-")}


@pytest.fixture
def marked(new_tenant: NewTenant) -> Tenant:
    """A namespace whose VMs got schedulers and sizes from the server, and which it doesn't look at any more."""
    tenant = offer(new_tenant(annotations=DEFAULTS, policies=(SCHEDULING, INSTANCETYPES)), "small", "linux")
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


def test_cleanup_takes_back_what_is_ours(marked: Tenant) -> None:
    access, where = marked.server.access, f"--namespace={marked.namespace}"
    stored = {name: found(marked, name) for name in ("stopped", "running", "chosen", "plain")}

    shown = command(access, "cleanup", where, "--dry-run").stdout
    assert {name: found(marked, name) for name in stored} == stored
    assert f"VirtualMachine {marked.namespace}/stopped: remove schedulerName kubevirt and annotation" in shown
    assert f"{marked.namespace}/running: skipped because the VM is running: remove schedulerName" in shown
    assert "plain" not in shown

    assert command(access, "cleanup", where).stdout.endswith("cleaned 3/3 VMs\n")
    assert [scheduler_of(found(marked, name)) for name in stored] == [None, "kubevirt", "theirs", "kubevirt"]
    assert [marks(found(marked, name)) for name in stored] == [set(), {"injected-scheduler"}, set(), set()]
    # Its template is as it was: no restart is asked for.
    assert found(marked, "running")["spec"] == stored["running"]["spec"]
    for name in ("stopped", "running", "chosen"):
        for field in ("instancetype", "preference"):
            assert found(marked, name)["spec"][field] == stored[name]["spec"][field]
    assert found(marked, "plain")["metadata"]["resourceVersion"] == stored["plain"]["metadata"]["resourceVersion"]

    assert "no VM to clean" in command(access, "cleanup", where).stdout
    command(access, "cleanup", where, "--allow-restart-required")
    assert scheduler_of(found(marked, "running")) is None
    assert marks(found(marked, "running")) == set()
    assert command(access, "cleanup", where).stdout == "no VM to clean\n"


def test_cleanup_takes_injected_constraints_back_and_leaves_the_owners(
    new_webhook: NewWebhook, new_tenant: NewTenant
) -> None:
    scheduling = {"spread": "both", "spreadVirtualMachines": True}
    tenant = new_tenant(server=new_webhook({"schedulers": {}, "scheduling": scheduling}))
    access, where = tenant.server.access, f"--namespace={tenant.namespace}"
    for name in ("ours", "theirs"):
        assert marks(tenant.create(vm(name))) == {"injected-spread"}
    tenant.label(None, SCHEDULING)
    eventually(lambda: marks(tenant.create(vm("probe"), dryRun="All")) == set(), what="the label's end to be known")
    own = [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
    template = {"spec": {"topologySpreadConstraints": own}}
    tenant.owner.patch(VMS, "theirs", {"spec": {"template": template}}, tenant.namespace)

    assert command(access, "cleanup", where).stdout.endswith("cleaned 2/2 VMs\n")

    ours, theirs = (found(tenant, name) for name in ("ours", "theirs"))
    assert "topologySpreadConstraints" not in ours["spec"]["template"]["spec"]
    assert theirs["spec"]["template"]["spec"]["topologySpreadConstraints"] == own
    assert marks(ours) == marks(theirs) == set()


def test_cleanup_says_what_it_can_not_change(marked: Tenant) -> None:
    """A webhook of somebody's that refuses every change, or a VM that has changed meanwhile: here it is gone."""
    access = marked.server.access

    async def clean_late() -> list[str]:
        api = await connect(str(access.kubeconfig_for("admin", ("system:masters",))))
        try:
            work = Cleanup(api, marked.namespace)
            tasks = {one.name: one for one in await work.tasks(allow_restart_required=False)}
            marked.owner.patch(VMS, "stopped", {"metadata": {"annotations": {MARK: "another"}}}, marked.namespace)
            marked.owner.delete(VMS, "chosen", marked.namespace)
            return [await work.clean(tasks[name]) for name in ("stopped", "chosen")]
        finally:
            await api.close()

    late, gone = asyncio.run(clean_late())
    assert late.startswith("the VM has changed in the meantime")
    assert gone == ""
    assert scheduler_of(found(marked, "stopped")) == "kubevirt"
