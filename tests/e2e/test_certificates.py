"""Certificates on a real API server, its own and cert-manager's; with failurePolicy Fail any fault would deny a VM."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from certs.rotation import RotationEvent
from hack.controlplane.build import location
from hack.controlplane.bundles import CERT_MANAGER
from tests.builders import review

from .conftest import OwnPlane
from .support import cert_manager, manifests, versions
from .support.access import Access
from .support.installed import SECRET, LiveInstallation, ServerReplica, SteadyReviews
from .support.kube import Json, Kube, denial, denied, eventually
from .support.lent import LentPlane
from .support.machine import address_of_this_machine
from .support.migrations import EAST, WEST, MigrationMover, guest, migration
from .support.objects import ZONE, ensure_namespace, make_node, obj
from .support.pki import Pki, service_account
from .support.program import command
from .support.rbac import grant
from .support.webhook_server import CONFIGURATIONS, MIGRATION, TIMEOUT_SECONDS, WebhookServer, entries

MUTATING = CONFIGURATIONS[0]
MANAGED = "--tls=managed"
ASKED = "virtualmachines.scheduling.enforce"
FIRST = "kubevirt-webhook"
VALIDATING = "ValidatingWebhookConfiguration"
NewInstallation = Callable[..., LiveInstallation]


@pytest.fixture(scope="module")
def cluster(module_plane: OwnPlane) -> Access:
    return module_plane()


# What an API server reads from a file, and no API shows.
UNSEEN_RULE = {"operations": ["CREATE"], "apiGroups": ["a.example"], "apiVersions": ["v1"], "resources": ["a"]}
UNSEEN_CLIENT = {"name": "policy.example.com", "clientConfig": {"url": "https://localhost:9/policy"}}
HARMLESS = {"admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore"}
UNSEEN = obj(VALIDATING, "policy.static.k8s.io", webhooks=[{**UNSEEN_CLIENT, "rules": [UNSEEN_RULE], **HARMLESS}])


@dataclass(frozen=True)
class ProvingPlane:
    """A control plane with one node whose API server authenticates to webhooks, and what it authenticates with.

    Its token is none at first; it reads the file again once it is restarted.
    """

    plane: LentPlane
    clients: Pki
    token: Path


@pytest.fixture(scope="module")
def proving(module_plane: OwnPlane, tmp_path_factory: pytest.TempPathFactory) -> ProvingPlane:
    directory = tmp_path_factory.mktemp("proving")
    clients, token, config = Pki(directory / "clients"), directory / "token", directory / "admission"
    token.write_text("none-yet")
    pem = str(clients.client("apiserver"))
    user = {"client-certificate": pem, "client-key": pem, "tokenFile": str(token)}
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
    (directory / "kubeconfig").write_text(json.dumps(kubeconfig))
    version = {"apiVersion": "apiserver.config.k8s.io/v1"}
    own = {**version, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": str(directory / "kubeconfig")}
    kinds = {"Mutating": own, "Validating": own}
    flags = [f"--admission-control-config-file={config}"]
    if versions.WEBHOOK_TOKENS.is_there:
        flags.append("--feature-gates=APIServerWebhookAuthenticationToken=true")
        (directory / "static").mkdir()
        (directory / "static" / "policy.json").write_text(json.dumps(UNSEEN))
        kinds["Validating"] = {**own, "staticManifestsDir": str(directory / "static")}
    plugins = [{"name": f"{kind}AdmissionWebhook", "configuration": each} for kind, each in kinds.items()]
    config.write_text(json.dumps({**version, "kind": "AdmissionConfiguration", "plugins": plugins}))
    plane = module_plane(apiserver_flags=flags)
    make_node(plane.admin, "node-a", EAST)
    return ProvingPlane(plane, clients, token)


@pytest.fixture
def new_installation(tmp_path: Path) -> Iterator[NewInstallation]:
    """Installs into a plane; further arguments are those of `serve`."""
    with ExitStack() as ends:

        def make(access: Access, *arguments: str) -> LiveInstallation:
            ends.callback(clear, access.admin)
            installed = ends.enter_context(LiveInstallation(access, tmp_path, *arguments))
            installed.timeout = TIMEOUT_SECONDS
            return installed

        yield make


class CalmReviews(SteadyReviews):
    """Ten in each second: without a pause they would take the processor from the rotations that they watch."""

    PAUSE_SECONDS = 0.2


def clear(kube: Kube) -> None:
    """Removes the installed objects, once no replica restores them."""
    for resource in CONFIGURATIONS:
        kube.delete_all(resource)
    denial(lambda: kube.delete(*SECRET))  # not every installation has one


@pytest.mark.control("ca-secret-edited", "rotation-breaks-calls")
def test_rotation_healing_and_gitops_under_load(cluster: Access, new_installation: NewInstallation) -> None:
    """From the first start of replicas, before the configurations, to their replacement one by one."""
    installed = new_installation(cluster, MANAGED)
    first, second = installed.start(ready=False), installed.start(ready=False)
    eventually(lambda: "does not exist yet" in first.ops("/readyz")[1], what="readiness to tell")

    installed.apply()
    for replica in (first, second):
        replica.wait_ready()
        installed.balancer.endpoints.append(replica.port)
    tenant = installed.tenant()

    assert installed.secret()["data"].keys() == {"ca.crt", "ca.key", "rotated"}

    def bundles() -> set[str | None]:
        return {entry["clientConfig"].get("caBundle") for entry in entries(cluster.admin, MUTATING)}

    # Another replica may still write its own round of them.
    eventually(lambda: bundles() == {installed.secret()["data"]["ca.crt"]}, what="the caBundles")
    match = 'kubevirt_webhook_ca_bundle_match{configuration="%s"} 1.0'
    wanted = [match % name for name in ("MutatingWebhookConfiguration/zz-kubevirt-webhook", f"{VALIDATING}/{FIRST}")]
    eventually(lambda: all(line in first.ops("/metrics")[1] for line in wanted), what="the probe to find them")
    expiry = "kubevirt_webhook_certificate_expiry_timestamp_seconds"
    assert first.metric(expiry, certificate="serving") > time.time()
    assert first.metric(expiry, certificate="ca") > time.time() + 3000

    with CalmReviews(tenant) as load:
        ca = installed.secret()["data"]["ca.crt"]
        installed.rotate()
        # A GitOps tool at work meanwhile: entries reordered, others than the load's taken away and put back.
        for _ in range(5):
            reordered = installed.manifests()
            reordered[0]["webhooks"].reverse()
            installed.apply(reordered)
            pruned = installed.manifests()[:1]
            pruned[0]["webhooks"] = [entry for entry in pruned[0]["webhooks"] if ASKED in entry["name"]]
            installed.apply(pruned)
            installed.apply()
        ca = installed.wait_serving(ca)

        cluster.admin.delete(*SECRET)
        installed.wait_serving(ca)
        replace_under_load(installed)
    assert load.failures == []
    assert load.done > 100
    assert None not in bundles()

    # One that replaces the object takes the caBundle away; it is back at the next look.
    found = cluster.admin.get(MUTATING, FIRST)
    for entry in found["webhooks"]:
        del entry["clientConfig"]["caBundle"]
    cluster.admin.replace(MUTATING, found)
    eventually(lambda: tenant.choice() == "kubevirt", what="the caBundle to be back")
    said = [line["event"] for replica in (first, second) for line in replica.logged()]
    assert RotationEvent.MISSING in said
    assert all("Traceback" not in replica.log.read_text() for replica in (first, second, *installed.replicas))


def replace_under_load(installed: LiveInstallation) -> None:
    """As in a rollout: the endpoint goes a second after SIGTERM, and open connections stay."""
    for _ in range(2):
        old = installed.replicas[0]
        installed.start()
        old.terminate()
        eventually(lambda: old.ops("/readyz")[0] == 503, what="readiness to end")  # noqa: B023
        time.sleep(1)
        installed.remove(old)
        assert old.wait_ended() == 0


@pytest.mark.kubernetes(versions.BALANCED_CALLS)
def test_rotations_and_replaced_replicas_while_each_call_goes_to_another_endpoint(
    own_plane: OwnPlane, new_installation: NewInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With WebhookRoundTripLoadBalancing, calls do not follow one connection, and no Service's proxy is between."""
    if not (address := address_of_this_machine()):
        pytest.skip("this machine has no address but those of its loopback interface")
    monkeypatch.setattr(WebhookServer, "host", address)
    # By default an API server sends no token, and the server keeps the head of each connection's requests.
    plane = own_plane(apiserver_flags=["--enable-aggregator-routing=true"])
    installed = new_installation(plane, MANAGED)
    installed.url = ""
    ports = [{"name": "webhook", "port": 443}]
    plane.admin.apply(obj("Service", FIRST, namespace=NAMESPACE, spec={"ports": ports, "clusterIP": "None"}))

    def publish(replica: ServerReplica, *, ready: bool = True) -> None:
        slice_ = obj("EndpointSlice", f"e-{replica.port}", "discovery.k8s.io/v1", namespace=NAMESPACE)
        slice_["metadata"]["labels"] = {"kubernetes.io/service-name": FIRST}
        endpoints = [{"addresses": [address], "conditions": {"ready": ready}}]
        at = [{"name": "webhook", "port": replica.port}]
        plane.admin.apply({**slice_, "addressType": "IPv4", "endpoints": endpoints, "ports": at})

    installed.apply()
    first, second = installed.start(), installed.start()
    publish(first)
    publish(second)
    tenant = installed.tenant()
    with CalmReviews(tenant, threads=2) as reviews:
        # One client with few connections reaches both, without that one of them ends.
        answered = [
            partial(replica.metric, "kubevirt_webhook_requests_total", code="200") for replica in (first, second)
        ]
        eventually(lambda: all(count() > 20 for count in answered), what="both replicas to be called")
        ca = installed.secret()["data"]["ca.crt"]
        installed.rotate()
        installed.wait_serving(ca)
        third = installed.start()
        publish(third)
        publish(first, ready=False)
        first.terminate()
        assert first.wait_ended() == 0
        installed.remove(first)
        done = reviews.done
        eventually(lambda: reviews.done > done + 20, what="reviews after the replacement")
    assert reviews.failures == []
    assert third.metric("kubevirt_webhook_requests_total", code="200")


