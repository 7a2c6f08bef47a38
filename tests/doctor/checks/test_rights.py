from __future__ import annotations

import json

import msgspec
import pytest

from tests.doctor.world import NS, SAR, DoctorWorld, codes
from webhook.doctor.checks.rights import check
from webhook.doctor.support import views

ACCOUNT = f"ServiceAccount {NS}/{NS}"


def asked(world: DoctorWorld) -> list[dict[str, str]]:
    return [json.loads(one.body)["spec"]["resourceAttributes"] for one in world.server.requests(SAR)]


async def test_all_is_granted(world: DoctorWorld) -> None:
    finding, policies = await world.run(check)

    assert (policies.verdict, policies.code) == ("ok", "policies-installed")
    questions = asked(world)
    assert (finding.verdict, finding.code) == ("ok", "permissions-granted")
    assert f" {len(questions)} permissions " in finding.found
    assert {"verb": "list", "group": "", "resource": "nodes"} in questions
    assert {
        "verb": "get",
        "group": "",
        "resource": "secrets",
        "namespace": NS,
        "name": "kubevirt-webhook-ca",
    } in questions
    assert not any(question["resource"] == "virtualmachines" for question in questions)


async def test_what_is_missing_is_named(world: DoctorWorld) -> None:
    world.denied = {"list nodes", "patch mutatingwebhookconfigurations"}

    configurations = "patch mutatingwebhookconfigurations.admissionregistration.k8s.io"
    findings = await world.run(check)

    assert codes(findings, "failure") == [f"{ACCOUNT}: permissions-missing"]
    assert findings[0].found.endswith(
        f": list nodes, {configurations} kubevirt-webhook, {configurations} zz-kubevirt-webhook"
    )


async def test_mounted_certificates_take_fewer(world: DoctorWorld) -> None:
    container = {"args": ["serve", "--tls=mounted"]}
    world.server.put(views.DEPLOYMENTS, NS, NS, spec={"template": {"spec": {"containers": [container]}}})
    world.denied = {"patch mutatingwebhookconfigurations", "create secrets"}

    assert [one.verdict for one in await world.run(check)] == ["ok", "ok"]


async def test_the_parity_watch_takes_more(world: DoctorWorld) -> None:
    instancetypes = world.settings.instancetypes
    parity = msgspec.structs.replace(instancetypes.parity, sample=20)
    world.settings = msgspec.structs.replace(
        world.settings, instancetypes=msgspec.structs.replace(instancetypes, parity=parity)
    )
    world.denied = {"list virtualmachines"}

    findings = await world.run(check)

    assert codes(findings, "failure") == [f"{ACCOUNT}: permissions-missing"]
    assert findings[0].found.endswith(": list virtualmachines.kubevirt.io")


async def test_who_may_not_ask(world: DoctorWorld) -> None:
    world.forbids_reviews = True

    finding, _ = await world.run(check)

    assert (finding.verdict, finding.code) == ("unknown", "unreadable")
    assert "grant create on subjectaccessreviews.authorization.k8s.io" in finding.found


@pytest.mark.parametrize("kind", views.POLICIES)
async def test_a_policy_that_is_missing(world: DoctorWorld, kind: str) -> None:
    world.server.remove(views.POLICIES[kind], "kubevirt-webhook-account-configurations")

    _, finding = await world.run(check)

    assert (finding.verdict, finding.code) == ("warning", "policies-missing")
    assert finding.found.endswith(f": {kind} kubevirt-webhook-account-configurations")


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("ValidatingAdmissionPolicyBinding", {"validationActions": ["Warn"]}),
        ("ValidatingAdmissionPolicy", {"failurePolicy": "Ignore"}),
        ("ValidatingAdmissionPolicy", {"validations": []}),
        ("ValidatingAdmissionPolicy", {"variables": None}),
    ],
)
async def test_a_policy_that_was_changed(world: DoctorWorld, kind: str, change: dict[str, object]) -> None:
    resource = views.POLICIES[kind]
    spec = world.server.held(resource)["", "kubevirt-webhook-account-configurations"]["spec"]
    world.server.put(resource, "kubevirt-webhook-account-configurations", spec={**spec, **change})

    assert codes(await world.run(check), "warning") == ["admission policies: policies-missing"]


async def test_defaults_of_the_api_server_are_no_change(world: DoctorWorld) -> None:
    resource = views.POLICIES["ValidatingAdmissionPolicy"]
    spec = world.server.held(resource)["", "kubevirt-webhook-account-secret"]["spec"]
    constraints = {**spec["matchConstraints"], "matchPolicy": "Equivalent", "namespaceSelector": {}}
    world.server.put(resource, "kubevirt-webhook-account-secret", spec={**spec, "matchConstraints": constraints})

    assert codes(await world.run(check), "warning") == []


async def test_who_may_not_read_policies(world: DoctorWorld) -> None:
    world.forbid(views.POLICIES["ValidatingAdmissionPolicy"], name="kubevirt-webhook-namespaces")

    assert codes(await world.run(check), "unknown") == ["admission policies: unreadable"]


async def test_a_server_outside_of_the_cluster_has_no_policies(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"

    assert len(await world.run(check)) == 1
