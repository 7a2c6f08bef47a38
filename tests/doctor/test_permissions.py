from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.doctor.world import NS, SAR, DoctorWorld, codes
from webhook.doctor.installation import DEPLOYMENTS, POLICIES
from webhook.doctor.permissions import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    check_pinning,
    check_relabelling,
    check_rights,
)
from webhook.k8s.resources import NAMESPACES

ACCOUNT = f"ServiceAccount {NS}/{NS}"
PATCH = {"verbs": ["patch"], "apiGroups": [""], "resources": ["namespaces"]}
ANN = {"kind": "User", "name": "ann"}


def asked(world: DoctorWorld) -> list[dict[str, str]]:
    return [json.loads(one.body)["spec"]["resourceAttributes"] for one in world.server.requests(SAR)]


async def test_all_is_granted(world: DoctorWorld) -> None:
    finding, policies = await world.run(check_rights)

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
    findings = await world.run(check_rights)

    assert codes(findings, "failure") == [f"{ACCOUNT}: permissions-missing"]
    assert findings[0].found.endswith(
        f": list nodes, {configurations} kubevirt-webhook, {configurations} zz-kubevirt-webhook"
    )


async def test_mounted_certificates_take_fewer(world: DoctorWorld) -> None:
    container = {"args": ["serve", "--tls=mounted"]}
    world.server.put(DEPLOYMENTS, NS, NS, spec={"template": {"spec": {"containers": [container]}}})
    world.denied = {"patch mutatingwebhookconfigurations", "create secrets"}

    assert [one.verdict for one in await world.run(check_rights)] == ["ok", "ok"]


async def test_the_fidelity_check_takes_more(world: DoctorWorld) -> None:
    instancetypes = world.settings.instancetypes
    fidelity = msgspec.structs.replace(instancetypes.fidelity_check, sample=20)
    world.settings = msgspec.structs.replace(
        world.settings, instancetypes=msgspec.structs.replace(instancetypes, fidelity_check=fidelity)
    )
    world.denied = {"list virtualmachines"}

    findings = await world.run(check_rights)

    assert codes(findings, "failure") == [f"{ACCOUNT}: permissions-missing"]
    assert findings[0].found.endswith(": list virtualmachines.kubevirt.io")


async def test_who_may_not_ask(world: DoctorWorld) -> None:
    world.forbids_reviews = True

    finding, _ = await world.run(check_rights)

    assert (finding.verdict, finding.code) == ("unknown", "unreadable")
    assert "grant create on subjectaccessreviews.authorization.k8s.io" in finding.found


@pytest.mark.parametrize("kind", POLICIES)
async def test_a_policy_that_is_missing(world: DoctorWorld, kind: str) -> None:
    world.server.remove(POLICIES[kind], "kubevirt-webhook-account-configurations")

    _, finding = await world.run(check_rights)

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
    resource = POLICIES[kind]
    spec = world.server.held(resource)["", "kubevirt-webhook-account-configurations"]["spec"]
    world.server.put(resource, "kubevirt-webhook-account-configurations", spec={**spec, **change})

    assert codes(await world.run(check_rights), "warning") == ["admission policies: policies-missing"]


async def test_defaults_of_the_api_server_are_no_change(world: DoctorWorld) -> None:
    resource = POLICIES["ValidatingAdmissionPolicy"]
    spec = world.server.held(resource)["", "kubevirt-webhook-account-secret"]["spec"]
    constraints = {**spec["matchConstraints"], "matchPolicy": "Equivalent", "namespaceSelector": {}}
    world.server.put(resource, "kubevirt-webhook-account-secret", spec={**spec, "matchConstraints": constraints})

    assert codes(await world.run(check_rights), "warning") == []


async def test_who_may_not_read_policies(world: DoctorWorld) -> None:
    world.forbid(POLICIES["ValidatingAdmissionPolicy"], name="kubevirt-webhook-namespaces")

    assert codes(await world.run(check_rights), "unknown") == ["admission policies: unreadable"]


