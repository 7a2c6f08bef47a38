from __future__ import annotations

import pytest

from tests.doctor.world import MUTATING, DoctorWorld, codes
from webhook.doctor.checks.selectors import check
from webhook.k8s.client.resources import NAMESPACES
from webhook.kubevirt.resources import KUBEVIRTS

LAST = "MutatingWebhookConfiguration zz-kubevirt-webhook"


async def test_nothing_is_matched_that_must_not_be(world: DoctorWorld) -> None:
    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == ("ok", "excluded-not-matched")


@pytest.mark.parametrize("name", ["kube-system", "kubevirt", "kubevirt-webhook"])
async def test_a_selector_without_the_exclusion_matches_who_opted_in(world: DoctorWorld, name: str) -> None:
    world.namespace(name, labels={"kubevirt-webhook.github.io/scheduling": "enforce"})
    assert [one.verdict for one in await world.run(check)] == ["ok"]

    del world.entries()[0]["namespaceSelector"]["matchExpressions"][1]

    findings = await world.run(check)

    assert codes(findings, "failure") == [f"{LAST}: excluded-matched"]
    assert findings[0].found.endswith(f": {name}")


async def test_kubevirts_namespace_is_found_by_its_object(world: DoctorWorld) -> None:
    world.server.remove(KUBEVIRTS, "kubevirt", "kubevirt")
    world.kubevirt("virtual")
    world.namespace("virtual")
    world.entries()[0]["namespaceSelector"] = {}

    (finding,) = [one for one in await world.run(check) if one.verdict == "failure"]
    assert finding.found.endswith("kube-system, kubevirt, kubevirt-webhook, virtual")
    assert "kubevirt: {namespace: virtual}" in finding.todo


async def test_entries_that_match_the_same_are_told_in_one_sentence(world: DoctorWorld) -> None:
    for entry in world.entries()[:2]:
        entry["namespaceSelector"] = {}

    findings = await world.run(check)

    assert codes(findings, "failure") == [f"{LAST}: excluded-matched"]
    assert findings[0].found.startswith("pods.scheduling.enforce, pods.scheduling.observe")


async def test_who_may_not_list_kubevirts_learns_that(world: DoctorWorld) -> None:
    world.forbid(KUBEVIRTS)

    assert [(one.subject, one.verdict) for one in await world.run(check)] == [
        ("KubeVirt's namespace", "unknown"),
        ("namespaceSelectors", "ok"),
    ]


@pytest.mark.parametrize("resource", [MUTATING, NAMESPACES])
async def test_who_may_not_list_the_rest_learns_nothing(world: DoctorWorld, resource: object) -> None:
    world.forbid(resource)

    assert [one.verdict for one in await world.run(check)] == ["unknown"]
