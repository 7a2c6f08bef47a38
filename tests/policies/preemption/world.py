"""The small cluster of the eviction policy, where a scheduler preempts the VM's pod on node-a1."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.builders import Json, changed
from tests.builders import review as review_of
from tests.policies.decisions import evaluate
from tests.policies.eviction import world as evictions
from tests.policies.eviction.world import NOW
from webhook.admission.decision import Decision
from webhook.facts import Facts, Key, ListKey
from webhook.placement.machines import JOB_UID, UNFINISHED
from webhook.policies.preemption.pods import BY_SCHEDULER, name_of
from webhook.policies.preemption.settings import PreemptionSettings
from webhook.policies.preemption.views import DISRUPTED_PODS, DisruptedPod

SCHEDULER, TAINT_CONTROLLER = "system:kube-scheduler", "system:serviceaccount:kube-system:node-controller"
POD_UID, MIGRATION_UID = "11111111-2222-3333-4444-555555555555", "m-1"
WAITING = ListKey(DISRUPTED_PODS, "", field="status.nominatedNodeName=node-a1")
TARGETS = ListKey(DISRUPTED_PODS, "demo", f"{JOB_UID}={MIGRATION_UID}")
ALL_UNFINISHED = ListKey(UNFINISHED, "")
STORED = ListKey(DISRUPTED_PODS, "demo", field=f"metadata.name={evictions.POD}")


def stamp(ago: float) -> str:
    return datetime.fromtimestamp(NOW - ago, UTC).isoformat().replace("+00:00", "Z")


def condition(kind: str, status: str, reason: str, ago: float) -> Json:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": stamp(ago)}


def victim(reason: str = BY_SCHEDULER, ago: float = 1, *, status: str = "True", **metadata: Any) -> Json:
    """The VM's pod, which is to be deleted since so many seconds."""
    pod = evictions.pod(**{"uid": POD_UID, "namespace": "demo"} | metadata)
    pod["status"]["conditions"] = [None, condition("DisruptionTarget", status, reason, ago)]
    return pod


def preemptor(priority: int = 1000, node: str = "node-a1", **status: Any) -> Json:
    return {
        "metadata": {"name": "batch", "namespace": "jobs"},
        "spec": {"priority": priority},
        "status": {"phase": "Pending", "nominatedNodeName": node} | status,
    }


def target(ago: float, reason: str = "Unschedulable", **spec: Any) -> Json:
    """A migration's target pod, for which no node has had room since so many seconds."""
    status = {"phase": "Pending", "conditions": [condition("PodScheduled", "False", reason, ago)]}
    return {"metadata": {"name": "target", "namespace": "demo"}, "spec": spec, "status": status}


def migration(ago: float = 5, phase: str = "Running", name: str | None = None, ended: float | None = None) -> Json:
    """A migration of the VM that was created so many seconds ago, by default the one requested for its pod."""
    made = evictions.migration(phase, None, name=name or name_of(POD_UID), evacuates=False)
    made["metadata"] |= {"creationTimestamp": stamp(ago), "uid": MIGRATION_UID}
    if ended is not None:
        made["status"]["migrationState"] = {"endTimestamp": stamp(ended)}
    return made


def pods(*found: Json) -> tuple[DisruptedPod, ...]:
    return tuple(msgspec.convert(one, DisruptedPod) for one in found)


def facts(
    *migrations: Json, waiting: tuple[Json, ...] = (preemptor(),), targets: tuple[Json, ...] = (), **world: Any
) -> dict[Key[Any], object]:
    return {
        **evictions.facts(migrations=migrations, **world),
        WAITING: pods(*waiting),
        TARGETS: pods(*targets),
        ALL_UNFINISHED: tuple(one for one in evictions.read(*migrations) if one.is_unfinished),
    }


def review(pod: Json | None = None, user: str = SCHEDULER, **request: Any) -> Json:
    """The deletion of the VM's pod."""
    old = {"kind": "Pod"} | (pod or victim())
    return review_of(None, user, "DELETE", oldObject=old, name=evictions.POD, **request)


def decide(
    known: Mapping[Key[Any], object], body: Json | None = None, *, verified: bool = True, **settings: Any
) -> Decision:
    section = changed(PreemptionSettings(), **{"request_migrations": True} | settings)
    known_facts = Facts.of(known, NOW, verified=verified)
    return evaluate("/validate/preemption/pods/enforce", body or review(), known_facts, section)
