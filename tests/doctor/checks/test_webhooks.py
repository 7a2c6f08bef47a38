from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.doctor.world import MUTATING, VALIDATING, DoctorWorld, codes
from webhook.doctor.checks.webhooks import check
from webhook.install.registration import NOT_YET

LAST = "MutatingWebhookConfiguration zz-kubevirt-webhook"


async def test_all_as_the_settings_want_them(world: DoctorWorld) -> None:
    findings = await world.run(check)

    assert [finding.verdict for finding in findings] == ["ok"] * 3
    assert f"{LAST}: configuration-correct" in codes(findings, "ok")


async def test_a_configuration_is_missing(world: DoctorWorld) -> None:
    world.server.remove(VALIDATING, "kubevirt-webhook")

    assert codes(await world.run(check), "failure") == [
        "ValidatingWebhookConfiguration kubevirt-webhook: configuration-missing"
    ]


async def test_an_entry_is_missing(world: DoctorWorld) -> None:
    del world.entries()[0]

    findings = await world.run(check)

    assert codes(findings, "failure") == [f"{LAST}: entries-missing"]
    assert any("pods.scheduling.enforce" in finding.found for finding in findings)


async def test_entries_that_the_settings_have_switched_off(world: DoctorWorld) -> None:
    scheduling = msgspec.structs.replace(world.settings.scheduling, virtual_machines=False)
    world.settings = msgspec.structs.replace(world.settings, scheduling=scheduling)

    findings = await world.run(check)

    assert [text.rpartition(": ")[2] for text in codes(findings, "failure")] == ["entries-switched-off"]
    assert any(
        "virtualmachines.scheduling.enforce, virtualmachines.scheduling.observe" in finding.found
        for finding in findings
    )


async def test_somebody_elses_entry_in_ours(world: DoctorWorld) -> None:
    world.entries().append({"name": "x.example.com"})

    assert codes(await world.run(check), "warning") == [f"{LAST}: entries-foreign"]


async def test_another_order(world: DoctorWorld) -> None:
    world.entries("kubevirt-webhook").reverse()

    assert codes(await world.run(check), "warning") == [
        "MutatingWebhookConfiguration kubevirt-webhook: entries-misordered"
    ]


async def test_a_roll_out_that_did_not_end(world: DoctorWorld) -> None:
    world.entries()[1]["matchConditions"] = [NOT_YET]

    findings = await world.run(check)

    assert codes(findings, "failure") == [f"{LAST}: entries-inactive"]


@pytest.mark.parametrize(
    ("field", "value", "verdict"),
    [
        ("failurePolicy", "Fail", "failure"),
        ("timeoutSeconds", 30, "warning"),
        ("namespaceSelector", {}, "failure"),
        ("objectSelector", None, "failure"),
        ("rules", [], "failure"),
        ("matchConditions", None, "failure"),
        ("clientConfig", {"url": "https://elsewhere"}, "failure"),
        ("sideEffects", "NoneOnDryRun", "warning"),
        ("reinvocationPolicy", "Never", "warning"),
    ],
)
async def test_a_changed_field(world: DoctorWorld, field: str, value: Any, verdict: str) -> None:
    for entry in world.entries()[:2]:
        entry[field] = value

    findings = [finding for finding in await world.run(check) if finding.verdict != "ok"]

    assert [(finding.verdict, finding.code) for finding in findings] == [(verdict, f"field-differs:{field}")]
    assert "pods.scheduling.enforce, pods.scheduling.observe" in findings[0].found


async def test_a_server_at_an_address(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"
    world.register()

    assert [finding.verdict for finding in await world.run(check)] == ["ok"] * 3


async def test_the_rest_of_a_trial(world: DoctorWorld) -> None:
    world.register(suffix="-local")

    warnings = [finding for finding in await world.run(check) if finding.verdict == "warning"]

    assert [finding.subject for finding in warnings] == [
        "MutatingWebhookConfiguration kubevirt-webhook-local",
        "MutatingWebhookConfiguration zz-kubevirt-webhook-local",
        "ValidatingWebhookConfiguration kubevirt-webhook-local",
    ]
    assert {finding.code for finding in warnings} == {"leftover"}
    assert "kubectl delete mutatingwebhookconfiguration kubevirt-webhook-local" in warnings[0].todo


async def test_one_kind_that_may_not_be_listed(world: DoctorWorld) -> None:
    world.forbid(MUTATING)

    findings = await world.run(check)

    assert [finding.verdict for finding in findings] == ["unknown", "ok"]
