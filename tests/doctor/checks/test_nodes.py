from __future__ import annotations

from tests.doctor.world import World, said
from webhook.doctor.checks.nodes import check
from webhook.doctor.support.views import NODES
from webhook.k8s.client.resources import NAMESPACES


async def test_nodes_that_tell_of_all_images(world: World) -> None:
    assert said(await world.run(check), "ok") == ["images: 0 of 3 nodes report 50 images or more"]


async def test_nodes_that_don_t_are_what_the_policy_is_for(world: World) -> None:
    world.node("full", 50)

    (text,) = said(await world.run(check), "ok")

    assert text.startswith("images: 1 of 4 nodes report 50 images or more, so that ImageLocality")


async def test_where_nobody_opted_in_they_are_told(world: World) -> None:
    world.node("full", 60)
    world.server.remove(NAMESPACES, "demo")

    (finding,) = await world.run(check)

    assert finding.verdict == "warning"
    assert "kubevirt-webhook.github.io/scheduling=enforce" in finding.todo


async def test_who_may_not_list_nodes(world: World) -> None:
    world.forbid(NODES)

    assert said(await world.run(check), "unknown") == ["images: the API server refused with 403: grant list on nodes"]
