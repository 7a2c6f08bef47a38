"""The bundle for OLM: operator-framework's own checks accept it, and what OLM makes of its webhooks works."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from certs.source import self_signed
from hack import bundle
from hack.controlplane.bundles import OLM, Bundle

from .conftest import OwnPlane
from .support.installed import ServerReplica
from .support.kube import PATIENCE, eventually
from .support.rbac import account, grant, may
from .support.tenant import Tenant
from .support.webhook_server import ACCOUNT, CONFIGURATIONS, INSTANCETYPES, SCHEDULING, TIMEOUT_SECONDS
from .support.workloads import vm

pytestmark = pytest.mark.builds(OLM.name)

IMAGE = "registry.example/kubevirt-webhook@sha256:" + "a" * 64


@pytest.fixture
def olm_bundle(built: Callable[[Bundle], Path]) -> Path:
    return built(OLM) / "olm-bundle"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    directory = tmp_path / "bundle"
    bundle.main([f"--image={IMAGE}", f"--output={directory}", "--maintainer=Ann=ann@example.com"])
    return directory


def findings(program: Path, directory: Path) -> list[str]:
    done = subprocess.run([program, directory], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == int(bool(done.stdout)), done.stderr
    return done.stdout.splitlines()


def test_the_library_of_operator_sdk_accepts_the_bundle(olm_bundle: Path, written: Path) -> None:
    # It takes the permission to read node.k8s.io/v1, whose v1beta1 alone was removed, for a use of that.
    assert [line for line in findings(olm_bundle, written) if "Migrate the API(s) for runtimeclasses" not in line] == []

    # It can fail: an account that OLM makes itself, and no mode of installation.
    file = written / "manifests" / "kubevirt-webhook.clusterserviceversion.yaml"
    csv = yaml.safe_load(file.read_text())
    csv["spec"]["installModes"], csv["spec"]["icon"][0]["mediatype"] = [], "text/html"
    file.write_text(yaml.safe_dump(csv))
    own = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kubevirt-webhook"}}
    (written / "manifests" / "account.yaml").write_text(yaml.safe_dump(own))
    text = "\n".join(findings(olm_bundle, written))
    for part in ("install modes not found", "does not have a valid mediatype", "invalid service account found"):
        assert part in text


@pytest.mark.control("olm-without-a-selector")
def test_the_configurations_that_olm_makes_call_for_every_namespace_and_change_what_has_opted_in(
    own_plane: OwnPlane, olm_bundle: Path, written: Path, tmp_path: Path
) -> None:
    plane = own_plane()
    log = plane.requests_of(ACCOUNT.user)
    csv = yaml.safe_load((written / "manifests" / "kubevirt-webhook.clusterserviceversion.yaml").read_text())
    (permissions,) = csv["spec"]["install"]["spec"]["clusterPermissions"]
    grant(plane.admin, "olm", permissions["rules"], subject=account("kubevirt-webhook", "kubevirt-webhook"))
    eventually(lambda: may(plane.kube(*ACCOUNT), "list", "nodes", ""), what="the authorizer to know")
    pair = self_signed(["localhost"])
    for name, text in (("apiserver.crt", pair.certificate), ("apiserver.key", pair.key)):
        (tmp_path / name).write_bytes(text)
    files = [f"--tls-cert={tmp_path / 'apiserver.crt'}", f"--tls-key={tmp_path / 'apiserver.key'}"]
    settings = {"schedulers": {"kubevirt": {"healthCheck": "off"}}}
    replica = ServerReplica(plane, tmp_path / "replica", "", ["--tls=mounted", *files], settings)
    replica.start()
    try:
        replica.wait_ready()
        done = subprocess.run([olm_bundle, written, "infra"], input=pair.certificate, capture_output=True, check=True)
        for made in json.loads(done.stdout):
            (entry,) = made["webhooks"]
            service = entry["clientConfig"].pop("service")
            assert (service["namespace"], service["name"]) == ("infra", "kubevirt-webhook-service")
            assert service["port"] == 8443
            entry["clientConfig"]["url"] = f"https://localhost:{replica.port}{service['path']}"
            entry["timeoutSeconds"] = TIMEOUT_SECONDS
            plane.admin.create(CONFIGURATIONS[made["kind"].startswith("Validating")], made)

        policies = (SCHEDULING, INSTANCETYPES)
        enforcing, warned, other = (Tenant.new(replica, mode, policies) for mode in ("enforce", "warn", None))
        eventually(lambda: enforcing.choice() == "kubevirt", what="the API server to call the replica")
        launched = enforcing.launch(enforcing.start(enforcing.create(vm("web"))))
        assert launched["spec"]["schedulerName"] == "kubevirt"
        assert enforcing.audit("Pod", "/mutate/scheduling/pods/enforce")

        # Once, though no namespaceSelector distinguishes what enforces from what observes.
        said = warned.kubectl(vm("web")).stderr
        assert said.count("would set") == 1, said
        for tenant in (warned, other):
            assert tenant.choice() is None
        assert set(other.verdicts()) == {"skipped out-of-scope"}
        # Those of `install`, whose caBundles it would compare with its certificate.
        refused = {resource for _, _, resource, _ in log.refused()}
        assert refused == {"mutatingwebhookconfigurations"}
    finally:
        replica.kill()
