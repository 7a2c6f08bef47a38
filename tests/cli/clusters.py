"""A cluster with a VM to explain."""

from __future__ import annotations

from tests.builders import Json
from tests.cluster.fake_apiserver import FakeApiServer
from tests.policies.migration.world import OWNED, UID, node, vmi
from webhook.k8s.resources import NODES
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.placement.machines import CLAIMS, LAUNCHER_PODS, VMIS, VOLUMES


def put(server: FakeApiServer) -> None:
    """What `explain` asks an API server for: nothing is watched."""
    for resource in (KUBEVIRTS, NODES, LAUNCHER_PODS, VMIS, CLAIMS, VOLUMES):
        server.serve(resource)
    for one in (node("node-a1", "a"), node("node-a2", "a"), node("node-b1", "b")):
        server.put(NODES, one["metadata"]["name"], metadata=one["metadata"])
    claims = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    found = vmi(volumes=claims)
    server.put(VMIS, "web01", "demo", metadata={"uid": UID}, spec=found["spec"], status=found["status"])
    owned: Json = {"labels": {"kubevirt.io/created-by": UID}, "ownerReferences": OWNED}
    server.put(LAUNCHER_PODS, "p", "demo", metadata=owned, spec={"nodeName": "node-a1"})
    server.put(CLAIMS, "data", "demo", spec={"volumeName": "pv-1"})
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    server.put(VOLUMES, "pv-1", spec={"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}})
