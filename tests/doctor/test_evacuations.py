from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook.doctor.evacuations import check_evacuations
from webhook.k8s.resources import NODES
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.placement.machines import MIGRATIONS, PLACED_VMIS


def vmi(name: str, marked: str | None, on: str = "a") -> Change:
    status = {"phase": "Running", "nodeName": on, "evacuationNodeName": marked}
    return put(PLACED_VMIS, name, "shop", status=status)


def migration(phase: str, name: str, of: str = "web") -> Change:
    metadata = {"annotations": {"kubevirt.io/evacuationMigration": "a"}}
    return put(MIGRATIONS, name, "shop", metadata=metadata, spec={"vmiName": of}, status={"phase": phase})


def node(**spec: Any) -> Change:
    return put(NODES, "a", spec=spec)


def moving(name: str = "web", strategy: str = "LiveMigrate", **status: Any) -> Change:
    """A VM without a mark that KubeVirt evacuates for the taint of its node."""
    migratable = [{"type": "LiveMigratable", "status": "True"}]
    known = {"phase": "Running", "nodeName": "a", "conditions": migratable}
    return put(PLACED_VMIS, name, "shop", spec={"evictionStrategy": strategy}, status=known | status)


def drained(key: str = "kubevirt.io/drain", effect: str = "NoSchedule", **spec: Any) -> Change:
    return node(taints=[{"key": key, "effect": effect}], **spec)


def draining(key: str) -> Change:
    configured = {"migrations": {"nodeDrainTaintKey": key}}
    status = {"phase": "Deployed", "observedKubeVirtVersion": "v1.9.0"}
    return put(KUBEVIRTS, "kubevirt", "kubevirt", spec={"configuration": configured}, status=status)


LEFT = both(node(), vmi("web", "a"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (vmi("web", None), "ok none"),
        (LEFT, "warning left-over"),
        (both(LEFT, vmi("db", "a")), "warning left-over"),
        # A descheduler's eviction: the first migration runs.
        (both(LEFT, migration("Running", "m")), "ok under-way"),
        (both(LEFT, migration("Failed", "m"), migration("Running", "n")), "warning left-over"),
        (both(LEFT, migration("Running", "m", "db")), "warning left-over"),
        # A drain goes on.
        (both(LEFT, node(unschedulable=True)), "ok under-way"),
        (both(LEFT, node(taints=[{"key": "medik8s.io/drain", "effect": "NoSchedule"}])), "ok under-way"),
        (both(vmi("web", "gone"), node()), "warning stale"),
        (both(LEFT, vmi("db", "b")), "warning left-over; warning stale"),
        (vmi("web", "a", on=""), "ok none"),
        # The taint of `nodeDrainTaintKey` has KubeVirt evacuate VMs that are not marked.
        (both(drained(), moving()), "warning drain-taint"),
        (both(drained(), moving(), moving("db", "None")), "warning drain-taint"),
        (both(drained(unschedulable=True), moving()), "ok drain-taint-cordoned"),
        (both(drained(), vmi("web", "a")), "warning drain-taint; ok under-way"),
        (both(drained(effect="NoExecute"), moving()), "ok none"),
        (both(drained("example.com/x"), moving()), "ok none"),
        (both(draining("example.com/x"), drained("example.com/x"), moving()), "warning drain-taint"),
        (both(draining("example.com/x"), drained(), moving()), "ok none"),
        (both(drained(), moving(nodeName="b")), "ok none"),
        (both(drained(), moving(phase="Succeeded")), "ok none"),
        (
            both(draining("node.kubernetes.io/unschedulable"), node(unschedulable=True), moving()),
            "ok drain-taint-cordoned",
        ),
        (forbid(PLACED_VMIS), "unknown unreadable"),
        (both(LEFT, forbid(MIGRATIONS)), "unknown unreadable"),
    ],
)
async def test_marks_that_nobody_asks_for_any_more(world: DoctorWorld, change: Change, expected: str) -> None:
    found = await world.run(check_evacuations, change)
    assert "; ".join(f"{each.verdict} {each.code}" for each in found) == expected
