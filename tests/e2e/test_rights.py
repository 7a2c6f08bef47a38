"""What the server's account may do: the manifests grant what it uses and nothing else, also to a taken-over replica."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import launcher_pod, review
from tests.cluster.fake_apiserver import FakeClock
from webhook.install.registration import configurations
from webhook.k8s.client.transport import connect
from webhook.kubevirt.config import DEFAULTS
from webhook.names import policy_label
from webhook.policies.defaults.policy import POLICY as DEFAULTS_POLICY
from webhook.policies.instancetypes.settings import FidelitySettings
from webhook.policies.preemption.settings import PREEMPTION
from webhook.server.drift_scan.policy_reports import Reports
from webhook.server.events.writer import WINDOW_SECONDS, Event, EventWriter
from webhook.server.fidelity_check.check import FidelityCheck
from webhook.settings_file import default_settings

from .conftest import OwnPlane
from .support import manifests
from .support.access import Access
from .support.foreign_webhook import DESCHEDULER, evict
from .support.installed import SETTINGS, LiveInstallation
from .support.kube import Json, Kube, KubeError, denial, denied, eventually
from .support.objects import ensure_namespace, make_node, obj
from .support.pki import KUBE_SCHEDULER
from .support.processes import free_port
from .support.sizes import SIZED_TEMPLATE
from .support.tenant import Tenant
from .support.webhook_server import ACCOUNT, CONFIGURATIONS, DOMAIN, EVICTION, INSTANCETYPES, SCHEDULING, fetch
from .support.workloads import MIGRATIONS, PODS, VMIS, VMS, launcher_of, vm

MIGRATION = f"{DOMAIN}/migration"
POLICY_REPORTS = "wgpolicyk8s.io/v1alpha2/policyreports"
DEVICE = "vendor.example/device"
# Every capability that sends requests to the API server.
EVERYTHING = {
    **SETTINGS,
    "schedulers": {"kubevirt": {"healthCheck": "pods"}, "other": {"healthCheck": "lease other/other"}},
    "migration": {"requireRight": True, "maxUnfinished": 5},
    # One that every API server has.
    "defaults": {"priorityClassName": "system-node-critical"},
    "preemption": {"requestMigrations": True, "maxPriority": 2_147_483_647},
    "headroom": {"enabled": True},
    "events": True,
    "driftScan": {"everyMinutes": 60},
}


@pytest.mark.control(
    "impostor-of-the-webhook",
    "volumes-of-other-namespaces",
    "nodes-of-a-volume",
    "account-reads-too-much",
    "runtime-classes",
    "takeover-rewrites-configurations",
    "takeover-keeps-access",
    "takeover-reads-secrets",
    "takeover-asks-permissions",
    "takeover-writes-reports",
)
def test_every_right_is_used_and_none_is_missing(own_plane: OwnPlane, tmp_path: Path) -> None:
    plane = own_plane()
    log = plane.requests_of(ACCOUNT.user)
    port = free_port()
    settings = {**EVERYTHING, "admin": {"listen": f"0.0.0.0:{port}"}}
    with LiveInstallation(plane, tmp_path, "--tls=managed", settings=settings) as installed:
        installed.apply()
        installed.start()
        tenant = Tenant.new(installed.replicas[0], None)
        tenant.owner.create(VMS, vm("older"), tenant.namespace)
        # The last one last: once the API server knows of it, it knows of all.
        others = map(policy_label, (DEFAULTS_POLICY.name, PREEMPTION))
        for policy in (*others, INSTANCETYPES, EVICTION, MIGRATION, SCHEDULING):
            tenant.label("enforce", policy)
        eventually(lambda: tenant.choice() == "kubevirt", what="the API server to call us")

        evaluate(tenant)
        where = "/v1/explain/migration?namespace=shop&name=web"
        assert fetch(port, where, "nonsense")[0] == HTTPStatus.UNAUTHORIZED
        ca = installed.secret()["data"]["ca.crt"]
        installed.rotate()
        installed.wait_serving(ca)
        # They are another project's.
        plane.admin.apply(yaml.safe_load((Path(__file__).parent / "policyreports.yaml").read_text()))
        eventually(lambda: plane.admin.list(POLICY_REPORTS) is not None, what="PolicyReports to be served")
        settings["admin"] = {}
        # Begins with a scan for objects that are not as enforce would make them.
        installed.start()
        eventually(lambda: plane.admin.list(POLICY_REPORTS), what="the VM that is older than the label to be reported")
        asyncio.run(beside_admission(plane, tenant))

        granted, used = manifests.granted(), log.used()
        assert granted - used == set(), "granted, and never used"
        assert manifests.uncovered(used, granted) == set(), "not granted"
        assert log.refused() == set()


def preempt(tenant: Tenant, victim: str) -> None:
    """A scheduler's deletion of a VM's pod is put off, and a migration requested; what it takes is gone afterwards."""
    admin, space = tenant.server.access.admin, tenant.namespace
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    reason = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "lastTransitionTime": now,
    }
    admin.patch(PODS, victim, {"status": {"conditions": [reason]}}, space, subresource="status")
    spec = {
        "schedulerName": "nobody",
        "priorityClassName": "system-cluster-critical",
        "containers": [{"name": "batch", "image": "registry.example/batch:v1"}],
    }
    admin.create(PODS, obj("Pod", "waiting", spec=spec), space)
    admin.patch(PODS, "waiting", {"status": {"nominatedNodeName": "node-a"}}, space, subresource="status")
    scheduler = tenant.server.access.kube(*KUBE_SCHEDULER)
    assert denied(lambda: scheduler.delete(PODS, victim, space)).status == HTTPStatus.TOO_MANY_REQUESTS
    (requested,) = eventually(lambda: admin.list(MIGRATIONS, space), what="the migration to be requested")
    # While it is under way, whether its target pod has room.
    denied(lambda: scheduler.delete(PODS, victim, space))
    admin.delete(MIGRATIONS, requested["metadata"]["name"], space)
    admin.delete(PODS, "waiting", space, gracePeriodSeconds="0")


def evaluate(tenant: Tenant) -> None:
    """Sends VMs, pods and migrations whose evaluation takes every look-up."""
    tenant.server.ask("/mutate/scheduling/pods/enforce", review(launcher_pod(), namespace="nowhere"))
    owner = tenant.create(vm("web"))
    vmi = tenant.start(owner)
    manifest = launcher_of(vmi)
    manifest["spec"]["containers"][0]["resources"] = {part: {DEVICE: "1"} for part in ("requests", "limits")}
    manifest["spec"]["nodeName"] = "node-a"
    pod = tenant.pod(manifest)
    runtime_class = {"spec": {"configuration": {"defaultRuntimeClass": "kata"}}}
    tenant.server.access.admin.patch("kubevirt.io/v1/kubevirts", "kubevirt", runtime_class, "kubevirt")
    # Settings count from when the operator has taken them up.
    deployed = {"status": {"phase": "Deployed"}}
    tenant.server.access.admin.patch("kubevirt.io/v1/kubevirts", "kubevirt", deployed, "kubevirt", subresource="status")
    # A running VM, so that its pod and node are looked at.
    migratable = {"type": "LiveMigratable", "status": "True"}
    running = {"phase": "Running", "nodeName": "node-a", "conditions": [migratable]}
    # A device of which a driver may provide more than the kubelet.
    devices = {"domain": {"devices": {"gpus": [{"name": "one", "deviceName": DEVICE}]}}}
    change = {"spec": {"evictionStrategy": "LiveMigrate", **devices}, "status": running}
    tenant.controller.patch(VMIS, "web", change, tenant.namespace)
    assert pod["spec"].get("schedulerName") == "kubevirt"
    spec = {"vmiName": "web", "addedNodeSelector": {"example.com/zone": "a"}}
    migration = obj("VirtualMachineInstanceMigration", "away", spec=spec)

    def refused() -> bool:
        error = denial(lambda: tenant.owner.create(MIGRATIONS, migration, tenant.namespace, dryRun="All"))
        return error is not None and "node" in error.message

    eventually(refused, what="a migration to be refused, since there are no nodes")
    # Quotas are looked at where all else allows an eviction, and LimitRanges where there is a quota.
    admin = tenant.server.access.admin
    make_node(admin, "node-b", allocatable={DEVICE: "1"})
    admin.make(obj("ResourceQuota", "some", spec={"hard": {"count/secrets": "100"}}), tenant.namespace)

    name = pod["metadata"]["name"]
    ask = partial(evict, tenant.owner, name, tenant.namespace, DESCHEDULER, dryRun="All")
    eventually(lambda: not denial(ask), what="an eviction to be allowed, since there is a node")
    preempt(tenant, name)
    admin.delete("v1/nodes", "node-b")
    for kind in ("VirtualMachine", "VirtualMachineCluster"):
        for field, what in (("instancetype", "Instancetype"), ("preference", "Preference")):
            named: Json = {field: {"kind": f"{kind}{what}", "name": "nothing"}}
            tenant.create(vm("named", **named), dryRun="All")
    tenant.create(vm("kept", instancetype={"name": "nothing", "revisionName": "kept"}), dryRun="All")
    # Whether a preset gives a size to a VM that loses its own.
    tenant.create(vm("sized", template=SIZED_TEMPLATE))
    unsized = {"spec": {"template": {"spec": {"domain": {"memory": None}}}}}
    tenant.owner.patch(VMS, "sized", unsized, tenant.namespace, dryRun="All")
    tenant.label("off", MIGRATION)
    made = eventually(
        lambda: tenant.owner.create(MIGRATIONS, migration, tenant.namespace), what="a migration of nobody's concern"
    )
    tenant.label("enforce", MIGRATION)
    target = launcher_of(vmi)
    target["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = made["metadata"]["uid"]
    target["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = "away"

    def constrained() -> Json | None:
        found = tenant.controller.create(PODS, target, tenant.namespace, dryRun="All")
        return found if "affinity" in found["spec"] else None

    eventually(constrained, what="the constraint")


async def beside_admission(plane: Access, tenant: Tenant) -> None:
    """The hourly work beside admission: a round of each, as the server's account."""
    plane.admin.patch(VMS, "web", {"status": {"created": True}}, tenant.namespace, subresource="status")
    api = await connect(str(plane.kubeconfig_for(*ACCOUNT)))
    try:
        rounds = FidelitySettings(sample=9, every_minutes=1)
        watch = FidelityCheck(api, lambda: DEFAULTS, lambda: rounds, lambda _: None, clock=FakeClock())
        await watch.compare(9)
        assert sum(watch.checked.values()) == 1

        clock = FakeClock()
        events = EventWriter(api, "here", lambda: True, clock=clock)
        for _ in range(2):
            events.add(Event(tenant.namespace, "v1", "Pod", "one", "", "Refused", "code", "a note"))
        await events.write()
        await clock.sleep(WINDOW_SECONDS)
        await events.write()
        assert events.results["failed"] == 0

        await Reports(api).write({})
    finally:
        await api.close()
    eventually(lambda: not plane.admin.list(POLICY_REPORTS), what="the report to be gone")


