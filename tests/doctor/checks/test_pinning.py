from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.doctor.world import DoctorWorld
from webhook.doctor.checks.pinning import check


@pytest.mark.parametrize(
    ("settings", "verdict", "code"),
    [
        ({}, "ok", "not-required"),
        ({"require_right": True, "via_virtctl": "allow"}, "warning", "bypassed-by-virtctl"),
        ({"require_right": True, "via_virtctl": "deny"}, "ok", "required"),
    ],
)
async def test_who_may_pin(world: DoctorWorld, settings: dict[str, Any], verdict: str, code: str) -> None:
    migration = msgspec.structs.replace(world.settings.migration, **settings)
    world.settings = msgspec.structs.replace(world.settings, migration=migration)

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == (verdict, code)
