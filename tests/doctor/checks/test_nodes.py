from __future__ import annotations

from tests.doctor.world import DoctorWorld, codes
from webhook.doctor.checks.nodes import check
from webhook.k8s.client.resources import NAMESPACES, NODES_WITH_IMAGES


async def test_nodes_that_tell_of_all_images(world: DoctorWorld) -> None:
    assert codes(await world.run(check), "ok") == ["images: all-reported"]


async def test_nodes_that_don_t_are_what_the_policy_is_for(world: DoctorWorld) -> None:
    world.node("full", 50)

    findings = await world.run(check)

    assert codes(findings, "ok") == ["images: policy-applies"]
    assert findings[0].found.startswith("1/4 nodes ")


async def test_where_nobody_opted_in_they_are_told(world: DoctorWorld) -> None:
    world.node("full", 60)
    world.server.remove(NAMESPACES, "demo")

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == ("warning", "not-all-reported")
    assert "kubevirt-webhook.github.io/scheduling=enforce" in finding.todo


async def test_who_may_not_list_nodes(world: DoctorWorld) -> None:
    world.forbid(NODES_WITH_IMAGES)

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == ("unknown", "unreadable")
    assert finding.found.endswith("grant list on nodes")