NAMESPACE = "kubevirt-webhook"
SECRETS = "v1/secrets"
CA = "kubevirt-webhook-ca"
MUTATING, VALIDATING = CONFIGURATIONS
# Every configuration that the account may write by RBAC.
OWN = ((MUTATING, "kubevirt-webhook"), (MUTATING, "zz-kubevirt-webhook"), (VALIDATING, "kubevirt-webhook"))
FOREIGN = "theirs.example.com"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "1"}
Change = Callable[[Json], Any]


@dataclass(frozen=True)
class TakenOver:
    """A cluster with an installation, and the token of its account."""

    admin: Kube
    account: Kube

    def rewrite(self, resource: str, name: str, change: Change) -> None:
        """Send a configuration back with a change, by a patch that replaces all that it holds."""
        live = self.admin.get(resource, name)
        changed = copy.deepcopy(dict(live))
        change(changed)
        operations: list[Json] = [
            {"op": "replace", "path": f"/{key}", "value": value} for key, value in changed.items() if live[key] != value
        ]
        assert operations
        self.account.patch(resource, name, operations, kind="json", dryRun="All")


@pytest.fixture(scope="module")
def cluster(module_plane: OwnPlane) -> TakenOver:
    access: Access = module_plane(controller_manager=True)
    admin = access.admin
    ensure_namespace(admin, NAMESPACE)
    manifests.grant(admin, (*manifests.EVALUATING, *manifests.CERTIFICATES))
    for made in configurations(default_settings()):
        theirs = copy.deepcopy({**made["webhooks"][0], "name": FOREIGN})
        theirs["clientConfig"]["caBundle"] = "eQ=="
        made["webhooks"].append(theirs)
        admin.apply(made)
    manifests.apply(admin, "base/account.yaml")
    taken = TakenOver(admin, access.service_account(NAMESPACE, "kubevirt-webhook"))
    work: list[Callable[[], object]] = [partial(taken.rewrite, *where, CHANGES["labels"]) for where in OWN]
    work.append(partial(apply, taken.account, dryRun="All", immutable=True))
    eventually(lambda: all(is_forbidden(denial(each)) for each in work), what="the policies to count")
    return taken


