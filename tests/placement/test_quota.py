"""What quotas say to target pods; `tests/e2e/test_quota.py` holds the same to a real API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.placement.machines import LauncherPod
from webhook.placement.quota import LimitRange, PodUsage, QuotaReview, ResourceQuota, review_quotas, usage_of

GIB = 2**30
REQUESTS = {"cpu": 100, "memory": 2 * GIB, "devices.kubevirt.io/kvm": 1}


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> ResourceQuota:
    status = {"hard": hard, "used": dict.fromkeys(hard, "0") | (used or {})}
    return msgspec.convert({"metadata": {"name": "vms"}, "spec": spec, "status": status}, ResourceQuota)


def limits(**item: Any) -> LimitRange:
    return msgspec.convert({"spec": {"limits": [{"type": "Container"} | item]}}, LimitRange)


def pod(requests: dict[str, str] | None = None, annotation: str = "", **spec: Any) -> LauncherPod:
    resources = {"requests": requests if requests is not None else {"cpu": "100m", "memory": "2Gi"}}
    containers = [{"name": "compute", "resources": resources}]
    metadata = {"annotations": {"kubernetes.io/limit-ranger": annotation}} if annotation else {}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": containers, **spec}}, LauncherPod)


def review(*quotas: ResourceQuota, usage: PodUsage | None = None, left_behind: int = 0) -> QuotaReview:
    return review_quotas(quotas, usage or usage_of(pod(), REQUESTS, ()), left_behind=left_behind)


@pytest.mark.parametrize(
    ("hard", "used"),
    [
        ({"memory": "3Gi"}, {"memory": "1025Mi"}),
        ({"requests.memory": "3Gi"}, {"requests.memory": "1025Mi"}),
        ({"requests.cpu": "199m"}, {"requests.cpu": "100m"}),
        ({"pods": "4"}, {"pods": "4"}),
        ({"count/pods": "4"}, {"count/pods": "4"}),
        ({"requests.devices.kubevirt.io/kvm": "1"}, {"requests.devices.kubevirt.io/kvm": "1"}),
    ],
)
def test_what_the_vm_has_is_needed_once_more(hard: dict[str, str], used: dict[str, str]) -> None:
    assert review(quota(hard)).problem == ""
    assert review(quota(hard, used)).problem.startswith("exceeded quota: vms, requested: ")


def test_the_words_are_the_api_servers() -> None:
    found = review(quota({"requests.memory": "3Gi", "requests.cpu": "10"}, {"requests.memory": "1536Mi"}))
    amounts = ("requested: requests.memory=2Gi", "used: requests.memory=1536Mi", "limited: requests.memory=3Gi")
    assert found.problem == ", ".join(("exceeded quota: vms", *amounts))
    # What is written as a quota's status has it stays so; what is computed is canonical.
    usage = usage_of(pod(), {"memory": 3 * 10**9}, ())
    found = review(quota({"requests.memory": "3072Mi"}, {"requests.memory": "2000M"}), usage=usage)
    amounts = ("requested: requests.memory=3G", "used: requests.memory=2000M", "limited: requests.memory=3072Mi")
    assert found.problem == ", ".join(("exceeded quota: vms", *amounts))


def priority(operator: str, *values: str) -> dict[str, Any]:
    expression = {"scopeName": "PriorityClass", "operator": operator, **({"values": list(values)} if values else {})}
    return {"scopeSelector": {"matchExpressions": [expression]}}


HIGH = {"priorityClassName": "high"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
CROSSING = {"scopes": ["CrossNamespacePodAffinity"]}
ELSEWHERE = {"topologyKey": "zone", "namespaceSelector": {}}
MAYBE_ELSEWHERE = {PREFERRED: [None, {"weight": 1, "podAffinityTerm": ELSEWHERE}]}


@pytest.mark.parametrize(
    ("spec", "of_pod", "counts"),
    [
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, HIGH, True),
        ({"scopes": ["Terminating"]}, HIGH, False),
        ({"scopes": ["BestEffort"]}, HIGH, False),
        ({"scopes": ["PriorityClass"]}, HIGH, True),
        (CROSSING, HIGH, False),
        (CROSSING, {"affinity": {"podAffinity": {REQUIRED: [ELSEWHERE]}}}, True),
        (CROSSING, {"affinity": {"podAffinity": MAYBE_ELSEWHERE}}, True),
        (CROSSING, {"affinity": {"podAntiAffinity": MAYBE_ELSEWHERE}}, True),
        (CROSSING, {"affinity": {"podAffinity": {PREFERRED: [{"podAffinityTerm": {"topologyKey": "zone"}}]}}}, False),
        (priority("Exists"), HIGH, True),
        (priority("DoesNotExist"), HIGH, False),
        (priority("In", "high"), HIGH, True),
        (priority("In", "low"), HIGH, False),
        (priority("NotIn", "low"), HIGH, True),
    ],
)
def test_scopes(spec: Any, of_pod: Any, counts: bool) -> None:
    usage = usage_of(pod(**of_pod), REQUESTS, ())
    assert bool(review(quota({"pods": "0"}, **spec), usage=usage).problem) == counts


class TestLimitRanges:
    def test_their_defaults_count(self) -> None:
        usage = usage_of(pod(), REQUESTS, [limits(default={"memory": "4Gi"}, defaultRequest={"memory": "1Gi"})])
        assert usage.amounts["limits.memory"] == 4 * GIB * 10**9
        assert usage.amounts["requests.memory"] == 2 * GIB * 10**9, "the container says that itself"
        # Bounds for whole pods or claims default nothing, and an overhead is requested, but limits nothing.
        others = [limits(type=kind, default={"memory": "4Gi"}) for kind in ("Pod", "PersistentVolumeClaim")]
        assert "limits.memory" not in usage_of(pod(overhead={"memory": "1Gi"}), REQUESTS, others).amounts
        # Those of then do not: the annotation of the present pod says what was not KubeVirt's.
        resources = {"requests": {"cpu": "100m", "memory": "2Gi"}, "limits": {"memory": "9Gi", "cpu": "7"}}
        annotation = "LimitRanger plugin set: x request for container compute; memory, x limit for container compute"
        present = pod(annotation=annotation, containers=[{"name": "compute", "resources": resources}])
        for ranges, memory in (([], None), ([limits(default={"memory": "3Gi"})], 3 * GIB * 10**9)):
            amounts = usage_of(present, REQUESTS, ranges).amounts
            assert (amounts.get("limits.memory"), amounts["limits.cpu"]) == (memory, 7 * 10**9)

    def test_a_quota_of_limits_requires_them(self) -> None:
        found = review(quota({"limits.memory": "9Gi", "requests.memory": "9Gi"}))
        assert found.problem == "failed quota: vms: must specify limits.memory for: compute"
        usage = usage_of(pod(), REQUESTS, [limits(default={"memory": "4Gi"})])
        assert review(quota({"limits.memory": "9Gi"}), usage=usage).problem == ""
        # Not of the containers of a pod that has resources itself.
        whole = usage_of(pod(resources={"limits": {"memory": "4Gi"}}), REQUESTS, ())
        assert review(quota({"limits.memory": "9Gi"}), usage=whole).problem == ""


def test_what_is_not_known_denies_nothing() -> None:
    without = msgspec.convert({"metadata": {"name": "new"}, "status": {"hard": {"pods": "0"}}}, ResourceQuota)
    found = review(without)
    assert (found.problem, len(found.gaps)) == ("", 1)
    assert review_quotas([quota({"requests.memory": "1Mi"})], usage_of(None, {}, ())).problem == ""


@pytest.mark.parametrize(
    ("resource", "left_behind", "fits"), [("count/pods", 0, True), ("count/pods", 1, False), ("pods", 1, True)]
)
def test_pods_that_were_left_count_where_all_pods_do(resource: str, left_behind: int, fits: bool) -> None:
    found = review(quota({resource: "2"}, {resource: "1"}), left_behind=left_behind)
    assert (found.problem == "") is fits
    assert fits or "used: count/pods=2, limited: count/pods=2" in found.problem


AMOUNTS = st.integers(0, 12)


@given(AMOUNTS, AMOUNTS, st.integers(1, 5), AMOUNTS, AMOUNTS)
def test_as_many_are_admitted_one_by_one_as_fit_at_once(hard: int, used: int, each: int, pods: int, taken: int) -> None:
    usage = PodUsage({"requests.memory": each * 10**9, "pods": 10**9}, {})

    def quotas(admitted: int) -> list[ResourceQuota]:
        amounts = {"requests.memory": str(used + admitted * each), "pods": str(taken + admitted)}
        return [quota({"requests.memory": str(hard), "pods": str(pods)}, amounts)]

    admitted = 0
    while not review_quotas(quotas(admitted), usage).problem:
        admitted += 1

    assert review_quotas(quotas(0), usage).at_once == admitted
