from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import DoctorWorld
from webhook import names
from webhook.doctor.checks.pools import POOLS, VMS, Pool, check
from webhook.k8s.client.resources import NAMESPACES

NEWEST, OLDER = POOLS
MARKED = {names.INJECTED_INSTANCETYPE_ANNOTATION: "VirtualMachineClusterInstancetype/u1.small"}


def put_pool(
    world: DoctorWorld, name: str = "web", resource: Any = NEWEST, *, marked: bool = True, **spec: Any
) -> None:
    world.server.put(resource, name, "shop", spec={"virtualMachineTemplate": {"spec": spec}})
    owner = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": name, "controller": True}
    metadata = {"ownerReferences": [owner], "annotations": MARKED if marked else {}}
    world.server.put(VMS, f"{name}-0", "shop", metadata=metadata)


def put_namespace(world: DoctorWorld, mode: str) -> None:
    world.server.put(NAMESPACES, "shop", metadata={"labels": {names.policy_label(names.INSTANCETYPES): mode}})


async def test_without_pools_all_is_well(world: DoctorWorld) -> None:
    (finding,) = await world.run(check)

    assert (finding.check, finding.code, finding.verdict, finding.todo) == ("pools", "no-pools", "ok", "")


@pytest.mark.parametrize("resource", POOLS)
@pytest.mark.parametrize(("mode", "verdict"), [("enforce", "ok"), ("warn", "warning"), ("off", "warning")])
async def test_a_pool_that_lives_by_a_default(world: DoctorWorld, resource: Any, mode: str, verdict: str) -> None:
    put_namespace(world, mode)
    put_pool(world, resource=resource)

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == (verdict, "size-by-default" if verdict == "ok" else "size-at-risk")
    assert finding.found.endswith(": shop/web")
    assert finding.todo


@pytest.mark.parametrize(
    "spec",
    [
        {"instancetype": {"name": "u1.small"}},
        {"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}}}},
        {"template": {"spec": {"domain": {"resources": {"requests": {"memory": "1Gi"}}}}}},
    ],
)
async def test_a_pool_that_says_a_size(world: DoctorWorld, spec: dict[str, Any]) -> None:
    put_namespace(world, "off")
    put_pool(world, **spec)

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.todo) == ("ok", "")


async def test_a_pool_whose_vms_got_nothing_from_us(world: DoctorWorld) -> None:
    put_namespace(world, "off")
    put_pool(world, marked=False)
    world.server.put(VMS, "alone", "shop", metadata={"annotations": MARKED})

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.todo) == ("ok", "")


@pytest.mark.parametrize("resource", [NEWEST, VMS])
async def test_what_may_not_be_read_is_said(world: DoctorWorld, resource: Any) -> None:
    put_pool(world)
    world.forbid(resource)

    (finding,) = await world.run(check)

    assert finding.verdict == "unknown"


def test_odd_pools_say_no_size() -> None:
    assert not Pool().is_sized