@pytest.mark.control("strangers-send-reviews", "pods-claim-to-be-admins", "reveals-nodes")
def test_the_api_servers_client_certificate(proving: ProvingPlane, new_installation: NewInstallation) -> None:
    """What happens to other clients, and when their CA changes, is in tests/server/test_connection.py."""
    installed = new_installation(proving.plane, MANAGED, f"--client-ca={proving.clients.ca}", "--client-name=apiserver")
    installed.apply()
    replica = installed.start()
    tenant = installed.tenant()

    with pytest.raises(ValueError, match="Expecting value"):  # the sentence is not JSON
        replica.ask("/mutate/scheduling/virtualmachines/enforce", {})
    assert replica.metric("kubevirt_webhook_requests_total", code="403") == 1

    # The API server vouches for the user, so the answer may hold what that user may list.
    tenant.label("enforce", MIGRATION)
    mover = MigrationMover(tenant, guest(nodeSelector=EAST))
    message = denied(lambda: mover.ask(WEST)).message
    assert f"node-a: without {ZONE}=west" in message


@pytest.mark.control("stolen-tokens")
@pytest.mark.kubernetes(versions.WEBHOOK_TOKENS)
def test_an_api_servers_token_and_stolen_ones(
    proving: ProvingPlane, new_installation: NewInstallation, tmp_path: Path
) -> None:
    """Issued by the real API server, and sent by it from a file, as 1.37 sends none by itself."""
    plane = proving.plane
    installed = new_installation(plane, MANAGED)
    installed.apply()
    replica = installed.start()
    tenant = installed.tenant()
    tenant.label("enforce", MIGRATION)
    mover = MigrationMover(tenant, guest(nodeSelector=EAST))

    def told() -> bool:
        """Whether an admin is shown the names of nodes."""
        message = denied(lambda: mover.ask(WEST)).message
        assert (f"node-a: without {ZONE}=west" in message) == ("node-a" in message)
        return "node-a" in message

    assert not told()
    assert replica.metric("kubevirt_webhook_sender_tokens_total", result="malformed")

    account = ("kube-system", "webhook-auth")
    rule = {"apiGroups": ["authentication.k8s.io"], "resources": ["admissionReviewAPIGroups"], "verbs": ["attest"]}
    grant(plane.admin, service_account(*account).user, [{**rule, "resourceNames": ["*"]}])
    other = {**installed.manifests()[0], "metadata": {"name": "other"}, "webhooks": []}
    plane.admin.apply(other)

    def issued(audience: str, configuration: str = FIRST) -> str:
        reference = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": other["kind"], "name": configuration}
        attested: Json = {"boundObjectRef": reference, "attestations": {"admissionReviewAPIGroups": ["*"]}}
        return plane.token(*account, audiences=[audience], expirationSeconds=600, **attested)

    valid = eventually(lambda: issued(installed.url), what="the authorizer to know who may attest")
    proving.token.write_text(valid)
    plane.restart_apiserver()
    eventually(told, what="the token to be verified by keys that were read")

    moving = {**migration(mover.name, WEST), "metadata": {"name": "move", "namespace": tenant.namespace}}
    who = {"username": "admin", "groups": ["system:masters"]}
    asked = review(moving, namespace=tenant.namespace, userInfo=who)
    path = "/validate/migration/virtualmachineinstancemigrations/enforce"

    def names_nodes(token: str) -> bool:
        return "node-a" in replica.ask(path, asked, token)["response"]["status"]["message"]

    tokens = {
        "valid": valid,
        "of another webhook": issued("https://other.example/validate"),
        "of another configuration": issued(installed.url, "other"),
        "of any pod": plane.token(*account, audiences=[installed.url]),
    }
    assert [name for name, token in tokens.items() if names_nodes(token)] == ["valid"]
    count = partial(replica.metric, "kubevirt_webhook_sender_tokens_total")
    assert [count(result=result) for result in ("not-bound", "other-audience")] == [2, 1]

    (tmp_path / "settings.yaml").write_text("{}")
    done = command(plane, "doctor", "-o", "json", f"--config={tmp_path / 'settings.yaml'}", check=False)
    found = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "api-server"]
    assert {each["code"] for each in found} == {"tokens-issued", "configured-by-files"}
    assert "ValidatingAdmissionWebhook" in next(each["found"] for each in found if each["verdict"] == "unknown")


