from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.doctor.world import MUTATING, VALIDATING, Check, DoctorWorld, codes
from webhook.doctor.webhooks import check_order, check_selectors, check_webhooks, selects
from webhook.install.registration import NOT_YET
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.selectors import LabelSelector
from webhook.kubevirt.resources import KUBEVIRTS

LAST = "MutatingWebhookConfiguration zz-kubevirt-webhook"
LABELS = {"a": "1", "b": "2"}
VMS = [{"apiGroups": ["kubevirt.io"], "operations": ["*"], "resources": ["*"]}]


async def test_all_as_the_settings_want_them(world: DoctorWorld) -> None:
    findings = await world.run(check_webhooks)

    assert [finding.verdict for finding in findings] == ["ok"] * 3
    assert f"{LAST}: configuration-correct" in codes(findings, "ok")


FIRST = "MutatingWebhookConfiguration kubevirt-webhook"


@pytest.mark.parametrize(
    ("change", "check", "verdict", "expected"),
    [
        (
            lambda it: it.server.remove(VALIDATING, "kubevirt-webhook"),
            *(check_webhooks, "failure", ["ValidatingWebhookConfiguration kubevirt-webhook: configuration-missing"]),
        ),
        (
            lambda it: it.entries().append({"name": "x.example.com"}),
            *(check_webhooks, "warning", [f"{LAST}: entries-foreign"]),
        ),
        (
            lambda it: it.entries("kubevirt-webhook").reverse(),
            *(check_webhooks, "warning", [f"{FIRST}: entries-misordered"]),
        ),
        (
            lambda it: it.entries()[1].update(matchConditions=[NOT_YET]),
            *(check_webhooks, "failure", [f"{LAST}: entries-inactive"]),
        ),
        (lambda it: it.foreign("zzz-stork"), check_order, "warning", ["pods: pods-changed-after"]),
        (
            # It never sees launcher pods.
            lambda it: it.foreign("zzz-stork", objectSelector={"matchLabels": {"kubevirt.io": "virt-handler"}}),
            *(check_order, "warning", []),
        ),
        (
            lambda it: it.server.remove(MUTATING, "virt-api-mutator"),
            *(check_order, "warning", ["VMs: kubevirt-mutator-missing"]),
        ),
    ],
    ids=["missing", "foreign entry", "order", "rollout", "after", "not for launcher pods", "no mutator of KubeVirt"],
)
async def test_what_is_wrong(
    world: DoctorWorld, change: Callable[[DoctorWorld], None], check: Check, verdict: str, expected: list[str]
) -> None:
    change(world)

    assert codes(await world.run(check), verdict) == expected


async def test_an_entry_is_missing(world: DoctorWorld) -> None:
    del world.entries()[0]

    findings = await world.run(check_webhooks)

    assert codes(findings, "failure") == [f"{LAST}: entries-missing"]
    assert any("pods.scheduling.enforce" in finding.found for finding in findings)


async def test_entries_that_the_settings_have_switched_off(world: DoctorWorld) -> None:
    scheduling = msgspec.structs.replace(world.settings.scheduling, virtual_machines=False)
    world.settings = msgspec.structs.replace(world.settings, scheduling=scheduling)

    findings = await world.run(check_webhooks)

    assert [text.rpartition(": ")[2] for text in codes(findings, "failure")] == ["entries-switched-off"]
    assert any(
        "virtualmachines.scheduling.enforce, virtualmachines.scheduling.observe" in finding.found
        for finding in findings
    )


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

    findings = [finding for finding in await world.run(check_webhooks) if finding.verdict != "ok"]

    assert [(finding.verdict, finding.code) for finding in findings] == [(verdict, f"field-differs:{field}")]
    assert "pods.scheduling.enforce, pods.scheduling.observe" in findings[0].found


