"""EvictionRequests (KEP-4563) of Kubernetes 1.37, with the real API server and controllers: nothing acts on them."""

from __future__ import annotations

import json

import pytest

from .conftest import OwnPlane
from .support import versions
from .support.kube import denial
from .support.objects import obj
from .support.program import command
from .support.workloads import PODS, VMIS, launcher_of, vm, vmi_of

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
