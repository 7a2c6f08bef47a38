from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import NS, DoctorWorld
from webhook.doctor.support import views
from webhook.doctor.support.installation import Installation


async def of(world: DoctorWorld, method: str) -> Any:
    result: list[Any] = []

    async def check(installation: Installation) -> list[Any]:
        result.append(await getattr(installation, method)())
        return []

    await world.run(check)
    return result[0]


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (["serve", "--tls=mounted"], "mounted"),
        (["serve", "--tls", "managed"], "managed"),
        (["serve", "--tls"], ""),
        (["serve", "--tls-cert=/x"], "self-signed"),
        (None, "self-signed"),
    ],
)
async def test_the_replicas_arguments_go_before_the_settings(world: DoctorWorld, arguments: Any, mode: str) -> None:
    containers = [{"args": arguments}]
    world.server.put(views.DEPLOYMENTS, NS, NS, spec={"template": {"spec": {"containers": containers}}})

    assert await of(world, "tls_mode") == mode


@pytest.mark.parametrize(
    ("url", "secret", "managed"), [("", True, False), ("https://x", True, True), ("https://x", False, False)]
)
async def test_of_a_server_elsewhere_the_secret_tells(
    world: DoctorWorld, url: str, secret: bool, managed: bool
) -> None:
    world.url = url
    world.server.remove(views.DEPLOYMENTS, NS, NS)
    if not secret:
        world.server.remove(views.SECRETS, "ca", NS)

    assert await of(world, "manages_certificates") is managed
