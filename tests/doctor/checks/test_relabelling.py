from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import DoctorWorld
from webhook.doctor.checks.relabelling import check
from webhook.doctor.support.views import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, POLICIES, ROLE_BINDINGS, ROLES
from webhook.k8s.client.resources import NAMESPACES

PATCH = {"verbs": ["patch"], "apiGroups": [""], "resources": ["namespaces"]}
ANN = {"kind": "User", "name": "ann"}


async def test_only_the_cluster_s_own(world: DoctorWorld) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[PATCH])
    world.binding("cluster-admin", {"kind": "Group", "name": "system:masters"}, ANN)
    world.binding(
        "labels",
        {"kind": "ServiceAccount", "name": "namespace-controller", "namespace": "kube-system"},
        {"kind": "User", "name": "system:kube-controller-manager"},
    )

    (finding,) = await world.run(check)

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

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == ("ok", "others" if may else "admins-only")
    assert ("ServiceAccount argocd/argocd, User ann" in finding.found) is may


async def test_everybody_is_too_many(world: DoctorWorld) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[PATCH])
    world.binding("labels", {"kind": "Group", "name": "system:authenticated"})

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == ("warning", "every-user")
    assert "Group system:authenticated" in finding.found


async def test_a_binding_to_another_kind_of_role(world: DoctorWorld) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[PATCH])
    world.server.put(CLUSTER_ROLE_BINDINGS, "odd", roleRef={"kind": "Role", "name": "labels"}, subjects=[ANN])

    (finding,) = await world.run(check)

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

    first, *others = await world.run(check)

    assert first.code == "admins-only"
    found = [(one.verdict, one.code, one.subject) for one in others]
    assert found == ([("warning", "in-namespace", "Namespace demo")] if may else [])
    assert all("User ann" in one.found for one in others)


async def test_a_binding_of_cluster_admin_in_a_namespace_counts(world: DoctorWorld) -> None:
    world.role_binding("demo", "cluster-admin", ANN, kind="ClusterRole")

    assert [one.code for one in await world.run(check)] == ["admins-only", "in-namespace"]


async def test_a_role_of_another_namespace_or_of_the_control_plane(world: DoctorWorld) -> None:
    world.namespace("quiet")
    world.namespace("off", labels={"kubevirt-webhook.github.io/scheduling": "off"})
    for namespace in ("quiet", "off", "demo"):
        world.server.put(ROLES, "labels", namespace, rules=[PATCH])
    world.role_binding("quiet", "labels", ANN)
    world.role_binding("off", "labels", ANN)
    world.role_binding("demo", "labels", {"kind": "User", "name": "system:kube-scheduler"})

    assert [one.code for one in await world.run(check)] == ["admins-only"]


@pytest.mark.parametrize("resource", ["namespaces/status", "namespaces/finalize", "*/finalize"])
@pytest.mark.parametrize("kind", POLICIES)
async def test_subresources_count_where_the_policy_is_missing(world: DoctorWorld, resource: str, kind: str) -> None:
    world.server.remove(POLICIES[kind], "kubevirt-webhook-namespaces")
    world.server.put(ROLES, "labels", "demo", rules=[{**PATCH, "verbs": ["update"], "resources": [resource]}])
    world.role_binding("demo", "labels", ANN)

    assert [one.code for one in await world.run(check)] == ["admins-only", "in-namespace"]


async def test_a_policy_of_an_earlier_version_matches_no_subresources(world: DoctorWorld) -> None:
    spec = world.server.held(POLICIES["ValidatingAdmissionPolicy"])["", "kubevirt-webhook-namespaces"]["spec"]
    world.server.put(
        POLICIES["ValidatingAdmissionPolicy"],
        "kubevirt-webhook-namespaces",
        spec={**spec, "matchConstraints": {"resourceRules": [{"resources": ["namespaces"]}]}},
    )
    world.server.put(ROLES, "labels", "demo", rules=[{**PATCH, "resources": ["namespaces/status"]}])
    world.role_binding("demo", "labels", ANN)

    assert [one.code for one in await world.run(check)] == ["admins-only", "in-namespace"]


async def test_a_role_that_aggregates_others(world: DoctorWorld) -> None:
    """Its own rules may not have been filled in yet."""
    world.server.put(CLUSTER_ROLES, "part", metadata={"labels": {"of": "whole"}}, rules=[PATCH])
    selectors = [{"matchLabels": {"of": "whole"}}, {"matchLabels": {"of": "nothing"}}]
    world.server.put(CLUSTER_ROLES, "whole", rules=None, aggregationRule={"clusterRoleSelectors": selectors})
    world.binding("whole", ANN)
    world.role_binding("demo", "whole", {"kind": "User", "name": "bea"}, kind="ClusterRole")

    first, second = await world.run(check)

    assert "User ann" in first.found
    assert "User bea" in second.found


async def test_every_account_is_listed_once(world: DoctorWorld) -> None:
    world.namespace("shop", labels={"kubevirt-webhook.github.io/migration": "warn"})
    users = [{"kind": "User", "name": f"user-{number}"} for number in range(9)]
    for namespace in ("demo", "shop"):
        world.server.put(ROLES, "labels", namespace, rules=[PATCH])
        world.role_binding(namespace, "labels", *users)

    _, finding = await world.run(check)

    assert finding.subject == "Namespace demo, shop"
    assert all(user["name"] in finding.found for user in users)


async def test_names_in_a_role_for_all_namespaces(world: DoctorWorld) -> None:
    world.server.put(CLUSTER_ROLES, "labels", rules=[{**PATCH, "resourceNames": ["demo", "kube-system"]}])
    world.binding("labels", ANN)

    first, second = await world.run(check)

    assert (first.code, second.code, second.subject) == ("admins-only", "in-namespace", "Namespace demo")


@pytest.mark.parametrize("resource", [CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, NAMESPACES])
async def test_who_may_not_list_them(world: DoctorWorld, resource: object) -> None:
    world.forbid(resource)

    assert [one.verdict for one in await world.run(check)] == ["unknown"]
