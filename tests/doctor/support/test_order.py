from __future__ import annotations

import pytest

from tests.doctor.world import MUTATING, DoctorWorld, codes
from webhook.doctor.support.order import check

VMS = [{"apiGroups": ["kubevirt.io"], "operations": ["*"], "resources": ["*"]}]


async def test_all_is_well(world: DoctorWorld) -> None:
    assert codes(await world.run(check), "ok") == ["VMs: vms-first", "pods: pods-alone"]


async def test_other_schedulers_have_the_first_say(world: DoctorWorld) -> None:
    world.foreign("stork-webhooks-cfg")
    world.foreign("zzz-secrets", rules=[{"apiGroups": [""], "operations": ["*"], "resources": ["secrets"]}])

    findings = await world.run(check)

    assert codes(findings, "ok")[:2] == ["VMs: vms-first", "pods: pods-last"]
    assert "stork-webhooks-cfg" in findings[1].found
    assert "zzz-secrets" not in findings[1].found


async def test_one_that_has_the_last(world: DoctorWorld) -> None:
    world.foreign("zzz-stork")

    assert codes(await world.run(check), "warning") == ["pods: pods-changed-after"]


async def test_one_that_never_sees_launcher_pods_does_not_matter(world: DoctorWorld) -> None:
    world.foreign("zzz-stork", objectSelector={"matchLabels": {"kubevirt.io": "virt-handler"}})

    assert codes(await world.run(check), "warning") == []


async def test_one_that_changes_vms_before_us(world: DoctorWorld) -> None:
    world.foreign("a-policy", rules=VMS)

    assert codes(await world.run(check), "ok")[0] == "VMs: vms-changed-before"


async def test_without_kubevirts_mutator(world: DoctorWorld) -> None:
    world.server.remove(MUTATING, "virt-api-mutator")

    assert codes(await world.run(check), "warning") == ["VMs: kubevirt-mutator-missing"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, True),
        ({"failurePolicy": "Fail", "timeoutSeconds": 15}, True),
        ({"failurePolicy": "Ignore"}, False),
        ({"timeoutSeconds": 5}, False),
        ({"rules": VMS}, True),
        ({"rules": [{"apiGroups": ["*"], "operations": ["UPDATE"], "resources": ["*"]}]}, False),
        ({"rules": None}, False),
    ],
)
async def test_who_else_can_hold_requests_up(world: DoctorWorld, entry: dict[str, object], told: bool) -> None:
    world.foreign("m-policy", **entry)

    assert ("others: others-slow" in codes(await world.run(check), "ok")) is told


async def test_who_may_not_list_them(world: DoctorWorld) -> None:
    world.forbid(MUTATING)

    assert [one.verdict for one in await world.run(check)] == ["unknown"]
