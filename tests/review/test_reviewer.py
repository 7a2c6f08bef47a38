"""The Reviewer over a cluster in memory: modes, replay, and every way of not knowing."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.builders import AVAILABLE, UNAVAILABLE, UNKNOWN, VMI_UID, Json, known, launcher_pod, review, vm, vmi
from tests.policies.eviction import world as eviction
from tests.policies.migration.world import UID
from tests.review.memory import PODS, PODS_OBSERVED, VMS, KeptInMemory, MemoryCluster, evaluate, with_policy
from webhook import names
from webhook.admission.decision import Decision, Reason, skip
from webhook.admission.reasons import common, scheduling
from webhook.errors import InputError, Unavailable
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NamespaceKey, NodesKey, ObjectKey, SchedulerKey, VmiKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.placement.machines import LAUNCHER_PODS, MIGRATIONS, LauncherPod, Migration
from webhook.review.endpoints import BY_PATH
from webhook.review.replay import MAX_ROUNDS


def patched(body: Json, response: Json) -> Any:
    return jsonpatch.apply_patch(body["request"]["object"], json.loads(base64.b64decode(response["patch"])))


def test_enforce_patches() -> None:
    body = review(launcher_pod())
    verdict, response = evaluate(body)

    assert (verdict.label, verdict.mode) == ("patched", "enforce")
    assert response["allowed"] is True
    assert response["auditAnnotations"] == {
        "mode": "enforce",
        "decision": "patched",
        "reason": scheduling.INJECTED,
        "scheduler": "kubevirt",
    }
    pod = patched(body, response)
    injected = pod["metadata"]["annotations"][names.INJECTED_SCHEDULER_ANNOTATION]
    assert pod["spec"]["schedulerName"] == injected == "kubevirt"


@pytest.mark.parametrize(("mode", "warnings"), [("warn", 1), ("audit", 0)])
def test_other_modes_only_say(mode: str, warnings: int) -> None:
    verdict, response = evaluate(review(launcher_pod()), known(vmi(), mode=mode), PODS_OBSERVED)

    assert (verdict.label, verdict.mode, response["allowed"]) == ("would-patch", mode, True)
    assert "patch" not in response
    assert len(response.get("warnings", [])) == warnings
    assert response["auditAnnotations"]["reason"] == scheduling.INJECTED


def test_out_of_scope_says_why() -> None:
    verdict, response = evaluate(review(launcher_pod()), known(vmi(), mode=None))

    assert (verdict.label, verdict.mode) == ("skipped", "off")
    assert response == {
        "uid": response["uid"],
        "allowed": True,
        "auditAnnotations": {"mode": "off", "decision": "skipped", "reason": common.OUT_OF_SCOPE},
    }


def test_the_namespace_names_the_scheduler() -> None:
    body = review(launcher_pod())
    _, response = evaluate(body, known(vmi(), scheduler_name="batch"))

    assert patched(body, response)["spec"]["schedulerName"] == "batch"


def test_replay_reads_each_fact_once() -> None:
    cluster = MemoryCluster(known(vmi()), peeked=set())

    verdict, _ = evaluate(review(launcher_pod()), cluster=cluster)

    assert verdict.label == "patched"
    asked = [KubeVirtKey(), NamespaceKey("demo"), SchedulerKey("kubevirt", "demo"), VmiKey("demo", "web01", VMI_UID)]
    assert cluster.reads == asked * 2, "once for judge, once for review"


_healths = st.sampled_from([AVAILABLE, UNAVAILABLE, UNKNOWN, Unavailable("x")])
_vmis: st.SearchStrategy[Any] = st.sampled_from(
    [vmi(), vmi(""), vmi("default-scheduler"), vmi("stork"), vmi(uid="x"), None, Unavailable("y")]
)


@hypothesis_settings(deadline=None)
@given(_healths, _vmis, st.sampled_from(["enforce", "warn", "audit", "off", None]), st.data())
def test_replay_never_changes_an_answer(health: Any, found: Any, mode: str | None, data: Any) -> None:
    facts = known(found, health, mode)
    peeked = data.draw(st.sets(st.sampled_from(sorted(facts, key=repr))))

    _, at_once = evaluate(review(launcher_pod()), facts)
    _, replayed = evaluate(review(launcher_pod()), cluster=MemoryCluster(facts, peeked))

    assert replayed == at_once


@hypothesis_settings(deadline=None)
@given(
    _healths,
    _vmis,
    st.sampled_from([None, "", "default-scheduler", "kubevirt", "stork"]),
    st.sampled_from([None, "kubevirt"]),
)
def test_a_second_pass_over_the_patched_object_changes_nothing(
    health: Any, found: Any, scheduler: str | None, mark: str | None
) -> None:
    pod = launcher_pod(schedulerName=scheduler)
    if mark:
        pod["metadata"]["annotations"][names.INJECTED_SCHEDULER_ANNOTATION] = mark
    body = review(pod)
    _, first = evaluate(body, known(found, health))
    if "patch" in first:
        body["request"]["object"] = patched(body, first)
        _, second = evaluate(body, known(found, health))
        assert "patch" not in second


def test_malformed_object_is_admitted_unchanged_with_a_warning() -> None:
    verdict, response = evaluate(review(launcher_pod() | {"spec": {"schedulerName": 5}}))

    assert (verdict.label, verdict.decision.code) == ("error", common.INVALID_OBJECT)
    assert response["allowed"] is True
    assert "request.object.spec.schedulerName must be " in response["warnings"][0]


@pytest.mark.parametrize(
    ("body", "mode", "code"),
    [
        (review(launcher_pod() | {"spec": 5}), None, common.OUT_OF_SCOPE),
        (review(None, operation="DELETE", oldObject=launcher_pod()), "enforce", common.OTHER_OPERATION),
        (review(launcher_pod(), subResource="status"), "enforce", common.OTHER_OPERATION),
    ],
    ids=["malformed, out of scope", "no object", "subresource"],
)
def test_what_is_not_judged(body: Json, mode: str | None, code: str) -> None:
    verdict, response = evaluate(body, known(vmi(), mode=mode))

    assert (verdict.label, verdict.decision.code, response["allowed"]) == ("skipped", code, True)
    assert not {"patch", "warnings"} & response.keys()


def test_every_verdict_is_recorded() -> None:
    kept = KeptInMemory()
    evaluate(review(vm(), user="owner"), known(), VMS, kept=kept)

    record = kept.records[0]
    assert (record.object.kind, record.object.namespace, record.object.name) == ("VirtualMachine", "demo", "web01")
    assert (record.user, record.operation, record.mode, record.decision) == ("owner", "CREATE", "enforce", "patched")
    assert record.time == "2023-11-14T22:13:20.250000Z"
    assert [change.new for change in record.changes] == ["kubevirt"] * 3
    assert record.duration_ms >= 0
    assert record.freshness == {"KubeVirtKey": None, "NamespaceKey": 1.235, "SchedulerKey": 1.235}


def test_what_was_read_for_the_review_has_no_age() -> None:
    kept = KeptInMemory()
    evaluate(review(launcher_pod()), cluster=MemoryCluster(known(vmi()), peeked={NamespaceKey("demo")}), kept=kept)

    assert kept.records[0].freshness == {"NamespaceKey": 1.235}


def test_cloud_init_is_in_no_record() -> None:
    kept = KeptInMemory()
    secretive = vm()
    secretive["spec"]["template"]["spec"]["volumes"] = [{"cloudInitNoCloud": {"userData": "hunter2"}}]
    _, response = evaluate(review(secretive), known(), VMS, kept=kept)

    assert b"hunter2" not in msgspec.json.encode(kept.records) + msgspec.json.encode(response)


def test_no_review_is_the_senders_mistake() -> None:
    with pytest.raises(InputError):
        evaluate(review(vm()), endpoint=PODS)


def test_missing_facts_are_read_together() -> None:
    def policy(view: object, request: object, facts: Facts, section: object) -> Decision:
        facts.need(NamespaceKey("a"), NamespaceKey("b"))
        return skip(Reason("done", "done"))

    facts: Any = {NamespaceKey("a"): None, NamespaceKey("b"): None}
    cluster = MemoryCluster(known(vmi()) | facts, set(known(vmi())))
    verdict, _ = evaluate(review(launcher_pod()), endpoint=with_policy(policy), cluster=cluster)

    assert verdict.decision.code == "done"
    assert cluster.reads[:2] == [NamespaceKey("a"), NamespaceKey("b")]


def evicting(mode: str = "enforce", **cluster: Any) -> MemoryCluster:
    """Answers as a live cluster does: watched objects at once, others after a read."""
    there = Namespace(ObjectMeta(name="demo", labels={names.policy_label(names.EVICTION): mode}))
    facts = eviction.facts(**cluster) | {NamespaceKey("demo"): there, NamespaceKey("demo", fresh=True): there}
    watched: set[Key[Any]] = {KubeVirtKey(), NamespaceKey("demo"), NodesKey()}
    return MemoryCluster(facts, watched)


@pytest.mark.parametrize(
    "dry",
    [{"dryRun": True}, {"object": eviction.review()["request"]["object"] | {"deleteOptions": {"dryRun": ["All"]}}}],
)
def test_dry_runs_of_evictions_get_the_same_answer_and_are_told_apart(dry: Json) -> None:
    endpoint, kept = BY_PATH["/mutate/eviction/pods/enforce"], KeptInMemory()

    for request in ({}, dry):
        verdict, response = evaluate(eviction.review(**request), None, endpoint, evicting(nodes=[]), kept)
        assert (verdict.label, response["allowed"], response["status"]["code"]) == ("denied", False, 429)
        assert response["status"]["reason"] == "TooManyRequests"
    assert [record.dry_run for record in kept.records] == [False, False, True, True]


def test_an_eviction_with_every_look_up_is_judged_within_the_rounds() -> None:
    cluster = evicting(found=eviction.vmi(None), strategy="LiveMigrate")
    key = ListKey(LAUNCHER_PODS, "demo", f"kubevirt.io/created-by={UID}")
    assert key in cluster.facts
    came = eviction.pod(annotations={"kubevirt.io/migrationJobName": "before"})
    cluster.facts[key] = (msgspec.convert(came, LauncherPod),)
    cluster.facts[ObjectKey(MIGRATIONS, "demo", "before")] = Migration()

    verdict, _ = evaluate(eviction.review(), None, BY_PATH["/mutate/eviction/pods/enforce"], cluster)

    assert verdict.decision.code == common.ELIGIBLE
    assert len(cluster.reads) // 2 < MAX_ROUNDS


@pytest.mark.parametrize(("mode", "warnings"), [("warn", 1), ("audit", 0)])
def test_evictions_that_are_only_observed(mode: str, warnings: int) -> None:
    observed = BY_PATH["/mutate/eviction/pods/observe"]
    verdict, response = evaluate(eviction.review(), None, observed, evicting(mode, nodes=[]))

    assert (verdict.label, response["allowed"]) == ("would-deny", True)
    assert len(response.get("warnings", ())) == warnings
