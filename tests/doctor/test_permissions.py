from __future__ import annotations

import json
from typing import Any

import pytest

from tests.doctor.world import NS, SAR, Change, DoctorWorld, both, forbid, outline, put, remove, sets
from webhook.doctor import permissions
from webhook.doctor.installation import ADMISSION_POLICIES, DEPLOYMENTS
from webhook.doctor.permissions import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from webhook.k8s.resources import NAMESPACES
from webhook.policies.instancetypes.settings import FidelitySettings
from webhook.policies.migration.checks import check_pinning

ACCOUNT = f"ServiceAccount {NS}/{NS}"
GRANTED, MISSING = f"ok {ACCOUNT}: permissions-granted", f"failure {ACCOUNT}: permissions-missing"
INSTALLED, LACKING = "ok admission policies: policies-installed", "warning admission policies: policies-missing"
POLICY, BINDING = ADMISSION_POLICIES
PATCH = {"verbs": ["patch"], "apiGroups": [""], "resources": ["namespaces"]}
ANN = {"kind": "User", "name": "ann"}
BEA = {"kind": "User", "name": "bea"}
MOUNTED = {"template": {"spec": {"containers": [{"args": ["serve", "--tls=mounted"]}]}}}


async def test_all_is_granted(world: DoctorWorld) -> None:
    findings = await world.run(permissions.check_rights)

    questions = [json.loads(one.body)["spec"]["resourceAttributes"] for one in world.server.requests(SAR)]
    assert outline(findings) == [GRANTED, INSTALLED]
    assert f" {len(questions)} permissions " in findings[0].found
    assert {"verb": "list", "group": "", "resource": "nodes"} in questions
    secret = {"verb": "get", "group": "", "resource": "secrets", "namespace": NS, "name": "kubevirt-webhook-ca"}
    assert secret in questions
    assert not any(question["resource"] == "virtualmachines" for question in questions)


SAMPLED = FidelitySettings(sample=20)
CONFIGURATIONS = "patch mutatingwebhookconfigurations.admissionregistration.k8s.io"


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (
            sets(denied={"list nodes", "patch mutatingwebhookconfigurations"}),
            f"list nodes, {CONFIGURATIONS} kubevirt-webhook, {CONFIGURATIONS} zz-kubevirt-webhook",
        ),
        # The fidelity check takes more.
        (
            both(sets(denied={"list virtualmachines"}), lambda it: it.set("instancetypes", fidelity_check=SAMPLED)),
            "list virtualmachines.kubevirt.io",
        ),
    ],
)
async def test_what_is_missing_is_named(world: DoctorWorld, change: Change, missing: str) -> None:
    findings = await world.run(permissions.check_rights, change)
    assert outline(findings) == [MISSING, INSTALLED]
    assert findings[0].found.endswith(f": {missing}")


def policy(name: str, kind: str = POLICY, **fields: Any) -> Change:
    """Changes fields of an admission policy, or of its binding."""
    resource = ADMISSION_POLICIES[kind]
    return lambda it: it.server.put(resource, name, spec={**it.server.held(resource)["", name]["spec"], **fields})


ACCOUNT_POLICY, NAMESPACE_POLICY = "kubevirt-webhook-account-configurations", "kubevirt-webhook-namespaces"


