from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import DoctorWorld
from webhook.doctor.checks.relabelling import check
from webhook.doctor.support.views import BINDINGS, ROLES

PATCH = {"verbs": ["patch"], "apiGroups": [""], "resources": ["namespaces"]}
ANN = {"kind": "User", "name": "ann"}


async def test_only_the_cluster_s_own(world: DoctorWorld) -> None:
    world.server.put(ROLES, "labels", rules=[PATCH])
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
        ({**PATCH, "resourceNames": ["demo"]}, False),
        ({}, False),
    ],
)
async def test_others_are_named(world: DoctorWorld, rule: dict[str, Any], may: bool) -> None:
    world.server.put(ROLES, "labels", rules=[rule])
    world.binding("labels", ANN, {"kind": "ServiceAccount", "name": "argocd", "namespace": "argocd"})

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == ("ok", "others" if may else "admins-only")
    assert ("ServiceAccount argocd/argocd, User ann" in finding.found) is may


async def test_everybody_is_too_many(world: DoctorWorld) -> None:
    world.server.put(ROLES, "labels", rules=[PATCH])
    world.binding("labels", {"kind": "Group", "name": "system:authenticated"})

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == ("warning", "every-user")
    assert "Group system:authenticated" in finding.found


async def test_a_binding_to_another_kind_of_role(world: DoctorWorld) -> None:
    world.server.put(ROLES, "labels", rules=[PATCH])
    world.server.put(BINDINGS, "odd", roleRef={"kind": "Role", "name": "labels"}, subjects=[ANN])

    (finding,) = await world.run(check)

    assert "ann" not in finding.found


@pytest.mark.parametrize("resource", [ROLES, BINDINGS])
async def test_who_may_not_list_them(world: DoctorWorld, resource: object) -> None:
    world.forbid(resource)

    assert [one.verdict for one in await world.run(check)] == ["unknown"]
