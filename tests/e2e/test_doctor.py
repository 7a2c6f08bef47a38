"""`doctor` on a real control plane: green on a whole installation, and red for what is broken in it.

The manifests are the real ones but for the Deployment: without a kubelet, a process on loopback stands in for its pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from webhook.install.registration import RegistrationTarget, configurations
from webhook.settings.file import load

from .conftest import OwnPlane
from .support import manifests
from .support.commands import KUBEVIRT_SCHEDULER, HeldLease
from .support.helm import Helm, is_of_a_test
from .support.installed import SETTINGS as INSTALLED
from .support.installed import Balancer, ServerReplica
from .support.kube import Json, eventually
from .support.lent import OPERATOR, LentPlane
from .support.objects import ensure_namespace, make_node, obj
from .support.pki import ADMIN, Identity
from .support.processes import ROOT
from .support.program import command
from .support.rbac import grant, may
from .support.webhook_server import INSTANCETYPES, SCHEDULING, entries

ROLES = "rbac.authorization.k8s.io/v1/clusterroles"
LEASE = HeldLease("kubevirt-scheduler", "kubevirt-scheduler")
SETTINGS = {**INSTALLED, "schedulers": {"kubevirt": {"healthCheck": f"lease {LEASE.namespace}/{LEASE.name}"}}}
# Of two namespaces, by objects of all kinds.
DEFAULTS = {
    f"{kind.lower()}-defaults": {
        f"kubevirt-webhook.github.io/default-{what.lower()}": f"{kind}{what}/none"
        for what in ("Instancetype", "Preference")
    }
    for kind in ("VirtualMachine", "VirtualMachineCluster")
}
CONFIGURATION_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class Installed:
    def __init__(self, plane: LentPlane, directory: Path, balancer: Balancer) -> None:
        self.plane = plane
        self.admin = plane.admin
        self._balancer = balancer
        self.url = f"https://localhost:{balancer.port}"
        self.replica = ServerReplica(plane, directory / "replica", self.url, ["--tls=managed"], SETTINGS)

    @property
    def settings(self) -> Path:
        return self.replica.log.with_name("installed.settings.json")

    def make(self) -> None:
        """Makes KubeVirt as its operator leaves it, and the manifests of kubevirt-webhook."""
        self.admin.apply(obj("KubeVirt", "kubevirt", namespace="kubevirt", spec={}))
        status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.8.1"}
        self.admin.patch("kubevirt.io/v1/kubevirts", "kubevirt", {"status": status}, "kubevirt", subresource="status")
        self.admin.apply(obj(CONFIGURATION_KINDS[0], "virt-api-mutator"))
        make_node(self.admin, "node-a")
        ensure_namespace(self.admin, "kubevirt-webhook")
        for document in yaml.safe_load_all((ROOT / "manifests" / "rendered" / "kubernetes.yaml").read_text()):
            if document["kind"] not in ("Deployment", *CONFIGURATION_KINDS):
                self.admin.apply(document)
        self._make_scheduler()
        labels = {"metadata": {"labels": {SCHEDULING: "enforce"}}}
        self.admin.patch("v1/namespaces", "default", labels)

    def _make_scheduler(self) -> None:
        """A process on loopback with a Lease; what would run it in a cluster has only its configuration."""
        self.plane.start_scheduler("kubevirt", KUBEVIRT_SCHEDULER, lease=LEASE)
        config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        lease = {"resourceNamespace": "kubevirt-scheduler", "resourceName": "kubevirt-scheduler"}
        whole = {**config, **KUBEVIRT_SCHEDULER, "leaderElection": {"leaderElect": True, **lease}}
        data = {"config.yaml": yaml.safe_dump(whole)}
        self.admin.apply(obj("ConfigMap", LEASE.name, namespace=LEASE.namespace, data=data))
        labels = {"matchLabels": {"app": "scheduler"}}
        pod = {
            "containers": [{"name": "scheduler", "image": "kube-scheduler"}],
            "volumes": [{"name": "config", "configMap": {"name": LEASE.name}}],
        }
        spec = {"selector": labels, "template": {"metadata": {"labels": labels["matchLabels"]}, "spec": pod}}
        self.admin.apply(obj("Deployment", LEASE.name, namespace=LEASE.namespace, spec=spec))

    def start(self) -> None:
        """The replica, and the configurations with its caBundles."""
        for manifest in configurations(load(self.settings), RegistrationTarget(url=self.url)):
            self.admin.apply(manifest)
        self.replica.start()
        self.replica.wait_ready()
        self._balancer.endpoints[:] = [self.replica.port]
        trusted = lambda: all(entry["clientConfig"].get("caBundle") for entry in entries(self.admin))
        eventually(trusted, what="every caBundle")

    def findings(self, status: int, *, user: str = "") -> list[Json]:
        """Its findings; it must exit with this status."""
        identity = Identity(user) if user else ADMIN
        words = ("doctor", "--output=json", f"--config={self.settings}", f"--url={self.url}")
        done = command(self.plane, *words, user=identity, check=False)
        assert done.exit_code == status, done.output
        report = json.loads(done.stdout)
        assert report["schemaVersion"] == 1
        found: list[Json] = report["findings"]
        return found


@pytest.fixture(scope="module")
def installed(
    module_plane: OwnPlane, kube_scheduler: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    with ExitStack() as ends:
        replicas = tmp_path_factory.mktemp("replicas")
        whole = Installed(module_plane(), replicas, ends.enter_context(Balancer()))
        ends.callback(whole.replica.kill)
        whole.make()
        whole.start()
        yield whole


def failures(findings: list[Json]) -> list[Json]:
    return [finding for finding in findings if finding["verdict"] == "failure"]


def test_a_whole_installation_has_no_failure(installed: Installed) -> None:
    findings = installed.findings(0)

    assert [finding for finding in findings if finding["verdict"] == "warning"] == []
    well = {finding["check"] for finding in findings if finding["verdict"] == "ok"}
    assert well >= {"webhooks", "selectors", "certificates", "rights", "schedulers", "order", "kubevirt", "clock"}
    assert {finding["check"] for finding in findings if finding["verdict"] == "unknown"} == {"effect"}
    scheduler = [finding["code"] for finding in findings if finding["check"] == "schedulers"]
    assert scheduler == ["available", "profile-correct"]
    served = [finding for finding in findings if finding["subject"] == installed.url]
    assert [finding["code"] for finding in served] == ["served-trusted"]

    # For people, one line a finding.
    words = ("doctor", "--strict", f"--config={installed.settings}", f"--url={installed.url}")
    done = command(installed.plane, *words, check=False)
    assert done.exit_code == 3
    assert done.stdout.splitlines()[-1].endswith(" ok")
    assert "MutatingWebhookConfiguration kubevirt-webhook: " in done.stdout


def test_the_account_of_helm_test_may_do_what_it_takes_and_nothing_else(
    installed: Installed, helm_program: Path, tmp_path: Path
) -> None:
    roles = [one for one in Helm(helm_program, tmp_path).template() if is_of_a_test(one) and "rules" in one]
    for role in roles:
        grant(installed.admin, OPERATOR, role["rules"], role["metadata"].get("namespace", ""))
    for where, defaults in DEFAULTS.items():
        ensure_namespace(installed.admin, where)
        change = {"labels": {INSTANCETYPES: "enforce"}, "annotations": defaults}
        installed.admin.patch("v1/namespaces", where, {"metadata": change})
    operator = installed.plane.kube(OPERATOR)
    eventually(lambda: may(operator, "list", "pods", "kubevirt-webhook"), what="the authorizer to know")
    log = installed.plane.requests_of(OPERATOR)

    # As a pod reads it: settings and server by the objects of the cluster, in which no Service leads to the replica.
    command(installed.plane, "doctor", user=Identity(OPERATOR), check=False)
    granted = manifests.granted(roles)
    assert granted - log.used() == set(), "granted, and never used"
    # VMs and roles are their owners' concern, and who reads the CA's Secret has its key.
    refused = {resource for _, _, resource, name in log.refused() if not name}
    assert refused == {*("pods", "virtualmachinepools", "clusterroles", "deployments")}

    findings = installed.findings(0, user=OPERATOR)
    assert failures(findings) == []
    well = {finding["check"] for finding in findings if finding["verdict"] == "ok"}
    assert well >= {"webhooks", "selectors", "certificates", "rights", "deployment", "order", "kubevirt", "clock"}
