from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook.doctor.evacuations import check_evacuations
from webhook.k8s.resources import NODES
from webhook.placement.machines import MIGRATIONS, VMIS


def vmi(name: str, marked: str | None, on: str = "a") -> Change:
    status = {"phase": "Running", "nodeName": on, "evacuationNodeName": marked}
    return put(VMIS, name, "shop", status=status)


def migration(phase: str, name: str, of: str = "web") -> Change:
    metadata = {"annotations": {"kubevirt.io/evacuationMigration": "a"}}
    return put(MIGRATIONS, name, "shop", metadata=metadata, spec={"vmiName": of}, status={"phase": phase})


def node(**spec: Any) -> Change:
    return put(NODES, "a", spec=spec)


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
        (forbid(VMIS), "unknown unreadable"),
        (both(LEFT, forbid(MIGRATIONS)), "unknown unreadable"),
    ],
)
async def test_marks_that_nobody_asks_for_any_more(world: DoctorWorld, change: Change, expected: str) -> None:
    found = await world.run(check_evacuations, change)
    assert "; ".join(f"{each.verdict} {each.code}" for each in found) == expected
