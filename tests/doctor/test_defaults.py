from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import DoctorWorld
from webhook.names import DOMAIN
from webhook.policies.defaults.checks import check_defaults
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES


async def test_without_a_mistake(world: DoctorWorld) -> None:
    world.annotate("shop", default_tolerations='[{"key": "gpu", "operator": "Exists"}]')
    assert await world.told(check_defaults) == ["ok defaults: defaults-valid"]


@pytest.mark.parametrize("place", ["settings", "Namespace shop"])
async def test_a_class_that_does_not_exist(world: DoctorWorld, place: str) -> None:
    given: dict[str, Any] = {"default_priority_class_name": "vms"} if place != "settings" else {"unrelated": "x"}
    world.annotate("shop", **given)
    if place == "settings":
        world.set("defaults", priority_class_name="vms")
    (finding,) = await world.run(check_defaults)
    assert (finding.code, finding.subject) == ("priority-class-missing", place)
    if place != "settings":
        world.namespace(
            "shop", labels={DOMAIN + "/defaults": "off"}, annotations={DOMAIN + "/default-priority-class-name": "vms"}
        )
        assert await world.told(check_defaults) == ["ok defaults: defaults-valid"]
    world.server.put(PRIORITY_CLASSES, "vms")
    assert await world.told(check_defaults) == ["ok defaults: defaults-valid"]
