from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import DoctorWorld
from webhook.policies.defaults.checks import check_defaults
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES


async def test_without_a_mistake(world: DoctorWorld) -> None:
    world.annotate("shop", default_tolerations='[{"key": "gpu", "operator": "Exists"}]')
    assert await world.told(check_defaults) == ["ok defaults: defaults-valid"]


@pytest.mark.parametrize(
    ("annotation", "text", "said"),
    [
        ("default_tolerations", '[{"key": "gpu"}]', "[0].operator is missing"),
        ("default_node_selector", "pool=vms", "not valid JSON"),
        ("default_eviction_strategy", "Live", "LiveMigrate"),
    ],
)
async def test_an_annotation_that_is_ignored(world: DoctorWorld, annotation: str, text: str, said: str) -> None:
    world.annotate("shop", **{annotation: text})
    (finding,) = await world.run(check_defaults)
    assert (finding.code, finding.subject) == ("default-annotation-invalid", "Namespace shop")
    assert said in finding.found


@pytest.mark.parametrize("place", ["settings", "Namespace shop"])
async def test_a_class_that_does_not_exist(world: DoctorWorld, place: str) -> None:
    given: dict[str, Any] = {"default_priority_class_name": "vms"} if place != "settings" else {"unrelated": "x"}
    world.annotate("shop", **given)
    if place == "settings":
        world.set("defaults", priority_class_name="vms")
    (finding,) = await world.run(check_defaults)
    assert (finding.code, finding.subject) == ("priority-class-missing", place)
    world.server.put(PRIORITY_CLASSES, "vms")
    assert await world.told(check_defaults) == ["ok defaults: defaults-valid"]
