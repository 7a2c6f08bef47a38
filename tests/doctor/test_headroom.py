from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook import names
from webhook.k8s.resources import NAMESPACES
from webhook.kubevirt.run_strategy import STARTED_VMS
from webhook.policies.headroom.checks import check_headroom
from webhook.policies.headroom.settings import HEADROOM

OK = ["ok VMs: in-order"]
DENIED = "denied the request: kubevirt-webhook (headroom): if it starts on node one and node two is lost, ..."


def place(mode: str = "enforce") -> Change:
    return put(NAMESPACES, "vms", metadata={"labels": {names.policy_label(HEADROOM): mode}})


def vm(name: str, message: str = "", namespace: str = "vms", strategy: str = "Always") -> Change:
    conditions: list[dict[str, Any]] = [{"type": "Synchronized", "status": "False", "message": message}]
    return put(STARTED_VMS, name, namespace, spec={"runStrategy": strategy}, status={"conditions": conditions})


@pytest.mark.parametrize(
    ("change", "is_enabled", "expected"),
    [
        # Nobody has opted in.
        (both(), False, []),
        (place("off"), False, []),
        # The label of a namespace is no more than a wish.
        (place(), False, ["warning settings: not-enabled"]),
        (place("audit"), False, ["warning settings: not-enabled"]),
        (place(), True, OK),
        (both(place(), vm("web", DENIED)), True, ["warning VMs: starts-denied"]),
        (both(place("audit"), vm("web", DENIED)), True, OK),
        (both(place(), vm("web", DENIED, "elsewhere")), True, OK),
        (both(place(), vm("web", DENIED, strategy="Halted")), True, OK),
        (both(place(), vm("web", "exceeded quota")), True, OK),
        (both(place(), forbid(STARTED_VMS)), True, ["unknown VMs: unreadable"]),
    ],
)
async def test_headroom(world: DoctorWorld, change: Change, is_enabled: bool, expected: list[str]) -> None:
    world.set("headroom", enabled=is_enabled)
    change(world)
    assert await world.told(check_headroom) == expected
