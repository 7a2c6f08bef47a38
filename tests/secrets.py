"""A world full of secrets, and all output about it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from tests import builders
from tests.builders import UNAVAILABLE, VMI_UID, Json, known, vmi
from tests.policies.instancetypes import world as sizes
from tests.review.memory import KeptInMemory, MemoryCluster
from webhook import names
from webhook.errors import Unavailable
from webhook.facts import Key, NamespaceKey, SchedulerKey, VmiKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.review.endpoints import Endpoint
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.server.background.events import event_of
from webhook.settings.model import InstancetypeSettings, Settings

DISKS = {"devices": {"disks": [{"name": "root", "disk": {}}, {"name": "d", "disk": {}}]}}


class SecretsWorld(MemoryCluster):
    """A cluster that has the given facts, and cannot read any other."""

    async def read(self, key: Key[Any], deadline: float) -> Any:
        return self.facts.get(self.given(key), Unavailable("no answer in time"))


def world(mode: str, dead: bool) -> SecretsWorld:
    labels = dict.fromkeys(
        (names.policy_label(policy) for policy in ("scheduling", "instancetypes", "migration", "eviction")), mode
    )
    there = Namespace(ObjectMeta(name="demo", labels=labels))
    preference = sizes.preference(devices={"preferredDiskBus": "scsi", "preferredInputBus": "usb"})
    facts = sizes.facts([sizes.instancetype(), preference], missing=[("VirtualMachineInstancetype", "gone")])
    facts |= known(vmi()) | {VmiKey("demo", "web01", VMI_UID): vmi()}
    facts |= {NamespaceKey("demo"): there, NamespaceKey("demo", fresh=True): there}
    return SecretsWorld(facts | ({SchedulerKey("kubevirt", "demo"): UNAVAILABLE} if dead else {}))


def settings(expand: bool) -> Settings:
    made = builders.settings(virtual_machine_instances=True)
    chosen = InstancetypeSettings(
        default_instancetype="u1.small",
        default_preference="fedora",
        default_preference_scope="all",
        missing="deny",
        expand=expand,
    )
    return msgspec.structs.replace(made, instancetypes=chosen)


def body_of(endpoint: Endpoint, obj: Json, old: Json | None, dry_run: bool) -> bytes:
    request = {
        "uid": "u",
        "kind": {
            "group": "policy" if endpoint.sub_resource else endpoint.group,
            "version": endpoint.version,
            "kind": endpoint.kind,
        },
        "subResource": endpoint.sub_resource,
        "name": obj["metadata"]["name"] if endpoint.sub_resource else "",
        "resource": {"group": endpoint.group, "version": endpoint.version, "resource": endpoint.resource},
        "namespace": "demo",
        "operation": "UPDATE" if old else "CREATE",
        "userInfo": {"username": builders.CONTROLLER},
        "object": obj,
        "oldObject": old,
        "dryRun": dry_run,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def told(endpoint: Endpoint, body: bytes, cluster: SecretsWorld, made: Settings) -> tuple[str, Evaluation]:
    """All output of an evaluation, except the patch."""
    kept = KeptInMemory()
    reviewer = Reviewer(cluster, lambda: made, kept, kept)

    async def both() -> tuple[Evaluation, bytes]:
        return await reviewer.evaluate(endpoint, body, 1e9), await reviewer.review(endpoint, body, 1e9)

    verdict, answer = asyncio.run(both())
    assert kept.errors == []
    response = json.loads(answer)["response"]
    response.pop("patch", None)
    return json.dumps([response, msgspec.to_builtins(kept.records), str(event_of(endpoint, verdict))]), verdict
