"""Findings, and what an installation says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.doctor.world import NS, DoctorWorld, lines
from webhook.doctor.installation import DEPLOYMENTS, SECRETS, Installation
from webhook.doctor.report import abbreviate, unreadable
from webhook.errors import Unavailable
from webhook.k8s.client.api import Forbidden


@pytest.mark.parametrize(
    "why", [Forbidden("refused"), Unavailable("no answer")], ids=lambda why: type(why).__name__.lower()
)
def test_what_could_not_be_read(why: Unavailable, golden: Callable[[str], None]) -> None:
    finding = unreadable("nodes", "images", why)

    assert (finding.verdict, finding.code, finding.found) == ("unknown", "unreadable", why.why)
    golden(lines([finding]))


def test_lists_are_short() -> None:
    assert abbreviate([]) == ""
    assert abbreviate(["a", "b"]) == "a, b"
    assert abbreviate(list("abcdef")) == "a, b, c, d and 2 more"


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
    world.server.put(DEPLOYMENTS, NS, NS, spec={"template": {"spec": {"containers": containers}}})

    assert await world.ask(Installation.tls_mode) == mode


@pytest.mark.parametrize(
    ("url", "secret", "managed"), [("", True, False), ("https://x", True, True), ("https://x", False, False)]
)
async def test_of_a_server_elsewhere_the_secret_tells(
    world: DoctorWorld, url: str, secret: bool, managed: bool
) -> None:
    world.url = url
    world.server.remove(DEPLOYMENTS, NS, NS)
    if not secret:
        world.server.remove(SECRETS, "ca", NS)

    assert await world.ask(Installation.manages_certificates) is managed