def default_constraints(world: DoctorWorld) -> None:
    """As an API server does."""
    constraints = world.server.held(ADMISSION_POLICIES[POLICY])["", ACCOUNT_POLICY]["spec"]["matchConstraints"]
    defaults = {"matchPolicy": "Equivalent", "namespaceSelector": {}}
    policy(ACCOUNT_POLICY, matchConstraints=constraints | defaults)(world)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # Mounted certificates take fewer permissions.
        (
            both(
                sets(denied={"patch mutatingwebhookconfigurations", "create secrets"}),
                put(DEPLOYMENTS, NS, NS, spec=MOUNTED),
            ),
            [GRANTED, INSTALLED],
        ),
        (sets(forbids_reviews=True), [f"unknown {ACCOUNT}: unreadable", INSTALLED]),
        (default_constraints, [GRANTED, INSTALLED]),
        *((remove(ADMISSION_POLICIES[kind], ACCOUNT_POLICY), [GRANTED, LACKING]) for kind in ADMISSION_POLICIES),
        (policy(ACCOUNT_POLICY, BINDING, validationActions=["Warn"]), [GRANTED, LACKING]),
        (policy(ACCOUNT_POLICY, failurePolicy="Ignore"), [GRANTED, LACKING]),
        (policy(ACCOUNT_POLICY, validations=[]), [GRANTED, LACKING]),
        (policy(ACCOUNT_POLICY, variables=None), [GRANTED, LACKING]),
        (
            forbid(ADMISSION_POLICIES[POLICY], name=NAMESPACE_POLICY),
            [GRANTED, "unknown admission policies: unreadable"],
        ),
        # A server outside of the cluster has none.
        (sets(url="https://localhost:8443"), [GRANTED]),
    ],
)
async def test_permissions_and_admission_policies(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    assert await world.told(permissions.check_rights, change) == expected


def role(*rules: dict[str, Any], namespace: str = "") -> Change:
    """A ClusterRole, or the Role of a namespace."""
    return put(ROLES if namespace else CLUSTER_ROLES, "labels", namespace, rules=rules)


def bind(*subjects: dict[str, str], to: str = "labels", namespace: str = "", kind: str = "") -> Change:
    reference = {"kind": kind or ("Role" if namespace else "ClusterRole"), "name": to}
    resource = ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS
    return put(resource, f"of-{to}", namespace, roleRef=reference, subjects=subjects)


ADMINS, OTHERS = "ok namespaces: admins-only", "ok namespaces: others"
IN_DEMO = "warning Namespace demo: in-namespace"
EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


@pytest.mark.control("labels-switch-policies")
@pytest.mark.parametrize(
    ("rule", "may"),
    [
        *((PATCH, True), ({**PATCH, "verbs": ["*"]}, True)),
        ({**PATCH, "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "update"]}, True),
        *(({**PATCH, "verbs": ["get"]}, False), ({**PATCH, "apiGroups": ["apps"]}, False)),
        *(({**PATCH, "resources": ["pods"]}, False), ({}, False)),
    ],
)
async def test_others_are_named(world: DoctorWorld, rule: dict[str, Any], may: bool) -> None:
    argocd = {"kind": "ServiceAccount", "name": "argocd", "namespace": "argocd"}

    (finding,) = await world.run(permissions.check_relabelling, role(rule), bind(ANN, argocd))

    assert (finding.verdict, finding.code) == ("ok", "others" if may else "admins-only")
    assert ("ServiceAccount argocd/argocd, User ann" in finding.found) is may


@pytest.mark.control("labels-switch-policies")
@pytest.mark.parametrize(
    ("rule", "may"),
    [
        *((PATCH, True), ({**PATCH, "resourceNames": ["demo"]}, True), ({**PATCH, "resourceNames": ["other"]}, False)),
        *((EVERYTHING, True), ({**PATCH, "verbs": ["get", "list"]}, False), ({**PATCH, "resources": ["pods"]}, False)),
        # The policy of the installation denies changes of labels through these.
        ({**PATCH, "resources": ["namespaces/status", "namespaces/finalize"]}, False),
    ],
)
@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
async def test_a_role_inside_of_an_opted_in_namespace(
    world: DoctorWorld, rule: dict[str, Any], may: bool, kind: str
) -> None:
    granting = role(rule, namespace="demo" if kind == "Role" else ""), bind(ANN, namespace="demo", kind=kind)
    findings = await world.run(permissions.check_relabelling, *granting)
    assert outline(findings) == [ADMINS, IN_DEMO][: 1 + may]
    assert all("User ann" in one.found for one in findings[1:])


CONTROL_PLANE = (
    {"kind": "ServiceAccount", "name": "namespace-controller", "namespace": "kube-system"},
    {"kind": "User", "name": "system:kube-controller-manager"},
)
SCHEDULER = {"kind": "User", "name": "system:kube-scheduler"}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": f"system:{name}"}


def cluster_admin(*subjects: dict[str, str], **where: str) -> Change:
    return bind(*subjects, to="cluster-admin", kind="ClusterRole", **where)


def in_role(namespace: str, *subjects: dict[str, str], rule: dict[str, Any] = PATCH) -> Change:
    return both(role(rule, namespace=namespace), bind(*subjects, namespace=namespace))


EARLIER = {"resourceRules": [{"resources": ["namespaces"]}]}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # The control plane, and cluster-admin.
        (both(role(PATCH), cluster_admin(group("masters"), ANN), bind(*CONTROL_PLANE)), ADMINS),
        (in_role("demo", SCHEDULER), ADMINS),
        (both(role(PATCH), bind(group("authenticated"))), "warning namespaces: every-user"),
        # A binding to a kind of role that it cannot have.
        (both(role(PATCH), bind(ANN, kind="Role")), ADMINS),
        (cluster_admin(ANN, namespace="demo"), f"{ADMINS}; {IN_DEMO}"),
        # Namespaces that have not opted in.
        (both(lambda it: it.namespace("quiet"), in_role("quiet", ANN)), ADMINS),
        (both(lambda it: it.opt_in("off", scheduling="off"), in_role("off", ANN)), ADMINS),
        (both(role({**PATCH, "resourceNames": ["demo", "kube-system"]}), bind(ANN)), f"{ADMINS}; {IN_DEMO}"),
        # A policy of an earlier version matches no subresources.
        (
            both(
                policy(NAMESPACE_POLICY, matchConstraints=EARLIER),
                in_role("demo", ANN, rule={**PATCH, "resources": ["namespaces/status"]}),
            ),
            f"{ADMINS}; {IN_DEMO}",
        ),
        # Where the policy is missing, subresources count.
        *(
            (
                both(
                    remove(ADMISSION_POLICIES[kind], NAMESPACE_POLICY),
                    in_role("demo", ANN, rule={**PATCH, "verbs": ["update"], "resources": [resource]}),
                ),
                f"{ADMINS}; {IN_DEMO}",
            )
            for resource in ("namespaces/status", "namespaces/finalize", "*/finalize")
            for kind in ADMISSION_POLICIES
        ),
        *(
            (forbid(resource), f"unknown {resource.kind}s: unreadable")
            for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, NAMESPACES)
        ),
    ],
)
async def test_who_relabels(world: DoctorWorld, change: Change, expected: str) -> None:
    assert "; ".join(await world.told(permissions.check_relabelling, change)) == expected


