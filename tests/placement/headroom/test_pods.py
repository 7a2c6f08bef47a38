"""What tenants may write into a pod, and what headroom reads and keeps of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.builders import Json
from tests.forecast.clusters import HOST, apart, node, vm
from tests.placement.headroom.fleets import headroom, placed, starting
from webhook import names
from webhook.placement.headroom import pods
from webhook.placement.headroom.pods import PlacedPod, size_of
from webhook.placement.pod_rules import NO_PREFERENCES, PodConstraints

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
THREE = [node(name) for name in "abc"]


def launcher() -> Json:
    pod = vm("evil", "")[1]
    pod["spec"]["containers"][0]["resources"]["requests"] |= {"devices.kubevirt.io/kvm": "1"}
    return pod


def in_terms(*terms: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def values(number: int) -> Json:
    written = [f"node-{each}" for each in range(number)]
    return {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": written}]}


def preferring(term: Json) -> Json:
    return {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": term}]}}}


def tolerating(number: int) -> Json:
    return {"tolerations": [{"key": f"k{each}", "operator": "Exists"} for each in range(number)]}


def labels(number: int) -> dict[str, str]:
    return {f"l{each}": "" for each in range(number)}


def changed(spec: Json, metadata: Json | None = None) -> Json:
    pod = launcher()
    pod["spec"] |= spec
    pod["metadata"] |= metadata or {}
    return pod


LONG = "x" * 300_000
HOSTILE = {
    "terms": changed(in_terms(*[values(1)] * 12_000)),
    "expressions": changed(in_terms({"matchExpressions": values(1)["matchExpressions"] * 600})),
    "values": changed(in_terms(values(120_000))),
    "a few values too many": changed(in_terms(values(600))),
    "a long value": changed(in_terms({"matchExpressions": [{"key": HOST, "operator": "In", "values": [LONG]}]})),
    "preferred values": changed(preferring(values(600))),
    "labels": changed({}, {"labels": labels(60_000)}),
    "a few labels too many": changed({}, {"labels": labels(200)}),
    "a node selector": changed({"nodeSelector": labels(60_000)}),
    "tolerations": changed(tolerating(1000)),
    "rules": changed({"affinity": {"podAntiAffinity": {REQUIRED: apart(a="b")["podAntiAffinity"][REQUIRED] * 5000}}}),
    "a group": changed({"nodeName": ""}, {"annotations": {names.INJECTED_GROUP_ANNOTATION: LONG}}),
}
LARGE = {
    "a node affinity with every other node of a rack": changed(in_terms(values(200))),
    "a CPU model": changed({"nodeSelector": {f"cpu-feature.node.kubevirt.io/f{each}": "true" for each in range(150)}}),
    "labels": changed({}, {"labels": {f"app.kubernetes.io/part-{each}": "database" for each in range(100)}}),
    "disks": changed({"containers": [{"name": f"disk-{each}", "image": "i" * 200} for each in range(514)]}),
}


@pytest.mark.control("starts-kept-out")
@pytest.mark.parametrize("pod", HOSTILE.values(), ids=HOSTILE)
def test_a_pod_with_more_than_is_evaluated_counts_by_what_it_requests_alone(pod: Json) -> None:
    plain, kept = placed(launcher()), dict(pods._SHARED)
    found = placed(pod)
    assert found.is_complex
    assert found.simulated.requests == plain.simulated.requests
    assert (found.requirements, found.of_group, found.simulated.tolerations) == ((), (), ())
    info = found.simulated.info
    assert (info.labels, info.rules, info.preferences) == ({}, PodConstraints(), NO_PREFERENCES)
    assert size_of(found) < 3000
    # Nothing of it outlives it.
    assert pods._SHARED.keys() <= kept.keys() | {()}


@pytest.mark.parametrize("pod", LARGE.values(), ids=LARGE)
def test_what_people_write_is_evaluated(pod: Json) -> None:
    assert not placed(pod).is_complex


@pytest.mark.control("starts-kept-out")
@pytest.mark.parametrize("where", ["requests", "limits"])
def test_of_too_many_resources_those_count_that_kubelets_have_by_themselves(where: str) -> None:
    pod = launcher()
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"] |= {"hugepages-2Mi": "1Gi"}
    resources.setdefault(where, {}).update({f"example.com/r{number}": "1" for number in range(40_000)})
    found = placed(pod)
    assert found.is_complex
    amounts = found.simulated.requests
    assert amounts.keys() == {"pods", "cpu", "memory", "hugepages-2Mi"}
    assert (amounts["memory"], amounts["hugepages-2Mi"]) == (placed(launcher()).simulated.requests["memory"], 2**30)
    assert size_of(found) < 3000


@pytest.mark.control("starts-kept-out")
def test_of_too_many_containers_the_first_count() -> None:
    pod = launcher()
    pod["spec"]["containers"] = [
        {"name": f"c{number}", "resources": {"requests": {"memory": "1Mi"}}} for number in range(6000)
    ]
    found = placed(pod)
    assert found.is_complex
    assert found.simulated.requests["memory"] == 600 * 2**20


@pytest.mark.control("starts-kept-out")
def test_no_names_of_owners_are_kept_that_no_object_can_have() -> None:
    pod = launcher()
    pod["metadata"]["ownerReferences"][0] |= {"name": LONG, "uid": LONG}
    found = placed(pod)
    assert (found.vm, found.vmi) == ("", "")


def numbered(pod: Json, number: int) -> PlacedPod:
    found: Any = msgspec.json.decode(msgspec.json.encode(pod))
    found["metadata"]["name"] = f"evil-{number}"
    return placed(found)


@pytest.mark.control("starts-kept-out")
@pytest.mark.parametrize(
    "written",
    [
        lambda number: in_terms({"matchExpressions": [{"key": "k", "operator": "In", "values": [f"{number}" * 9000]}]}),
        lambda number: in_terms(values(200 + number)),
        lambda number: preferring(values(200 + number)),
        lambda number: {
            "affinity": {
                "podAntiAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": HOST,
                            "namespaces": [f"n{each}" for each in range(16)],
                            "labelSelector": {
                                "matchExpressions": [
                                    {"key": "k", "operator": "In", "values": [f"{number}-{each}" for each in range(16)]}
                                ]
                            },
                        }
                    ]
                }
            }
        },
    ],
    ids=["long values", "values", "preferred values", "rules"],
)
def test_what_is_kept_of_large_pods_that_are_gone_goes_sooner(written: Any) -> None:
    found = headroom(THREE)
    model = found._current()
    for number in range(10):
        pod = numbered(changed(written(number)), number)
        assert not pod.is_complex
        found.put_pod(replace(pod, node=""))
        found.remove_pod(pod.name)
    # An everyday pod counts as one change, and as some thirty where its requirements and rules are new.
    assert model.changes > 10 * 60
    assert pods._SHARED.currsize <= pods._SHARED.maxsize


def test_a_start_that_is_too_complex_is_admitted() -> None:
    found = headroom(THREE, also=["evil"])
    assert found.judge(replace(placed(HOSTILE["values"]), node="")).kind == "not-proven"
    assert found.judge(starting("evil")).kind == "kept"
