from __future__ import annotations

import pytest

from tests.install.checks.world import MUTATING, World, said
from webhook.install.checks.selectors import check
from webhook.install.checks.views import KUBEVIRTS
from webhook.objects import NAMESPACES

LAST = "MutatingWebhookConfiguration zz-kubevirt-webhook"


async def test_nothing_is_matched_that_must_not_be(world: World) -> None:
    (finding,) = await world.run(check)

    assert finding.verdict == "ok"
    assert finding.found == "18 entries match none of the 3 namespaces that must not"


@pytest.mark.parametrize("name", ["kube-system", "kubevirt", "kubevirt-webhook"])
async def test_a_selector_without_the_exclusion_matches_who_opted_in(world: World, name: str) -> None:
    world.namespace(name, labels={"kubevirt-webhook.github.io/scheduling": "enforce"})
    assert [one.verdict for one in await world.run(check)] == ["ok"]

    del world.entries()[0]["namespaceSelector"]["matchExpressions"][1]

    assert said(await world.run(check), "failure") == [
        f"{LAST}: the namespace {name}, which must never wait for us, is matched by pods.scheduling.enforce"
    ]


async def test_kubevirts_namespace_is_found_by_its_object(world: World) -> None:
    world.server.remove(KUBEVIRTS, "kubevirt", "kubevirt")
    world.kubevirt("virtual")
    world.namespace("virtual")
    world.entries()[0]["namespaceSelector"] = {}

    assert any("the namespace virtual," in text for text in said(await world.run(check), "failure"))


async def test_who_may_not_list_kubevirts_learns_that(world: World) -> None:
    world.forbid(KUBEVIRTS)

    assert [(one.subject, one.verdict) for one in await world.run(check)] == [
        ("KubeVirt's namespace", "unknown"),
        ("namespaceSelectors", "ok"),
    ]


@pytest.mark.parametrize("resource", [MUTATING, NAMESPACES])
async def test_who_may_not_list_the_rest_learns_nothing(world: World, resource: object) -> None:
    world.forbid(resource)

    assert [one.verdict for one in await world.run(check)] == ["unknown"]