async def test_a_server_at_an_address(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"
    world.register()

    assert [finding.verdict for finding in await world.run(check_webhooks)] == ["ok"] * 3


async def test_the_rest_of_a_trial(world: DoctorWorld) -> None:
    world.register(suffix="-local")

    warnings = [finding for finding in await world.run(check_webhooks) if finding.verdict == "warning"]

    assert [finding.subject for finding in warnings] == [
        "MutatingWebhookConfiguration kubevirt-webhook-local",
        "MutatingWebhookConfiguration zz-kubevirt-webhook-local",
        "ValidatingWebhookConfiguration kubevirt-webhook-local",
    ]
    assert {finding.code for finding in warnings} == {"leftover"}
    assert "kubectl delete mutatingwebhookconfiguration kubevirt-webhook-local" in warnings[0].todo


async def test_one_kind_that_may_not_be_listed(world: DoctorWorld) -> None:
    world.forbid(MUTATING)

    findings = await world.run(check_webhooks)

    assert [finding.verdict for finding in findings] == ["unknown", "ok"]


async def test_nothing_is_matched_that_must_not_be(world: DoctorWorld) -> None:
    (finding,) = await world.run(check_selectors)

    assert (finding.verdict, finding.code) == ("ok", "excluded-not-matched")


@pytest.mark.parametrize("name", ["kube-system", "kubevirt", "kubevirt-webhook"])
async def test_a_selector_without_the_exclusion_matches_who_opted_in(world: DoctorWorld, name: str) -> None:
    world.namespace(name, labels={"kubevirt-webhook.github.io/scheduling": "enforce"})
    assert [one.verdict for one in await world.run(check_selectors)] == ["ok"]

    del world.entries()[0]["namespaceSelector"]["matchExpressions"][1]

    findings = await world.run(check_selectors)

    assert codes(findings, "failure") == [f"{LAST}: excluded-matched"]
    assert findings[0].found.endswith(f": {name}")


async def test_kubevirts_namespace_is_found_by_its_object(world: DoctorWorld) -> None:
    world.server.remove(KUBEVIRTS, "kubevirt", "kubevirt")
    world.kubevirt("virtual")
    world.namespace("virtual")
    world.entries()[0]["namespaceSelector"] = {}

    (finding,) = [one for one in await world.run(check_selectors) if one.verdict == "failure"]
    assert finding.found.endswith("kube-system, kubevirt, kubevirt-webhook, virtual")
    assert "kubevirt: {namespace: virtual}" in finding.todo


async def test_entries_that_match_the_same_are_told_in_one_sentence(world: DoctorWorld) -> None:
    for entry in world.entries()[:2]:
        entry["namespaceSelector"] = {}

    findings = await world.run(check_selectors)

    assert codes(findings, "failure") == [f"{LAST}: excluded-matched"]
    assert findings[0].found.startswith("pods.scheduling.enforce, pods.scheduling.observe")


async def test_who_may_not_list_kubevirts_learns_that(world: DoctorWorld) -> None:
    world.forbid(KUBEVIRTS)

    assert [(one.subject, one.verdict) for one in await world.run(check_selectors)] == [
        ("KubeVirt's namespace", "unknown"),
        ("namespaceSelectors", "ok"),
    ]


@pytest.mark.parametrize("resource", [MUTATING, NAMESPACES])
async def test_who_may_not_list_the_rest_learns_nothing(world: DoctorWorld, resource: object) -> None:
    world.forbid(resource)

    assert [one.verdict for one in await world.run(check_selectors)] == ["unknown"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, True),
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "3"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "c", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Gt"}]}, True),
    ],
)
def test_what_a_selector_selects(selector: dict[str, Any] | None, expected: bool) -> None:
    view = None if selector is None else msgspec.convert(selector, LabelSelector)

    assert selects(view, LABELS) is expected


async def test_all_is_well(world: DoctorWorld) -> None:
    assert codes(await world.run(check_order), "ok") == ["VMs: vms-first", "pods: pods-alone"]


async def test_other_schedulers_have_the_first_say(world: DoctorWorld) -> None:
    world.foreign("stork-webhooks-cfg")
    world.foreign("zzz-secrets", rules=[{"apiGroups": [""], "operations": ["*"], "resources": ["secrets"]}])

    findings = await world.run(check_order)

    assert codes(findings, "ok")[:2] == ["VMs: vms-first", "pods: pods-last"]
    assert "stork-webhooks-cfg" in findings[1].found
    assert "zzz-secrets" not in findings[1].found


async def test_one_that_changes_vms_before_us(world: DoctorWorld) -> None:
    world.foreign("a-policy", rules=VMS)

    assert codes(await world.run(check_order), "ok")[0] == "VMs: vms-changed-before"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, True),
        ({"failurePolicy": "Fail", "timeoutSeconds": 15}, True),
        ({"failurePolicy": "Ignore"}, False),
        ({"timeoutSeconds": 5}, False),
        ({"rules": VMS}, True),
        ({"rules": [{"apiGroups": ["*"], "operations": ["UPDATE"], "resources": ["*"]}]}, False),
        ({"rules": None}, False),
    ],
)
async def test_who_else_can_hold_requests_up(world: DoctorWorld, entry: dict[str, object], told: bool) -> None:
    world.foreign("m-policy", **entry)

    assert ("others: others-slow" in codes(await world.run(check_order), "ok")) is told


async def test_who_may_not_list_them(world: DoctorWorld) -> None:
    world.forbid(MUTATING)

    assert [one.verdict for one in await world.run(check_order)] == ["unknown"]
