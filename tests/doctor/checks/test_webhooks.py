from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.doctor.world import MUTATING, VALIDATING, World, said
from webhook.doctor.checks.webhooks import check
from webhook.install.stages import NOT_YET

LAST = "MutatingWebhookConfiguration zz-kubevirt-webhook"


async def test_all_as_the_settings_want_them(world: World) -> None:
    findings = await world.run(check)

    assert [finding.verdict for finding in findings] == ["ok"] * 3
    assert f"{LAST}: 6 entries, as the settings want them" in said(findings, "ok")


async def test_a_configuration_is_missing(world: World) -> None:
    world.server.remove(VALIDATING, "kubevirt-webhook")

    assert said(await world.run(check), "failure") == [
        "ValidatingWebhookConfiguration kubevirt-webhook: it isn't there, so that nobody calls us for its 4 entries"
    ]


async def test_an_entry_is_missing(world: World) -> None:
    del world.entries()[0]

    assert said(await world.run(check), "failure") == [f"{LAST}: entries are missing: pods.scheduling.enforce"]


async def test_entries_that_the_settings_have_switched_off(world: World) -> None:
    scheduling = msgspec.structs.replace(world.settings.scheduling, virtual_machines=False)
    world.settings = msgspec.structs.replace(world.settings, scheduling=scheduling)

    (text,) = said(await world.run(check), "failure")

    assert "switched off: virtualmachines.scheduling.enforce, virtualmachines.scheduling.observe" in text


async def test_somebody_elses_entry_in_ours(world: World) -> None:
    world.entries().append({"name": "x.example.com"})

    assert said(await world.run(check), "warning") == [f"{LAST}: entries are there that are not ours: x.example.com"]


async def test_another_order(world: World) -> None:
    world.entries("kubevirt-webhook").reverse()

    (text,) = said(await world.run(check), "warning")

    assert "its entries stand in another order" in text


async def test_a_roll_out_that_did_not_end(world: World) -> None:
    world.entries()[1]["matchConditions"] = [NOT_YET]

    findings = await world.run(check)

    assert said(findings, "failure") == [f"{LAST}: entries are not switched on yet: pods.scheduling.observe"]


@pytest.mark.parametrize(
    ("field", "value", "verdict", "text"),
    [
        ("failurePolicy", "Fail", "failure", "failurePolicy is Fail where the settings want Ignore"),
        ("timeoutSeconds", 30, "warning", "timeoutSeconds is 30 where the settings want 3"),
        ("namespaceSelector", {}, "failure", "namespaceSelector is not what the settings want"),
        ("objectSelector", None, "failure", "objectSelector is not what the settings want"),
        ("rules", [], "failure", "rules is not what the settings want"),
        ("matchConditions", None, "failure", "matchConditions is not what the settings want"),
        ("clientConfig", {"url": "https://elsewhere"}, "failure", "clientConfig is not what the settings want"),
        ("sideEffects", "NoneOnDryRun", "warning", "sideEffects is NoneOnDryRun where the settings want None"),
        ("reinvocationPolicy", "Never", "warning", "reinvocationPolicy is Never where the settings want IfNeeded"),
    ],
)
async def test_a_changed_field(world: World, field: str, value: Any, verdict: str, text: str) -> None:
    for entry in world.entries()[:2]:
        entry[field] = value

    findings = [finding for finding in await world.run(check) if finding.verdict != "ok"]

    assert [(finding.verdict, finding.found) for finding in findings] == [
        (verdict, f"{text}: pods.scheduling.enforce, pods.scheduling.observe")
    ]


async def test_a_server_at_an_address(world: World) -> None:
    world.url = "https://localhost:8443"
    world.register()

    assert [finding.verdict for finding in await world.run(check)] == ["ok"] * 3


async def test_the_rest_of_a_trial(world: World) -> None:
    world.register(suffix="-local")

    warnings = [finding for finding in await world.run(check) if finding.verdict == "warning"]

    assert [finding.subject for finding in warnings] == [
        "MutatingWebhookConfiguration kubevirt-webhook-local",
        "MutatingWebhookConfiguration zz-kubevirt-webhook-local",
        "ValidatingWebhookConfiguration kubevirt-webhook-local",
    ]
    assert "kubectl delete mutatingwebhookconfiguration kubevirt-webhook-local" in warnings[0].todo


async def test_one_kind_that_may_not_be_listed(world: World) -> None:
    world.forbid(MUTATING)

    findings = await world.run(check)

    assert [finding.verdict for finding in findings] == ["unknown", "ok"]
