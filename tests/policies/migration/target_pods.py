"""Target pods of migrations."""

from __future__ import annotations

from typing import Any

import jsonpatch
import msgspec

from tests.builders import Json
from tests.policies.migration.world import POLICY, UID
from webhook.admission.decision import Decision
from webhook.admission.patch import operations
from webhook.k8s.types.core import TargetPod


def pod(terms: Any = ..., selector: dict[str, str] | None = None, uid: str = POLICY) -> Json:
    spec: Json = {"nodeSelector": selector or {}}
    if terms is not ...:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web01", "uid": UID}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "virt-launcher-web01-",
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/migrationJobUID": uid},
            "annotations": {"kubevirt.io/migrationJobName": "m1"},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": spec,
    }


def patched(obj: Json, decision: Decision) -> Json:
    ops = msgspec.json.decode(msgspec.json.encode(operations(msgspec.convert(obj, TargetPod), decision.changes)))
    result: Json = jsonpatch.apply_patch(obj, ops)
    return result


def terms(obj: Json, decision: Decision) -> Any:
    required = patched(obj, decision)["spec"]["affinity"]["nodeAffinity"]
    return required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
