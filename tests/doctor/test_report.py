"""Findings, and what an installation says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import NS, DoctorWorld, put, remove
from webhook.doctor.installation import DEPLOYMENTS, SECRETS, Installation
from webhook.doctor.report import Report
from webhook.findings import Finding
from webhook.names import SITE


def test_the_report_tells_failures_first() -> None:
    ok = Finding("a", "code", "1", "ok", "x")
    warning, failure = Finding("b", "code", "2", "warning", "x", "y"), Finding("b", "code", "3", "failure", "x", "y")
    unknown = Finding("c", "code", "4", "unknown", "x", "y")
    report = Report((ok, warning, failure, unknown))

    assert report.verdict == "failure"
    assert report.groups == [("b", [failure, warning]), ("c", [unknown]), ("a", [ok])]
    assert report.as_json() == {
        "schemaVersion": 1,
        "verdict": "failure",
        "counts": {"failure": 1, "warning": 1, "unknown": 1, "ok": 1},
        "findings": [
            {"check": name, "code": "code", "subject": subject, "verdict": verdict, "found": "x"} | advice
            for name, subject, verdict, advice in (
                ("b", "3", "failure", {"todo": "y", "see": f"{SITE}/doctor#b"}),
                ("b", "2", "warning", {"todo": "y", "see": f"{SITE}/doctor#b"}),
                ("c", "4", "unknown", {"todo": "y", "see": f"{SITE}/doctor#c"}),
                ("a", "1", "ok", {"todo": "", "see": f"{SITE}/doctor#a"}),
            )
        ],
    }
    assert Report(()).verdict == "ok"


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        *((["serve", "--tls=mounted"], "mounted"), (["serve", "--tls", "managed"], "managed")),
        *((["serve", "--tls"], ""), (["serve", "--tls=", "mounted"], "mounted")),
        *((["serve", "--tls-cert=/x"], "self-signed"), (["-c", "exec serve --tls off"], "self-signed")),
        (None, "self-signed"),
    ],
)
async def test_the_replicas_arguments_go_before_the_settings(world: DoctorWorld, arguments: Any, mode: str) -> None:
    spec = {"template": {"spec": {"containers": [{"args": arguments}]}}}
    assert await world.ask(Installation.tls_mode, put(DEPLOYMENTS, NS, NS, spec=spec)) == mode


async def test_of_the_replicas_template_only_the_spec_is_read(world: DoctorWorld) -> None:
    # The API server denies such an annotation; a file that was written by hand may have it.
    template = {"metadata": {"annotations": {"build": 1}}, "spec": {"containers": [{"args": ["--tls=managed"]}]}}
    assert await world.ask(Installation.tls_mode, put(DEPLOYMENTS, NS, NS, spec={"template": template})) == "managed"


@pytest.mark.parametrize(
    ("url", "secret", "managed"), [("", True, False), ("https://x", True, True), ("https://x", False, False)]
)
async def test_of_a_server_elsewhere_the_secret_tells(
    world: DoctorWorld, url: str, secret: bool, managed: bool
) -> None:
    world.url = url
    gone = [remove(DEPLOYMENTS, NS, NS), *([] if secret else [remove(SECRETS, "ca", NS)])]
    assert await world.ask(Installation.manages_certificates, *gone) is managed