async def test_a_server_outside_of_the_cluster_has_no_policies(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"

    assert len(await world.run(check_rights)) == 1


async def test_only_the_cluster_s_own(world: DoctorWorld) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[PATCH])
    world.binding("cluster-admin", {"kind": "Group", "name": "system:masters"}, ANN)
    world.binding(
        "labels",
        {"kind": "ServiceAccount", "name": "namespace-controller", "namespace": "kube-system"},
        {"kind": "User", "name": "system:kube-controller-manager"},
    )

    (finding,) = await world.run(check_relabelling)

    assert (finding.verdict, finding.code) == ("ok", "admins-only")


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        (PATCH, True),
        ({**PATCH, "verbs": ["*"]}, True),
        ({**PATCH, "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "update"]}, True),
        ({**PATCH, "verbs": ["get"]}, False),
        ({**PATCH, "apiGroups": ["apps"]}, False),
        ({**PATCH, "resources": ["pods"]}, False),
        ({}, False),
    ],
)
async def test_others_are_named(world: DoctorWorld, rule: dict[str, Any], may: bool) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[rule])
    world.binding("labels", ANN, {"kind": "ServiceAccount", "name": "argocd", "namespace": "argocd"})

    (finding,) = await world.run(check_relabelling)

    assert (finding.verdict, finding.code) == ("ok", "others" if may else "admins-only")
    assert ("ServiceAccount argocd/argocd, User ann" in finding.found) is may


async def test_everybody_is_too_many(world: DoctorWorld) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[PATCH])
    world.binding("labels", {"kind": "Group", "name": "system:authenticated"})

    (finding,) = await world.run(check_relabelling)

    assert (finding.verdict, finding.code) == ("warning", "every-user")
    assert "Group system:authenticated" in finding.found


async def test_a_binding_to_another_kind_of_role(world: DoctorWorld) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[PATCH])
    world.server.put(CLUSTER_ROLE_BINDINGS, "odd", roleRef={"kind": "Role", "name": "labels"}, subjects=[ANN])

    (finding,) = await world.run(check_relabelling)

    assert "ann" not in finding.found


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        (PATCH, True),
        ({**PATCH, "resourceNames": ["demo"]}, True),
        ({**PATCH, "resourceNames": ["other"]}, False),
        ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, True),
        ({**PATCH, "verbs": ["get", "list"]}, False),
        ({**PATCH, "resources": ["pods"]}, False),
        # The policy of the installation denies changes of labels through these.
        ({**PATCH, "resources": ["namespaces/status", "namespaces/finalize"]}, False),
    ],
)
@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
async def test_a_role_inside_of_an_opted_in_namespace(
    world: DoctorWorld, rule: dict[str, Any], may: bool, kind: str
) -> None:
    if kind == "Role":
        world.server.put(ROLES, "labels", "demo", rules=[rule])
    else:
        world.server.put(CLUSTER_ROLES, "labels", rules=[rule])
    world.role_binding("demo", "labels", ANN, kind=kind)

    first, *others = await world.run(check_relabelling)

    assert first.code == "admins-only"
    found = [(one.verdict, one.code, one.subject) for one in others]
    assert found == ([("warning", "in-namespace", "Namespace demo")] if may else [])
    assert all("User ann" in one.found for one in others)


async def test_a_binding_of_cluster_admin_in_a_namespace_counts(world: DoctorWorld) -> None:
    world.role_binding("demo", "cluster-admin", ANN, kind="ClusterRole")

    assert [one.code for one in await world.run(check_relabelling)] == ["admins-only", "in-namespace"]


