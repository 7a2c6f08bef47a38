"""The eviction policy denies evictions by the descheduler before virt-api sees them, and delays no other client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .conftest import SCHEDULERS, NewNamespace, NewWebhook, OwnPlane
from .support import versions
from .support.foreign_webhook import DESCHEDULER, MARKED, EvictionAdmitter, evict
from .support.kube import Json, KubeError, KubeObject, denial, denied, eventually
from .support.messages import parse
from .support.objects import obj, owner_reference
from .support.program import command
from .support.tenant import Tenant
from .support.webhook_server import EVICTION, OURS, WebhookServer
from .support.workloads import MIGRATIONS, PODS, VMIS, launcher_of, migration_of, vm, vmi_of

NODE = "node-a"
NOWHERE = {"example.com/zone": "nowhere"}
DRY: tuple[dict[str, Any], ...] = ({"dryRun": "All"}, {"options": {"dryRun": ["All"]}})


class Evictee(Tenant):
    """A namespace whose VMs are evicted, under the eyes of a stand-in for virt-api."""

    def run(self, name: str, **spec: Any) -> KubeObject:
        """A VM at work on a node; keywords go into its VMI's spec."""
        manifest = vmi_of(vm(name))
        domain = {"devices": {}, "cpu": {"model": "host-passthrough"}, "machine": {"type": "q35"}}
        manifest["spec"] |= {"architecture": "amd64", "domain": domain, "evictionStrategy": "LiveMigrate"} | spec
        vmi = self.controller.create(VMIS, manifest, self.namespace)
        pod = launcher_of(vmi)
        pod["metadata"]["name"] = pod_of(name)
        pod["spec"]["nodeName"] = NODE
        self.controller.create(PODS, pod, self.namespace)
        conditions = [{"type": "LiveMigratable", "status": "True"}]
        status = {"phase": "Running", "nodeName": NODE, "conditions": conditions}
        return self.controller.patch(VMIS, name, {"status": status}, self.namespace)

    def evict(self, name: str, by: str | None = DESCHEDULER, **form: Any) -> str:
        """The denial of an eviction; the webhook or virt-api denies every eviction of a VM, always with 429."""
        error = denied(lambda: evict(self.owner, pod_of(name), self.namespace, by, **form))
        assert error.status == 429
        return error.message

    def migrated(self, vmi: Mapping[str, Any], name: str, status: Json) -> None:
        self.controller.create(MIGRATIONS, migration_of(vmi, name), self.namespace)
        self.controller.patch(MIGRATIONS, name, {"status": status}, self.namespace, subresource="status")

    def marked(self, name: str) -> bool:
        return "evacuationNodeName" in self.owner.get(VMIS, name, self.namespace)["status"]


def pod_of(name: str) -> str:
    return f"virt-launcher-{name}-abcde"


def labels(server: WebhookServer) -> dict[str, str]:
    return server.labels(None) | {EVICTION: "enforce"}


def ended(seconds_ago: float) -> Json:
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    stamp = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"phase": "Succeeded", "migrationState": {"completed": True, "endTimestamp": stamp}}


@pytest.fixture
def virt_api(webhook: WebhookServer, new_namespace: NewNamespace) -> Iterator[EvictionAdmitter]:
    with EvictionAdmitter(webhook.access, new_namespace(labels(webhook))) as admitter:
        yield admitter


@pytest.fixture
def evictee(webhook: WebhookServer, virt_api: EvictionAdmitter) -> Evictee:
    return Evictee(webhook, virt_api.namespace)


