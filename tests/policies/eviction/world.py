"""The small cluster of the migration policy, as the descheduler finds it: a VM on node-a1 that may be migrated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.builders import Json, changed, installed
from tests.policies.decisions import evaluate
from tests.policies.migration import world
from tests.policies.migration.world import NODES, OWNED
from webhook.admission.decision import Decision
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, ObjectKey
from webhook.kubevirt.config import ClusterConfig
from webhook.placement.machines import LAUNCHER_PODS, MIGRATIONS, LauncherPod, Migration
from webhook.policies.eviction.settings import EvictionSettings

POD = "virt-launcher-web01-abcde"
DESCHEDULER = "sigs.k8s.io/descheduler"
USER = "system:serviceaccount:kube-system:descheduler"
# A Saturday, 12:00 in UTC.
NOW = 1_795_262_400.0
MINE = ListKey(MIGRATIONS, "demo", "kubevirt.io/vmi-name=web01")
CAPTURE = Path(__file__).parents[2] / "data" / "captures" / "pod-eviction.json"


def stamp(seconds_ago: float) -> str:
    """A timestamp of Kubernetes'; of whole minutes before noon."""
    minutes, rest = divmod(int(seconds_ago), 60)
    assert not rest
    at = 12 * 60 - minutes
    return f"2026-11-21T{at // 60:02}:{at % 60:02}:00Z"


def vmi(strategy: str | None = "LiveMigrate", migratable: str | None = "True", **status: Any) -> Json:
    found = world.vmi(evictionStrategy=strategy)
    conditions = [None, {"type": "LiveMigratable", "status": migratable}] if migratable else None
    found["status"] |= {"conditions": conditions} | status
    return found


def pod(node: str = "node-a1", phase: str = "Running", app: str = "virt-launcher", **metadata: Any) -> Json:
    meta = {"name": POD, "labels": {"kubevirt.io": app}, "ownerReferences": OWNED}
    return {"metadata": meta | metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


def migration(
    phase: str = "Succeeded",
    ended: float | None = 0,
    *,
    name: str = "m",
    vm: str = "web01",
    namespace: str = "demo",
    evacuates: bool = True,
) -> Json:
    """A migration that ended so many seconds ago; None: it does not say when."""
    annotations = {"kubevirt.io/evacuationMigration": "node-a1"} if evacuates else {}
    status: Json = {"phase": phase}
    if ended is not None:
        status["migrationState"] = {"endTimestamp": stamp(ended)}
    meta = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"metadata": meta, "spec": {"vmiName": vm}, "status": status}


def read(*migrations: Json) -> tuple[Migration, ...]:
    return tuple(msgspec.convert(one, Migration) for one in migrations)


def facts(
    found: Json | None = None,
    its_pod: Json | None = None,
    nodes: Iterable[Json] = NODES,
    migrations: Iterable[Json] = (),
    key: ListKey[Migration] = MINE,
    strategy: str = "None",
) -> dict[Key[Any], object]:
    """The facts of a review; the strategy is the cluster's."""
    return {
        **world.facts(found or vmi(), nodes),
        ObjectKey(LAUNCHER_PODS, "demo", POD): msgspec.convert(its_pod or pod(), LauncherPod),
        KubeVirtKey(): installed(ClusterConfig(eviction_strategy=strategy)),
        key: read(*migrations),
    }


def review(by: str | None = DESCHEDULER, user: str = USER, **request: Any) -> Json:
    """The eviction of the VM's pod as a real API server sent one, but for its user."""
    body: Json = json.loads(CAPTURE.read_bytes())
    meta: Json = {"name": POD, "namespace": "demo"}
    if by is not None:
        meta["annotations"] = {"requested-by": by, "reason": "triggered by a profile"}
    sent = {"name": POD, "object": body["request"]["object"] | {"metadata": meta}, "userInfo": {"username": user}}
    body["request"] |= sent | request
    return body


def decide(known: Mapping[Key[Any], object], body: Json | None = None, **settings: Any) -> Decision:
    return decide_with(Facts.of(known, NOW), body, **settings)


def decide_with(known: Facts, body: Json | None = None, **settings: Any) -> Decision:
    """The same with facts that a test watches."""
    section = changed(EvictionSettings(), **settings)
    decision = evaluate("/mutate/eviction/pods/enforce", body or review(), known, section)
    assert not decision.changes, "an eviction is never changed"
    if decision.denial:
        assert decision.denial.code == 429
        assert "Eviction triggered evacuation" not in decision.denial.message, "for the descheduler that is success"
    return decision