@pytest.mark.control("labels-switch-policies")
async def test_a_role_that_aggregates_others(world: DoctorWorld) -> None:
    """Its own rules may not have been filled in yet."""
    world.server.put(CLUSTER_ROLES, "part", metadata={"labels": {"of": "whole"}}, rules=[PATCH])
    selectors = [{"matchLabels": {"of": "whole"}}, {"matchLabels": {"of": "nothing"}}]
    world.server.put(CLUSTER_ROLES, "labels", rules=None, aggregationRule={"clusterRoleSelectors": selectors})

    bound = bind(ANN), bind(BEA, namespace="demo", kind="ClusterRole")
    first, second = await world.run(permissions.check_relabelling, *bound)

    assert "User ann" in first.found
    assert "User bea" in second.found


async def test_every_account_is_listed_once(world: DoctorWorld) -> None:
    world.opt_in("shop", migration="warn")
    users = [{"kind": "User", "name": f"user-{number}"} for number in range(9)]

    _, finding = await world.run(permissions.check_relabelling, in_role("demo", *users), in_role("shop", *users))

    assert finding.subject == "Namespace demo, shop"
    assert all(user["name"] in finding.found for user in users)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "ok migration.requireRight: not-required"),
        ({"require_right": True, "via_virtctl": "allow"}, "warning migration.requireRight: bypassed-by-virtctl"),
        ({"require_right": True, "via_virtctl": "deny"}, "ok migration.requireRight: required"),
    ],
)
async def test_who_may_pin(world: DoctorWorld, settings: dict[str, Any], expected: str) -> None:
    world.set("migration", **settings)
    assert await world.told(check_pinning) == [expected]
