"""VMs that run under names that keep them from migrating, as doctor sees them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.placement.machines import PLACED_VMIS
from webhook.policies.naming.checks import check_names

LONG, STATEFUL = "v" * 64, "v" * 38


def vmi(name: str, **status: Any) -> Change:
    return put(PLACED_VMIS, name, "shop", status={"phase": "Running", "nodeName": "a"} | status)


def with_state(name: str) -> Change:
    """KubeVirt generates the name of the claim, and the API server cuts it off."""
    return vmi(name, volumeStatus=[{"name": f"persistent-state-for-{name}-"[:58] + "x2k4p"}])


def kubevirt(version: str) -> Change:
    return put(KUBEVIRTS, "kubevirt", "kubevirt", status={"phase": "Deployed", "observedKubeVirtVersion": version})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (vmi("v" * 63), "ok migratable"),
        (vmi(LONG), "warning unmigratable"),
        (both(vmi(LONG), vmi("w" * 200)), "warning unmigratable"),
        (both(vmi(LONG), with_state(STATEFUL), kubevirt("v1.8.1")), "warning unmigratable; warning unmigratable"),
        (both(with_state(STATEFUL), kubevirt("v1.9.0")), "ok migratable"),
        (vmi(LONG, phase="Succeeded"), "ok migratable"),
        (both(vmi("web"), put(KUBEVIRTS, "kubevirt", "kubevirt", spec={"configuration": 3})), "ok migratable"),
        (forbid(PLACED_VMIS), "unknown unreadable"),
    ],
)
async def test_names_that_are_too_long(world: DoctorWorld, change: Change, expected: str) -> None:
    found = await world.run(check_names, change)
    assert "; ".join(f"{each.verdict} {each.code}" for each in found) == expected
    assert all(bool(each.todo) == (each.verdict != "ok") for each in found)