async def test_a_role_of_another_namespace_or_of_the_control_plane(world: DoctorWorld) -> None:
    world.namespace("quiet")
    world.namespace("off", labels={"kubevirt-webhook.github.io/scheduling": "off"})
    for namespace in ("quiet", "off", "demo"):
        world.server.put(ROLES, "labels", namespace, rules=[PATCH])
    world.role_binding("quiet", "labels", ANN)
    world.role_binding("off", "labels", ANN)
    world.role_binding("demo", "labels", {"kind": "User", "name": "system:kube-scheduler"})

    assert [one.code for one in await world.run(check_relabelling)] == ["admins-only"]


@pytest.mark.parametrize("resource", ["namespaces/status", "namespaces/finalize", "*/finalize"])
@pytest.mark.parametrize("kind", POLICIES)
async def test_subresources_count_where_the_policy_is_missing(world: DoctorWorld, resource: str, kind: str) -> None:
    world.server.remove(POLICIES[kind], "kubevirt-webhook-namespaces")
    world.server.put(ROLES, "labels", "demo", rules=[{**PATCH, "verbs": ["update"], "resources": [resource]}])
    world.role_binding("demo", "labels", ANN)

    assert [one.code for one in await world.run(check_relabelling)] == ["admins-only", "in-namespace"]


async def test_a_policy_of_an_earlier_version_matches_no_subresources(world: DoctorWorld) -> None:
    spec = world.server.held(POLICIES["ValidatingAdmissionPolicy"])["", "kubevirt-webhook-namespaces"]["spec"]
    world.server.put(
        POLICIES["ValidatingAdmissionPolicy"],
        "kubevirt-webhook-namespaces",
        spec={**spec, "matchConstraints": {"resourceRules": [{"resources": ["namespaces"]}]}},
    )
    world.server.put(ROLES, "labels", "demo", rules=[{**PATCH, "resources": ["namespaces/status"]}])
    world.role_binding("demo", "labels", ANN)

    assert [one.code for one in await world.run(check_relabelling)] == ["admins-only", "in-namespace"]


async def test_a_role_that_aggregates_others(world: DoctorWorld) -> None:
    """Its own rules may not have been filled in yet."""
    world.server.put(CLUSTER_ROLES, "part", metadata={"labels": {"of": "whole"}}, rules=[PATCH])
    selectors = [{"matchLabels": {"of": "whole"}}, {"matchLabels": {"of": "nothing"}}]
    world.server.put(CLUSTER_ROLES, "whole", rules=None, aggregationRule={"clusterRoleSelectors": selectors})
    world.binding("whole", ANN)
    world.role_binding("demo", "whole", {"kind": "User", "name": "bea"}, kind="ClusterRole")

    first, second = await world.run(check_relabelling)

    assert "User ann" in first.found
    assert "User bea" in second.found


async def test_every_account_is_listed_once(world: DoctorWorld) -> None:
    world.namespace("shop", labels={"kubevirt-webhook.github.io/migration": "warn"})
    users = [{"kind": "User", "name": f"user-{number}"} for number in range(9)]
    for namespace in ("demo", "shop"):
        world.server.put(ROLES, "labels", namespace, rules=[PATCH])
        world.role_binding(namespace, "labels", *users)

    _, finding = await world.run(check_relabelling)

    assert finding.subject == "Namespace demo, shop"
    assert all(user["name"] in finding.found for user in users)


async def test_names_in_a_role_for_all_namespaces(world: DoctorWorld) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[{**PATCH, "resourceNames": ["demo", "kube-system"]}])
    world.binding("labels", ANN)

    first, second = await world.run(check_relabelling)

    assert (first.code, second.code, second.subject) == ("admins-only", "in-namespace", "Namespace demo")


@pytest.mark.parametrize("resource", [CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, NAMESPACES])
async def test_who_may_not_list_them(world: DoctorWorld, resource: object) -> None:
    world.forbid(resource)

    assert [one.verdict for one in await world.run(check_relabelling)] == ["unknown"]


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

    (finding,) = await world.run(check_pinning)

    assert (finding.verdict, finding.code) == (verdict, code)
