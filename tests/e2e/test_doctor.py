"""`doctor` on a real control plane: green on a whole installation, and red for what is broken in it.

The manifests are the real ones but for the Deployment: without a kubelet, a process on loopback stands in for its pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from webhook.install.registration import RegistrationTarget, configurations
from webhook.settings_file import load

from .conftest import OwnPlane
from .support import manifests
from .support.helm import Helm, is_of_a_test
from .support.installed import SETTINGS as INSTALLED
from .support.installed import Balancer, ServerReplica
from .support.kube import Json, eventually
from .support.lent import OPERATOR, LentPlane
from .support.objects import ensure_namespace, make_node, obj
from .support.pki import ADMIN, Identity
from .support.plane import KUBEVIRT_SCHEDULER, HeldLease
from .support.program import command
from .support.rbac import grant, may
from .support.webhook_server import INSTANCETYPES, SCHEDULING, entries

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


@dataclass(frozen=True)
class Installed:
    """A cluster with KubeVirt, a second scheduler, and a replica that the API server reaches under a URL."""

    plane: LentPlane
    settings: Path
    url: str

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
    plane = module_plane()
    admin = plane.admin
    # KubeVirt as its operator leaves it, and the manifests of kubevirt-webhook.
    admin.apply(obj("KubeVirt", "kubevirt", namespace="kubevirt", spec={}))
    status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.8.1"}
    admin.patch("kubevirt.io/v1/kubevirts", "kubevirt", {"status": status}, "kubevirt", subresource="status")
    admin.apply(obj(CONFIGURATION_KINDS[0], "virt-api-mutator"))
    make_node(admin, "node-a")
    ensure_namespace(admin, "kubevirt-webhook")
    for document in manifests.rendered("kubernetes"):
        if document["kind"] not in ("Deployment", *CONFIGURATION_KINDS):
            admin.apply(document)
    make_scheduler(plane)
    admin.patch("v1/namespaces", "default", {"metadata": {"labels": {SCHEDULING: "enforce"}}})

    with Balancer() as balancer:
        url = f"https://localhost:{balancer.port}"
        replica = ServerReplica(
            plane, tmp_path_factory.mktemp("replicas") / "replica", url, ["--tls=managed"], SETTINGS
        )
        settings = replica.log.with_name("installed.settings.json")
        for manifest in configurations(load(settings), RegistrationTarget(url=url)):
            admin.apply(manifest)
        replica.start()
        try:
            replica.wait_ready()
            balancer.endpoints.append(replica.port)
            trusted = lambda: all(entry["clientConfig"].get("caBundle") for entry in entries(admin))
            eventually(trusted, what="every caBundle")
            yield Installed(plane, settings, url)
        finally:
            replica.kill()


def make_scheduler(plane: LentPlane) -> None:
    """A process on loopback with a Lease; what would run it in a cluster has only its configuration."""
    plane.start_scheduler("kubevirt", KUBEVIRT_SCHEDULER, lease=LEASE)
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    lease = {"resourceNamespace": LEASE.namespace, "resourceName": LEASE.name}
    whole = {**config, **KUBEVIRT_SCHEDULER, "leaderElection": {"leaderElect": True, **lease}}
    data = {"config.yaml": yaml.safe_dump(whole)}
    plane.admin.apply(obj("ConfigMap", LEASE.name, namespace=LEASE.namespace, data=data))
    labels = {"app": "scheduler"}
    volumes = [{"name": "config", "configMap": {"name": LEASE.name}}]
    pod = {"containers": [{"name": "scheduler", "image": "kube-scheduler"}], "volumes": volumes}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    plane.admin.apply(obj("Deployment", LEASE.name, namespace=LEASE.namespace, spec=spec))


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


@pytest.mark.control("account-of-helm-test")
def test_the_account_of_helm_test_may_do_what_it_takes_and_nothing_else(
    installed: Installed, helm_program: Path, tmp_path: Path
) -> None:
    admin = installed.plane.admin
    roles = [one for one in Helm(helm_program, tmp_path).template() if is_of_a_test(one) and "rules" in one]
    for role in roles:
        grant(admin, OPERATOR, role["rules"], role["metadata"].get("namespace", ""))
    for where, defaults in DEFAULTS.items():
        ensure_namespace(admin, where)
        change = {"labels": {INSTANCETYPES: "enforce"}, "annotations": defaults}
        admin.patch("v1/namespaces", where, {"metadata": change})
    operator = installed.plane.kube(OPERATOR)
    eventually(lambda: may(operator, "list", "pods", "kubevirt-webhook"), what="the authorizer to know")
    log = installed.plane.requests_of(OPERATOR)

    # As a pod reads it: settings and server by the objects of the cluster, in which no Service leads to the replica.
    command(installed.plane, "doctor", user=Identity(OPERATOR), check=False)
    granted = manifests.granted(roles)
    assert granted - log.used() == set(), "granted, and never used"
    # VMs and roles are their owners' concern, and who reads the CA's Secret has its key.
    refused = {resource for _, _, resource, name in log.refused() if not name}
    assert refused == {*("pods", "virtualmachineinstances", "virtualmachinepools", "clusterroles", "deployments")}

    findings = installed.findings(0, user=OPERATOR)
    assert "failure" not in {finding["verdict"] for finding in findings}
    well = {finding["check"] for finding in findings if finding["verdict"] == "ok"}
    assert well >= {"webhooks", "selectors", "certificates", "rights", "deployment", "order", "kubevirt", "clock"}