NAMESPACE = "kubevirt-webhook"
INJECTED = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{NAMESPACE}"}


@pytest.fixture(scope="module")
def injected(module_plane: OwnPlane) -> Iterator[Access]:
    """A control plane with cert-manager, the component's objects, and configurations into which the CA is written."""
    if not location(os.environ, bundle=CERT_MANAGER).is_dir():
        pytest.skip("cert-manager is not built; make e2e-node builds it")
    plane = module_plane()
    with cert_manager.running(plane):
        ensure_namespace(plane.admin, NAMESPACE)
        manifests.apply(plane.admin, "components/cert-manager/certificate.yaml")
        eventually(lambda: certificates(plane), what="the serving certificate to be issued")
        client = {"service": {"name": NAMESPACE, "namespace": NAMESPACE, "path": "/none"}}
        same = {"sideEffects": "None", "admissionReviewVersions": ["v1"]}
        entry = {"name": "none.example.org", "clientConfig": client, **same}
        for resource in CONFIGURATIONS:
            plane.admin.create(resource, {"metadata": {"name": "x", "annotations": INJECTED}, "webhooks": [entry]})
        yield plane


def certificates(access: Access) -> tuple[x509.Certificate, x509.Certificate] | None:
    """The serving certificate, and the CA beside it, which cainjector writes into the configurations."""
    for secret in access.admin.list("v1/secrets", NAMESPACE):
        if secret["metadata"]["name"] == "kubevirt-webhook-serving":
            data = {key: base64.b64decode(value) for key, value in secret["data"].items()}
            return x509.load_pem_x509_certificate(data["tls.crt"]), x509.load_pem_x509_certificate(data["ca.crt"])
    return None


