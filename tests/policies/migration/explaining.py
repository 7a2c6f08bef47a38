"""An explanation of where a VM may go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests.placement.samples import expression, expressions
from tests.policies.migration.world import (
    NODES,
    facts,
)
from webhook.facts import Facts, Key, ObjectKey
from webhook.placement.machines import CLAIMS, VMIS, VOLUMES, Claim, PersistentVolume
from webhook.policies.migration import explanation
from webhook.policies.migration.explanation import MigrationExplanation, explain

Json = dict[str, Any]
VM = ObjectKey(explanation._VMS, "demo", "web01")
VMI = ObjectKey(VMIS, "demo", "web01")


def explained(
    added: Mapping[str, str] | None = None,
    found: Json | None = None,
    nodes: Iterable[Json] = NODES,
    more: Mapping[Key[Any], object] | None = None,
    **options: Any,
) -> MigrationExplanation:
    world = {**facts(found, nodes), **(more or {})}
    return explain("demo", "web01", added or {}, Facts.of(world), **options)


CLAIMED: list[Json] = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "web01-data"}},
    {"name": "root", "dataVolume": {"name": "web01-root"}},
    {"name": "gone", "persistentVolumeClaim": {"claimName": "gone"}},
    {"name": "cloud-init"},
]


def stored(zone: str) -> dict[Key[Any], object]:
    terms = {"nodeAffinity": {"required": {"nodeSelectorTerms": [expressions(expression("zone", "In", zone))]}}}
    bound = msgspec.convert({"spec": {"volumeName": "pv-1"}}, Claim)
    return {
        ObjectKey(CLAIMS, "demo", "web01-data"): bound,
        ObjectKey(CLAIMS, "demo", "web01-root"): Claim(),
        ObjectKey(CLAIMS, "demo", "gone"): None,
        ObjectKey(VOLUMES, "", "pv-1"): msgspec.convert({"spec": terms}, PersistentVolume),
    }