def test_a_denial_comes_before_virt_api_marks_the_vm(evictee: Evictee, virt_api: EvictionAdmitter) -> None:
    evictee.run("stuck", nodeSelector=NOWHERE)

    message = evictee.evict("stuck")

    said = parse(message)
    assert (said.webhook, said.code) == ("pods.eviction.enforce.kubevirt-webhook.github.io", "no-eligible-node")
    assert "without example.com/zone=nowhere" in message
    assert MARKED not in message
    assert (virt_api.asked, evictee.marked("stuck")) == ([], False)
    (line,) = evictee.audit("Eviction")
    assert (line["decision"], line["reasons"][0]["code"]) == ("denied", "no-eligible-node")
    assert (line["details"]["vmi"], line["details"]["requester"]) == ("stuck", DESCHEDULER)


def test_pods_that_copy_disks_stay_until_a_drain(new_webhook: NewWebhook, new_namespace: NewNamespace) -> None:
    """The API server asks about a pod whose name is no launcher pod's only where the settings protect such pods."""
    server = new_webhook({"schedulers": {}, "eviction": {"protectTransfersSeconds": 3600}})
    owner, namespace = server.access.admin, new_namespace(labels(server))
    disk = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = owner.create("v1/persistentvolumeclaims", obj("PersistentVolumeClaim", "disk", spec=disk), namespace)
    cdi = {"app": "containerized-data-importer", "cdi.kubevirt.io": "importer"}
    for name, its_labels in (("importer-disk", cdi), ("web", {})):
        spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "registry.example/importer:v1"}]}
        made = obj("Pod", name, labels=its_labels, ownerReferences=[owner_reference(claim)], spec=spec)
        owner.create(PODS, made, namespace)
        status = {"phase": "Running", "startTime": ended(60)["migrationState"]["endTimestamp"]}
        owner.patch(PODS, name, {"status": status}, namespace, subresource="status")

    held = r"CDI importer that started \d+s ago and is held on its node for 3600s"
    with pytest.raises(KubeError, match=held) as refused:
        evict(owner, "importer-disk", namespace, DESCHEDULER)
    assert (refused.value.status, parse(refused.value.message).code) == (429, "transfer-in-progress")
    evict(owner, "web", namespace, DESCHEDULER)
    evict(owner, "importer-disk", namespace)


def test_what_can_go_goes_and_drains_are_not_held_up(evictee: Evictee, virt_api: EvictionAdmitter) -> None:
    evictee.run("free")
    evictee.run("stuck", nodeSelector=NOWHERE)

    # Dry runs get the same answers, and leave nothing.
    for form in DRY:
        assert parse(evictee.evict("stuck", **form)).code == "no-eligible-node"
        assert MARKED in evictee.evict("free", **form)
    assert not evictee.marked("free")
    said = ["denied no-eligible-node", "allowed nodes-eligible"] * 2
    assert evictee.verdicts() == said
    assert [line["dryRun"] for line in evictee.audit()] == [True] * 4

    assert MARKED in evictee.evict("free")
    assert evictee.verdicts() == [*said, "allowed nodes-eligible"]
    assert MARKED in evictee.evict("stuck", by=None)
    # The API server has not even called the webhook for the drain.
    assert evictee.verdicts() == [*said, "allowed nodes-eligible"]
    assert virt_api.asked == [*[pod_of("free")] * 3, pod_of("stuck")]
    assert evictee.marked("free")
    assert evictee.marked("stuck")