def trusted(access: Access) -> list[list[x509.Certificate]]:
    """The CAs that the API server trusts, for each configuration."""
    entries = [access.admin.get(resource, "x")["webhooks"][0] for resource in CONFIGURATIONS]
    found = [base64.b64decode(one["clientConfig"].get("caBundle", "")) for one in entries]
    return [x509.load_pem_x509_certificates(pem) if pem else [] for pem in found]


@pytest.mark.control("cert-manager-renews-the-ca", "cert-managers-key-leaks")
def test_a_new_ca_trusts_what_the_former_one_has_signed(injected: Access) -> None:
    """Replicas serve with the former certificate until kubelets bring the next one: the caBundle is new at once."""
    before = certificates(injected)
    assert before
    written = [[before[1]]] * len(CONFIGURATIONS)
    eventually(lambda: trusted(injected) == written, what="cainjector to write the CA into every entry")
    cert_manager.renew(injected, "kubevirt-webhook-ca", NAMESPACE)
    cert_manager.renew(injected, NAMESPACE, NAMESPACE)

    after = certificates(injected)
    assert after
    assert after[1] != before[1]
    before[0].verify_directly_issued_by(after[1])
    after[0].verify_directly_issued_by(after[1])
    after[0].verify_directly_issued_by(before[1])
    # cainjector adds the new CA to the former one.
    eventually(lambda: all(after[1] in bundle for bundle in trusted(injected)), what="cainjector to write the new CA")

    def is_alone() -> bool:
        for resource, bundle in zip(CONFIGURATIONS, trusted(injected), strict=True):
            if before[1] in bundle:
                remove = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
                injected.admin.patch(resource, "x", remove, kind="json")
        return trusted(injected) == [[after[1]]] * len(CONFIGURATIONS)

    # A former CA whose key has leaked is trusted until it is removed; a cainjector that is late writes it once more.
    eventually(is_alone, what="cainjector to write the present CA alone")
