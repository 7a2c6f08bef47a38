from __future__ import annotations

import pytest

from tests.doctor.world import MUTATING, World, said
from webhook.doctor.checks.selectors import check
from webhook.doctor.support.views import KUBEVIRTS
from webhook.k8s.client.resources import NAMESPACES

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
        f"{LAST}: pods.scheduling.enforce matches what must never wait for us: {name}"
    ]


async def test_kubevirts_namespace_is_found_by_its_object(world: World) -> None:
    world.server.remove(KUBEVIRTS, "kubevirt", "kubevirt")
    world.kubevirt("virtual")
    world.namespace("virtual")
    world.entries()[0]["namespaceSelector"] = {}

    (finding,) = [one for one in await world.run(check) if one.verdict == "failure"]
    assert finding.found.endswith("kube-system, kubevirt, kubevirt-webhook, virtual")
    assert finding.todo.startswith("set kubevirt: {namespace: virtual} in the settings, then run")


async def test_entries_that_match_the_same_are_told_in_one_sentence(world: World) -> None:
    for entry in world.entries()[:2]:
        entry["namespaceSelector"] = {}

    assert said(await world.run(check), "failure") == [
        (
            f"{LAST}: pods.scheduling.enforce, pods.scheduling.observe match what must never wait for us: "
            "kube-system, kubevirt, kubevirt-webhook"
        )
    ]


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