@pytest.mark.control("forged-evacuations")
def test_a_server_just_started_remembers_by_the_clusters_objects(
    evictee: Evictee, virt_api: EvictionAdmitter, new_webhook: NewWebhook
) -> None:
    moved, other = evictee.run("moved"), evictee.run("other")
    evictee.migrated(moved, "first", ended(400))
    evictee.migrated(moved, "second", ended(60))

    def is_cooling() -> bool:
        message = evictee.evict("moved", **DRY[0])
        # Twice the cool-down: both migrations count.
        return "[cool-down]" in message and "600s" in message

    assert is_cooling()
    assert MARKED in evictee.evict("other", **DRY[0])

    settings = {"schedulers": SCHEDULERS, "eviction": {"maxPerNamespace": 1, "maxPerCluster": 1000}}
    started = new_webhook(settings)
    evictee.owner.patch("v1/namespaces", evictee.namespace, {"metadata": {"labels": {OURS: started.name}}})
    evictee.server = started

    def evaluated() -> bool:
        return is_cooling() and bool(evictee.verdicts())

    eventually(evaluated, what="the namespace to be the other server's")
    evictee.migrated(other, "running", {"phase": "Running"})
    evictee.run("third")
    # So far only an annotation says that it is an evacuation, and every user may write that.
    assert MARKED in evictee.evict("third", **DRY[0])

    evictee.controller.patch(VMIS, "other", {"status": {"evacuationNodeName": NODE}}, evictee.namespace)

    capped = parse(evictee.evict("third"))
    assert capped.code == "too-many-evacuations"
    assert evictee.namespace in capped.text
    assert "(limit 1)" in capped.text
    # virt-api answers for what migrates already.
    assert MARKED in evictee.evict("other", **DRY[0])
    assert evictee.verdicts()[-2:] == ["denied too-many-evacuations", "allowed already-evacuating"]
    assert not any(evictee.marked(name) for name in ("moved", "third"))


# EvictionRequests (KEP-4563) of Kubernetes 1.37, with the real API server and controllers.
REQUESTS, EVICTIONS = (f"lifecycle.k8s.io/v1alpha1/{kind}" for kind in ("evictionrequests", "evictions"))
REPLICA_SETS = "apps/v1/replicasets"
RESPONDER = {"name": "example.com/pacing", "priority": 20_000}
FLAGS = ["--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"]


@pytest.mark.kubernetes(versions.EVICTION_REQUESTS)
def test_no_controller_of_1_37_acts_on_a_request_and_only_a_pods_creator_can_name_a_responder(
    own_plane: OwnPlane,
) -> None:
    plane = own_plane(apiserver_flags=FLAGS, controller_manager=True)
    admin, space = plane.admin, plane.admin.make_namespace("requests-", {})
    vmi = plane.kubevirt_controller.create(VMIS, vmi_of(vm()), space)
    manifest = launcher_of(vmi)
    manifest["spec"]["evictionResponders"] = [RESPONDER]
    pod = plane.kubevirt_controller.create(PODS, manifest, space)
    assert pod["spec"]["evictionResponders"] == [RESPONDER]
    name = pod["metadata"]["name"]
    later = {"spec": {"evictionResponders": [{**RESPONDER, "priority": 30_000}]}}
    forbidden = denial(lambda: admin.patch(PODS, name, later, space))
    assert forbidden
    assert "pod updates may not change fields" in forbidden.message

    target = {"pod": {"name": name, "uid": pod["metadata"]["uid"]}}
    spec = {"target": target, "requester": "example.com/drain", "intent": "Eviction"}
    admin.create(REQUESTS, obj("EvictionRequest", "move", "lifecycle.k8s.io/v1alpha1", spec=spec), space)

    # The controllers work, and have had as long as these pods take them.
    labels = {"app": "witness"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "registry.example/c"}]}}
    replicas = {"replicas": 20, "selector": {"matchLabels": labels}, "template": template}
    admin.create(REPLICA_SETS, obj("ReplicaSet", "witness", "apps/v1", spec=replicas), space)
    counted = lambda found: found["status"].get("replicas") == 20
    admin.wait(REPLICA_SETS, "witness", space, until=counted, what="the pods")
    assert admin.list(EVICTIONS, space) == []
    assert not admin.get(REQUESTS, "move", space).get("status")
    assert "deletionTimestamp" not in admin.get(PODS, name, space)["metadata"]

    settings = plane.directory / "settings.yaml"
    settings.write_text("{}")
    done = command(plane, "doctor", "-o", "json", f"--config={settings}", check=False)
    told = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "api-server"]
    assert [(each["subject"], each["code"]) for each in told] == [("EvictionRequest", "requested")]
