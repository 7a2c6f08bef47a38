from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Json
from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook import names
from webhook.k8s.resources import NAMESPACES
from webhook.placement.machines import MIGRATIONS, PLACED_VMIS
from webhook.policies.preemption.checks import BINDINGS, check_preemption
from webhook.policies.preemption.pods import PREFIX
from webhook.policies.preemption.settings import PREEMPTION

OK = ["ok preemption: in-order"]
SCHEDULER, NODES = "system:kube-scheduler", "system:controller:node-controller"


def place(mode: str = "enforce") -> Change:
    return put(NAMESPACES, "vms", metadata={"labels": {names.policy_label(PREEMPTION): mode}})


def vm(name: str, migratable: str | None = "True", namespace: str = "vms", **status: Any) -> Change:
    conditions = [{"type": "LiveMigratable", "status": migratable}] if migratable else []
    return put(PLACED_VMIS, name, namespace, status={"nodeName": "a", "conditions": conditions, **status})


def bound(role: str, *subjects: Json) -> Change:
    reference = {"kind": "ClusterRole", "name": role}
    return put(BINDINGS, f"{role}-{len(subjects)}", roleRef=reference, subjects=list(subjects))


def account(namespace: str, name: str) -> Json:
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def requested(name: str, phase: str) -> Change:
    return put(MIGRATIONS, f"{PREFIX}{name}", "vms", spec={"vmiName": name}, status={"phase": phase})


KNOWN = both(
    bound(SCHEDULER, {"kind": "User", "name": SCHEDULER}), bound(NODES, account("kube-system", "node-controller"))
)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # Nobody has opted in.
        (both(), []),
        (place("off"), []),
        (place(), OK),
        (both(place(), vm("web"), vm("other", "False", "elsewhere")), OK),
        (both(place(), bound(SCHEDULER, {"kind": "Group", "name": "schedulers"})), OK),
        # What deletes pods and is not known, in whatever mode: audit lines would not show it.
        (both(place("audit"), bound(SCHEDULER, account("batch", "one"))), ["warning settings: user-unknown"]),
        (both(place(), bound(NODES, {"kind": "User", "name": "mine"})), ["warning settings: user-unknown"]),
        (both(place(), bound("view", account("batch", "one"))), OK),
        # VMs that die all the same.
        (both(place(), vm("web", "False"), vm("new", None)), ["warning VMs: vms-cannot-move"]),
        (both(place(), vm("web", "False", phase="Failed"), vm("new", None, nodeName="")), OK),
        (both(place("audit"), vm("web", "False")), OK),
        (
            both(place(), requested("web", "Failed"), requested("db", "Succeeded")),
            ["warning migrations: migrations-failed"],
        ),
        (both(place(), requested("web", "Running")), OK),
        (both(place(), put(MIGRATIONS, "mine", "vms", spec={"vmiName": "web"}, status={"phase": "Failed"})), OK),
        (both(place(), forbid(BINDINGS)), ["unknown role bindings: unreadable"]),
    ],
)
async def test_preemption(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    KNOWN(world)
    world.set("preemption", request_migrations=True)
    change(world)
    assert await world.told(check_preemption) == expected


async def test_without_requests_hardly_any_vm_is_saved(world: DoctorWorld) -> None:
    both(KNOWN, place())(world)
    assert await world.told(check_preemption) == ["warning settings: migrations-not-requested"]
