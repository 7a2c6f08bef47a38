from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.doctor.world import DoctorWorld, lost
from webhook.cluster import reader as module
from webhook.cluster.reader import ObjectReader
from webhook.doctor.installation import DEPLOYMENTS
from webhook.errors import Unavailable
from webhook.k8s.resources import NODES_WITH_IMAGES


async def test_everybody_who_asks_at_once_gets_the_same_answer(world: DoctorWorld) -> None:
    async def twice(reader: ObjectReader) -> Any:
        return await asyncio.gather(
            reader.all(NODES_WITH_IMAGES), reader.all(NODES_WITH_IMAGES), reader.get(NODES_WITH_IMAGES, "", "node-0")
        )

    first, second, one = await world.ask(lambda it: twice(it.reader))

    assert first is second
    assert len(first) == 3
    assert one.meta.name == "node-0"
    assert len(world.server.requests(NODES_WITH_IMAGES.path())) == 1


async def test_a_namespaced_object_without_a_namespace_is_a_mistake_of_the_check(world: DoctorWorld) -> None:
    """Read as "does not exist", it would send an admin to create what is there."""
    with pytest.raises(ValueError, match="Deployment kubevirt-webhook is namespaced"):
        await world.ask(lambda it: it.reader.get(DEPLOYMENTS, "", "kubevirt-webhook"))
    assert world.server.requests(DEPLOYMENTS.path()) == []


async def test_lists_that_are_not_read(world: DoctorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.server.answer(NODES_WITH_IMAGES.path(), lost, times=9)
    assert isinstance(await world.ask(lambda it: it.reader.all(NODES_WITH_IMAGES)), Unavailable)
    world.server.heal()
    world.server.unserve(NODES_WITH_IMAGES)
    assert await world.ask(lambda it: it.reader.all(NODES_WITH_IMAGES)) == (), "the cluster does not know the kind"
    monkeypatch.setattr(module, "SECONDS", 0.05)
    world.server.hang(NODES_WITH_IMAGES.path(), asyncio.Event())
    assert isinstance(await world.ask(lambda it: it.reader.all(NODES_WITH_IMAGES)), Unavailable), "it takes too long"