def is_forbidden(error: KubeError | None) -> bool:
    return error is not None and error.status == HTTPStatus.FORBIDDEN


def forbidden(work: Callable[[], object]) -> str:
    error = denied(work)
    assert is_forbidden(error), error
    return error.message


def apply(account: Kube, name: str = CA, **fields: Any) -> Json:
    """Create the CA's Secret, or another one, as the server does."""
    query = {key: fields.pop(key) for key in ("dryRun",) if key in fields}
    written = {"namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "kubevirt-webhook"}, "type": "Opaque"}
    secret = obj("Secret", name, **written | fields)
    return account.patch(SECRETS, name, secret, NAMESPACE, kind="apply", fieldManager="kubevirt-webhook", **query)


def of_first(**fields: Any) -> Change:
    return lambda one: one["webhooks"][0].update(fields)


def swap(field: str, *values: str) -> Change:
    """Gives a field of the first entry the other one of two values."""
    return lambda one: one["webhooks"][0].update({field: values[one["webhooks"][0].get(field) == values[0]]})


EVERY_REQUEST = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
CHANGES: dict[str, Change] = {
    "service": lambda one: one["webhooks"][0]["clientConfig"]["service"].update(name="evil"),
    "url": of_first(clientConfig={"url": "https://evil.example.com/", "caBundle": "eA=="}),
    "path": lambda one: one["webhooks"][0]["clientConfig"]["service"].update(path="/other"),
    "rules": of_first(rules=[EVERY_REQUEST]),
    "namespaceSelector": of_first(namespaceSelector={}),
    "objectSelector": of_first(objectSelector={"matchLabels": {"a": "b"}}),
    "matchConditions": of_first(matchConditions=[{"name": "all", "expression": "true"}]),
    "no matchConditions": lambda one: [entry.pop("matchConditions", None) for entry in one["webhooks"]],
    "failurePolicy": swap("failurePolicy", "Fail", "Ignore"),
    "matchPolicy": of_first(matchPolicy="Exact"),
    "sideEffects": of_first(sideEffects="NoneOnDryRun"),
    "timeoutSeconds": of_first(timeoutSeconds=30),
    "admissionReviewVersions": of_first(admissionReviewVersions=["v1beta1", "v1"]),
    "name": of_first(name=f"renamed.{DOMAIN}"),
    "another webhook": lambda one: one["webhooks"].append({**one["webhooks"][0], "name": f"more.{DOMAIN}"}),
    "one webhook less": lambda one: one["webhooks"].pop(0),
    "no webhooks": lambda one: one["webhooks"].clear(),
    "order": lambda one: one["webhooks"].reverse(),
    "caBundle of another's webhook": lambda one: one["webhooks"][-1]["clientConfig"].update(caBundle="eA=="),
    "no caBundle of another's webhook": lambda one: one["webhooks"][-1]["clientConfig"].pop("caBundle"),
    "labels": lambda one: one["metadata"]["labels"].update({"app.kubernetes.io/managed-by": "Helm"}),
    "annotations": lambda one: one["metadata"].update(annotations={"cert-manager.io/inject-ca-from": "evil/evil"}),
    "ownerReferences": lambda one: one["metadata"].update(ownerReferences=[OWNER]),
    "finalizers": lambda one: one["metadata"].update(finalizers=["example.com/never"]),
}


@pytest.mark.control("takeover-rewrites-configurations", "takeover-lasts", "takeover-lies")
@pytest.mark.parametrize(("resource", "name"), OWN)
def test_nothing_of_a_configuration_but_its_ca_bundles_can_be_changed(
    cluster: TakenOver, resource: str, name: str
) -> None:
    # How often a webhook is called is a field of those that mutate.
    reinvocation = {"reinvocationPolicy": swap("reinvocationPolicy", "Never", "IfNeeded")}
    changes = CHANGES if resource == VALIDATING else {**CHANGES, **reinvocation}
    for what, change in changes.items():
        said = forbidden(partial(cluster.rewrite, resource, name, change))
        assert "kubevirt-webhook: the account of the replicas" in said, what


@pytest.mark.control("takeover-rewrites-configurations", "takeover-replaces-the-ca")
def test_ca_bundles_of_its_own_webhooks_can_be_changed(cluster: TakenOver) -> None:
    """What remains: which CAs the API server trusts for these webhooks."""
    for resource, name in OWN:
        own = [entry["name"] for entry in cluster.admin.get(resource, name)["webhooks"] if entry["name"] != FOREIGN]
        for bundle in ("eA==", None):
            entries = [{"name": each, "clientConfig": {"caBundle": bundle}} for each in own]
            cluster.account.patch(resource, name, {"webhooks": entries}, kind="strategic")
    # An admin can change everything.
    for resource, name in OWN:
        cluster.admin.patch(resource, name, {"metadata": {"labels": {"team": "a"}}}, dryRun="All")


class TestSecret:
    OF_ITSELF = {"annotations": {"kubernetes.io/service-account.name": "kubevirt-webhook"}}

    @pytest.mark.control("takeover-keeps-access", "takeover-reads-secrets")
    def test_no_other_secret_can_be_created_or_read(self, cluster: TakenOver) -> None:
        account = cluster.account
        plain, named = obj("Secret", "mine"), obj("Secret", CA)
        forbidden(lambda: account.create(SECRETS, plain, NAMESPACE, dryRun="All"))
        forbidden(lambda: account.create(SECRETS, named, NAMESPACE, dryRun="All"))
        forbidden(lambda: apply(account, "mine", dryRun="All"))
        forbidden(lambda: account.list(SECRETS, NAMESPACE))
        forbidden(lambda: account.get(SECRETS, "mine", NAMESPACE))
        forbidden(lambda: account.get(SECRETS, CA, "default"))
        forbidden(lambda: account.delete(SECRETS, CA, NAMESPACE, dryRun="All"))

    @pytest.mark.control("takeover-keeps-access", "takeover-lasts")
    @pytest.mark.parametrize(
        "fields",
        [
            {"type": "kubernetes.io/service-account-token", **OF_ITSELF},
            {"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}},
            {"immutable": True},
            OF_ITSELF,
            {"labels": {"app.kubernetes.io/name": "other"}},
            {"ownerReferences": [OWNER]},
            {"finalizers": ["example.com/never"]},
        ],
        ids=["token", "type", "immutable", "annotations", "labels", "owner", "finalizers"],
    )
    def test_the_cas_secret_cannot_be_created_as_another_one(self, cluster: TakenOver, fields: Json) -> None:
        """A token of a service account would outlive the pod."""
        said = forbidden(lambda: apply(cluster.account, dryRun="All", **fields))
        assert "the account of the replicas may create no Secret" in said

    @pytest.mark.control("takeover-replaces-the-ca", "takeover-lasts")
    def test_of_the_cas_secret_the_data_alone_can_be_changed(self, cluster: TakenOver) -> None:
        """What remains: the CA itself. A Secret that exists is not created again."""
        account, admin = cluster.account, cluster.admin
        apply(account, data={"ca.crt": "eA=="})
        rotate = f"{DOMAIN}/rotate-ca"
        admin.patch(SECRETS, CA, {"metadata": {"annotations": {rotate: "now", "theirs": "kept"}}}, NAMESPACE)
        try:
            account.patch(SECRETS, CA, {"data": {"ca.crt": "eQ=="}}, NAMESPACE)
            account.patch(SECRETS, CA, {"metadata": {"annotations": {rotate: None}}}, NAMESPACE)
            for change in (
                {"immutable": True},
                {"metadata": {"labels": {"a": "b"}}},
                {"metadata": {"annotations": {"a": "b"}}},
                {"metadata": {"annotations": {rotate: "again"}}},
                {"metadata": {"annotations": {"theirs": None}}},
                {"metadata": {"ownerReferences": [OWNER]}},
                {"metadata": {"finalizers": ["example.com/never"]}},
            ):
                said = forbidden(partial(account.patch, SECRETS, CA, change, NAMESPACE, dryRun="All"))
                assert "the account of the replicas may change nothing but the data" in said, change
        finally:
            admin.delete(SECRETS, CA, NAMESPACE)


@pytest.mark.parametrize("file", ["account.yaml", "validation.yaml"])
def test_the_policies_have_no_mistake_that_the_api_server_finds(cluster: TakenOver, file: str) -> None:
    """A controller looks for fields that a kind lacks, without a request."""
    for document in manifests.parse((manifests.MANIFESTS / "base" / file).read_text()):
        if document["kind"] == "ValidatingAdmissionPolicy":
            cluster.admin.apply(document)
            live = cluster.admin.wait(
                "admissionregistration.k8s.io/v1/validatingadmissionpolicies",
                document["metadata"]["name"],
                until=lambda found: found.get("status", {}).get("observedGeneration"),
            )
            assert "expressionWarnings" not in live["status"].get("typeChecking", {})
