"""The Reviewer over a cluster in memory: modes, facts, and every way of not knowing."""

from __future__ import annotations

import asyncio
import base64
import copy
import itertools
import json
from typing import Any, NoReturn
from unittest.mock import ANY, Mock

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import (
    AVAILABLE,
    UNAVAILABLE,
    VMI_UID,
    Json,
    changed,
    known,
    launcher_pod,
    opted_in,
    review,
    vm,
    vmi,
)
from tests.cluster.fake_apiserver import ApiServers
from tests.cluster.live_case import LiveCase, live
from tests.policies.decisions import always
from tests.policies.eviction import world as eviction
from tests.review.memory import PODS, PODS_OBSERVED, VMS, KeptInMemory, MemoryCluster, evaluate, failing
from tests.waiting import until
from webhook import names
from webhook.admission.audit import NoAudit
from webhook.admission.decision import Change, Decision, Denial, Reason, allow, deny
from webhook.admission.reasons import common
from webhook.admission.step_budget import MAX_STEPS, spend
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey, NamespaceKey, NodesKey, SchedulerKey, Unreadable, VmiKey, from_memory
from webhook.k8s.resources import NAMESPACES
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.resources import KUBEVIRTS, PRESETS, UNSTRUCTURED
from webhook.names import Mode, Stage
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.meanings import MEANINGS
from webhook.policies.registry import BY_PATH, ENDPOINTS
from webhook.policies.scheduling import reasons as scheduling
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.policy import Endpoint
from webhook.review.reviewer import Observer, Reviewer
from webhook.review.scope import Scope, of_namespace
from webhook.settings.model import Settings

MIGRATION_PATH = "/validate/migration/virtualmachineinstancemigrations/"
VM_RULES_PATH = "/validate/instancetypes/virtualmachines/"


def with_policy(policy: Any, on_error: Any = "allow", stage: Any = "enforce") -> Endpoint:
    return msgspec.structs.replace(PODS, handler=policy, on_error=on_error, stage=stage)


async def raise_bug(*_: object) -> Decision:
    raise ZeroDivisionError


def review_of(endpoint: Endpoint, obj: Any, **request: Any) -> Json:
    """A review of an endpoint's kind, about anything."""
    kind = {"group": endpoint.codec.group, "version": "v1", "kind": endpoint.kind}
    asked = review({"kind": "Pod"}, kind=kind, subResource=endpoint.sub_resource or None)
    asked["request"] |= {"object": obj} | request
    return asked


def patched(body: Json, response: Json) -> Any:
    return jsonpatch.apply_patch(body["request"]["object"], json.loads(base64.b64decode(response["patch"])))


def test_enforce_patches() -> None:
    body = review(launcher_pod())
    verdict, response = evaluate(body)

    assert (verdict.label, verdict.mode, response["allowed"]) == ("patched", "enforce", True)
    notes = {"mode": "enforce", "decision": "patched", "reason": scheduling.INJECTED, "scheduler": "kubevirt"}
    assert response["auditAnnotations"] == {"uid": response["uid"]} | notes
    pod = patched(body, response)
    injected = pod["metadata"]["annotations"][names.INJECTED_SCHEDULER_ANNOTATION]
    assert pod["spec"]["schedulerName"] == injected == "kubevirt"


@pytest.mark.control("relabeled-namespaces")
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
    notes = {"mode": "off", "decision": "skipped", "reason": common.OUT_OF_SCOPE}
    assert response == {"uid": response["uid"], "allowed": True, "auditAnnotations": {"uid": response["uid"]} | notes}


def test_the_namespace_names_the_scheduler() -> None:
    body = review(launcher_pod())
    _, response = evaluate(body, known(vmi(), scheduler_name="batch"))
    assert patched(body, response)["spec"]["schedulerName"] == "batch"


def test_each_fact_is_read_once() -> None:
    cluster = MemoryCluster(known(vmi()), peeked=set())
    verdict, _ = evaluate(review(launcher_pod()), cluster=cluster)
    assert verdict.label == "patched"
    asked = [KubeVirtKey(), NamespaceKey("demo"), VmiKey("demo", "web01", VMI_UID), SchedulerKey("kubevirt", "demo")]
    assert cluster.reads == asked * 2, "once for evaluate, once for review"


_healths = st.sampled_from([AVAILABLE, UNAVAILABLE, builders.UNKNOWN, Unavailable("x")])
_vmis: st.SearchStrategy[Any] = st.sampled_from(
    [vmi(), vmi(""), vmi("default-scheduler"), vmi("stork"), vmi(uid="x"), None, Unavailable("y")]
)


@given(_healths, _vmis, st.sampled_from(["enforce", "warn", "audit", "off", None]), st.data())
def test_what_is_in_memory_never_changes_an_answer(health: Any, found: Any, mode: str | None, data: Any) -> None:
    facts = known(found, health, mode)
    peeked = data.draw(st.sets(st.sampled_from(sorted(facts, key=repr))))
    _, at_once = evaluate(review(launcher_pod()), facts)
    _, read = evaluate(review(launcher_pod()), cluster=MemoryCluster(facts, peeked))
    assert read == at_once


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
    assert (verdict.label, verdict.decision.code, response["allowed"]) == ("error", common.INVALID_OBJECT, True)
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
def test_what_is_not_evaluated(body: Json, mode: str | None, code: str) -> None:
    verdict, response = evaluate(body, known(vmi(), mode=mode))
    assert (verdict.label, verdict.decision.code, response["allowed"]) == ("skipped", code, True)
    assert not {"patch", "warnings"} & response.keys()


def test_what_is_deleted_is_the_object_of_a_policy_for_that() -> None:
    seen: list[Any] = []

    async def denies(view: Any, *_: object) -> Decision:
        seen.append(view)
        return deny(Reason("later", "not yet"), 429, retry_after=7)

    endpoint = msgspec.structs.replace(with_policy(denies), operations=("DELETE",), denies=False)
    body = review(None, operation="DELETE", oldObject=launcher_pod(), name="web")
    verdict, response = evaluate(body, endpoint=endpoint)
    assert (verdict.label, response["allowed"], response["status"]["code"]) == ("denied", False, 429)
    assert response["status"]["details"] == {"retryAfterSeconds": 7}
    assert [view.meta.name for view in seen] == [launcher_pod()["metadata"].get("name")] * len(seen)
    # One that cannot be read is deleted: what denies has another reason than the object.
    validates = msgspec.structs.replace(endpoint, verb="validate")
    body = review(None, operation="DELETE", oldObject=launcher_pod() | {"spec": 5}, name="web")
    assert evaluate(body, endpoint=validates)[1]["allowed"]
    assert not evaluate(body, endpoint=msgspec.structs.replace(validates, denies=True))[1]["allowed"]


@pytest.mark.control("reviews-on-record", "relabeled-namespaces")
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


def evicting(mode: str = "enforce", **cluster: Any) -> MemoryCluster:
    """Answers as a live cluster does: watched objects at once, others after a read."""
    facts = eviction.facts(**cluster) | opted_in(names.EVICTION, mode=mode)
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
        status = (response["status"]["code"], response["status"]["reason"])
        assert (verdict.label, response["allowed"], status) == ("denied", False, (429, "TooManyRequests"))
    assert [record.dry_run for record in kept.records] == [False, False, True, True]


@pytest.mark.parametrize(("mode", "warnings"), [("warn", 1), ("audit", 0)])
def test_evictions_that_are_only_observed(mode: str, warnings: int) -> None:
    observed = BY_PATH["/mutate/eviction/pods/observe"]
    verdict, response = evaluate(eviction.review(), None, observed, evicting(mode, nodes=[]))
    assert (verdict.label, response["allowed"]) == ("would-deny", True)
    assert len(response.get("warnings", ())) == warnings


@pytest.mark.control("malformed-reviews")
def test_a_bug_admits_where_the_endpoint_says_so() -> None:
    kept, cluster = KeptInMemory(), MemoryCluster(known(vmi()), peeked=set())
    verdict, response = evaluate(review(launcher_pod()), endpoint=with_policy(raise_bug), cluster=cluster, kept=kept)
    assert (verdict.decision.code, response["allowed"], "patch" in response) == (common.BUG, True, False)
    assert [type(each) for each in kept.errors] == [ZeroDivisionError] * 2


@pytest.mark.parametrize("peeked", [None, set()], ids=["in memory", "read"])
@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_a_fact_that_nobody_can_read_is_no_bug_of_the_policy_that_needs_it(
    policy: Any, peeked: set[Any] | None
) -> None:
    async def needs_it(*_: object) -> NoReturn:
        raise Unreadable("nobody knows")

    endpoint = msgspec.structs.replace(BY_PATH[f"{MIGRATION_PATH}enforce"], handler=needs_it)
    asked = review_of(endpoint, {"kind": endpoint.kind, "metadata": {"name": "web01"}})
    kept, cluster = KeptInMemory(), MemoryCluster(known() | opted_in(endpoint.policy), peeked=peeked)
    verdict, response = evaluate(asked, endpoint=endpoint, cluster=cluster, kept=kept, failure_policy=policy)
    assert (verdict.decision.code, response["allowed"]) == (common.LOOKUP_FAILED, policy == "Ignore")
    assert "nobody knows" in verdict.decision.reasons[0].text
    assert kept.errors == []


FAILURES = sorted(code for code, meaning in MEANINGS.items() if meaning.kind == "failed")


@pytest.mark.parametrize("code", FAILURES)
def test_what_a_policy_says_it_could_not_evaluate_is_an_error(code: str) -> None:
    """docs/messages.md promises it of each such code; metrics, alerts and Events look for the word."""
    reason = Reason(code, "it was not evaluated")
    verdict, response = evaluate(review(launcher_pod()), endpoint=with_policy(always(allow(reason, warn=True))))
    assert (verdict.label, response["auditAnnotations"]["decision"], response["allowed"]) == ("error", "error", True)
    # What has been changed all the same is no error, and neither is a doubt beside a decision.
    change = Change(("metadata", "labels"), None, {"a": "b"}, code)
    for decision, label in (
        (Decision((reason,), (change,)), "patched"),
        (Decision((common.eligible(1, 1), reason), warnings=(reason,)), "allowed"),
    ):
        assert evaluate(review(launcher_pod()), endpoint=with_policy(always(decision)))[0].label == label


@pytest.mark.parametrize(("code", "status"), [(common.LOOKUP_FAILED, 503), (common.TOO_COMPLEX, 422)])
def test_it_is_an_error_where_it_is_denied_too(code: str, status: int) -> None:
    denied = always(Decision((Reason(code, "x"),), denial=Denial(status, "x")))
    verdict, response = evaluate(review(launcher_pod()), endpoint=with_policy(denied))
    assert (verdict.label, response["allowed"]) == ("error", False)
    observed = with_policy(denied, stage="observe")
    assert evaluate(review(launcher_pod()), known(vmi(), mode="audit"), observed)[0].label == "error"


def test_an_eviction_that_could_not_be_evaluated_is_an_error() -> None:
    endpoint = BY_PATH["/mutate/eviction/pods/enforce"]
    facts = eviction.facts() | opted_in(names.EVICTION) | {eviction.MINE: Unavailable("no answer")}
    verdict, response = evaluate(eviction.review(), facts, endpoint)
    assert (verdict.label, verdict.decision.code, response["allowed"]) == ("error", common.LOOKUP_FAILED, True)


def test_the_api_servers_audit_log_can_be_joined_with_audit_lines_and_has_all_their_codes() -> None:
    reasons = (
        common.eligible(1, 1),
        *(Reason(common.LOOKUP_FAILED, text) for text in "xy"),
        common.host_cpu_unknown("z"),
    )
    kept = KeptInMemory()
    _, response = evaluate(review(launcher_pod()), endpoint=with_policy(always(Decision(reasons))), kept=kept)
    notes, line = response["auditAnnotations"], kept.records[0]
    assert notes["uid"] == line.uid == response["uid"]
    codes = [notes["reason"], *notes["other-reasons"].split(",")]
    assert codes == list(dict.fromkeys(reason.code for reason in line.reasons))


async def test_every_observer_gets_evaluations_and_errors() -> None:
    observers = [Mock(spec=Observer) for _ in range(2)]
    reviewer = Reviewer(MemoryCluster(known(vmi())), builders.settings, NoAudit(), *observers)
    endpoint = with_policy(raise_bug)
    verdict = await reviewer.evaluate(endpoint, msgspec.json.encode(review(launcher_pod())), 1e9)
    for observer in observers:
        observer.on_evaluated.assert_called_once_with(endpoint, verdict, ANY)
        observer.on_failure.assert_called_once_with(endpoint, ANY)
        assert isinstance(observer.on_failure.call_args.args[1], ZeroDivisionError)


@pytest.mark.control("allow-list-while-down")
@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
@pytest.mark.parametrize("path", [MIGRATION_PATH, VM_RULES_PATH])
def test_a_bug_refuses_where_the_failure_policy_says_so(path: str, policy: Any) -> None:
    endpoint = msgspec.structs.replace(BY_PATH[f"{path}enforce"], handler=raise_bug)
    asked = review_of(endpoint, {"kind": endpoint.kind, "metadata": {"name": "web01"}})
    _, response = evaluate(asked, known() | opted_in(endpoint.policy), endpoint, failure_policy=policy)
    assert response["allowed"] is (policy == "Ignore")
    assert response.get("status", {}).get("code") == (503 if policy == "Fail" else None)
    assert bool(response.get("warnings")) is (policy == "Ignore")


def test_a_namespace_that_can_not_be_read_refuses_where_the_failure_policy_says_so() -> None:
    endpoint, unreadable = BY_PATH[f"{VM_RULES_PATH}enforce"], Unavailable("no answer")
    facts: Any = known() | {NamespaceKey("demo"): unreadable, NamespaceKey("demo", uncached=True): unreadable}
    answers = [evaluate(review(vm()), facts, endpoint, failure_policy=p)[1] for p in ("Ignore", "Fail")]
    assert [answer["allowed"] for answer in answers] == [True, False]
    assert "no answer" in answers[0]["warnings"][0]


def test_observing_never_refuses_and_a_bug_is_silent() -> None:
    endpoint = msgspec.structs.replace(BY_PATH[f"{MIGRATION_PATH}observe"], handler=raise_bug)
    asked = review_of(endpoint, {"kind": endpoint.kind})
    verdict, response = evaluate(asked, known() | opted_in(names.MIGRATION, mode="audit"), endpoint)
    said = (verdict.mode, verdict.label, response["allowed"], "warnings" in response)
    assert said == ("audit", "error", True, False)


async def _endless(*_: object) -> Decision:
    try:
        spend(MAX_STEPS + 1, "terms")
    except Exception:
        return allow(Reason(common.ELIGIBLE, "a policy forgives what it does not know"))
    raise AssertionError


@pytest.mark.control("largest-objects")
def test_what_is_too_complex_is_allowed_with_a_warning() -> None:
    verdict, response = evaluate(review(launcher_pod()), endpoint=with_policy(_endless))
    assert (verdict.label, verdict.decision.code, verdict.mode) == ("error", common.TOO_COMPLEX, "enforce")
    assert (response["allowed"], "patch" in response, "terms" in response["warnings"][0]) == (True, False, True)


@pytest.mark.control("largest-objects")
@pytest.mark.parametrize("mode", ["enforce", "warn", "audit"])
def test_what_is_too_complex_is_refused_where_errors_are_and_in_enforce_only(mode: str) -> None:
    validating = msgspec.structs.replace(PODS, handler=_endless, verb="validate", denies=True)
    verdict, response = evaluate(review(launcher_pod()), known(vmi(), mode=mode), validating)
    assert (verdict.label, verdict.decision.code) == ("error", common.TOO_COMPLEX)
    assert response["allowed"] is (mode != "enforce")
    # The status is not 503, since a retry would not help.
    assert response.get("status", {}).get("code") == (422 if mode == "enforce" else None)


def declaring(name: str) -> Settings:
    """Settings that declare one scheduler, which is injected."""
    usual = builders.settings()
    scheduler = changed(usual.of(SchedulingSettings).schedulers["kubevirt"], name=name)
    section = changed(usual.of(SchedulingSettings), scheduler_name=name, schedulers={name: scheduler})
    return changed(usual, scheduling=section)


def facts_of(settings: Settings, chosen: str | None = None) -> dict[Key[Any], object]:
    """The facts as a replica with these settings reads them: it watches the schedulers that they declare."""
    facts = known(vmi(chosen))
    for name in ("kubevirt", "other"):
        facts[SchedulerKey(name, "demo")] = AVAILABLE if name in settings.of(SchedulingSettings).schedulers else None
    return facts


def admitted(settings: Settings, endpoint: Any, obj: Json, chosen: str | None = None) -> tuple[Json, list[Json], str]:
    """The object after a replica's answer, the patch, and the code of the reason."""
    kept = KeptInMemory()
    reviewer = Reviewer(MemoryCluster(facts_of(settings, chosen)), lambda: settings, kept, kept)
    answer = asyncio.run(reviewer.review(endpoint, msgspec.json.encode(review(obj)), 1e9))
    response = json.loads(answer)["response"]
    assert response["allowed"]
    assert kept.errors == []
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return jsonpatch.apply_patch(copy.deepcopy(obj), patch), patch, kept.records[-1].reasons[0].code


A, B = declaring("kubevirt"), declaring("other")


def test_what_one_replica_wrote_the_other_leaves_when_it_is_asked_again() -> None:
    """As at a reinvocation, which may reach another replica than the first call."""
    first, patch, code = admitted(A, VMS, vm())
    assert (code, first["spec"]["template"]["spec"]["schedulerName"]) == (scheduling.INJECTED, "kubevirt")
    assert patch
    again, patch, code = admitted(B, VMS, first)
    assert (patch, code, again) == ([], scheduling.ALREADY_INJECTED, first)


def test_pods_of_the_other_replica_s_vms_fall_back_once() -> None:
    """A scheduler that this replica's settings do not declare has no health check here."""
    machine, _, _ = admitted(A, VMS, vm())
    pod = launcher_pod(schedulerName="kubevirt")
    pod["metadata"].setdefault("annotations", {}).update(machine["spec"]["template"]["metadata"]["annotations"])
    fallen, _, code = admitted(B, PODS, pod, "kubevirt")
    assert (code, fallen["spec"]["schedulerName"]) == (scheduling.FELL_BACK, "default-scheduler")
    for settings in (A, B):
        again, patch, code = admitted(settings, PODS, fallen, "kubevirt")
        assert (patch, code, again) == ([], scheduling.ALREADY_FELL_BACK, fallen)


def test_other_mutators_before_and_after_keep_what_they_wrote() -> None:
    """A mutator that runs first, or after this one, counts as the owner: its scheduler stays."""
    theirs = vm(scheduler="theirs")
    assert admitted(A, VMS, theirs)[:2] == (theirs, [])
    ours, _, _ = admitted(A, VMS, vm())
    changed, removed = copy.deepcopy(ours), copy.deepcopy(ours)
    changed["spec"]["template"]["spec"]["schedulerName"] = "theirs"
    again, patch, code = admitted(A, VMS, changed)
    assert (again, patch, code == scheduling.INJECTED) == (changed, [], False)
    del removed["spec"]["template"]["spec"]["schedulerName"]
    again, _, code = admitted(A, VMS, removed)
    # At CREATE it is set again, to the same: the API server calls each webhook once more at most.
    assert (again, code) == (ours, scheduling.INJECTED)


ENDPOINT = BY_PATH["/mutate/instancetypes/virtualmachineinstances/enforce"]
PANICKING = UNSTRUCTURED["VirtualMachineClusterPreference"]


def put_kubevirt(case: LiveCase, observed: str, target: str) -> None:
    status = {"phase": "Deployed", "observedKubeVirtVersion": observed, "targetKubeVirtVersion": target}
    case.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={}, status=status)


async def has_panic_device(reviewer: Reviewer) -> bool:
    """The answer to a review: KubeVirt 1.9 adds the device that the preference names, and earlier releases don't."""
    bare: Json = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    bare |= {"spec": {"domain": {"memory": {"guest": "1Gi"}, "devices": {}}}}
    annotations = {names.PREFERENCE_ANNOTATION: "panicking"}
    bare["metadata"] = {"name": "bare", "namespace": "demo", "annotations": annotations}
    deadline = asyncio.get_running_loop().time() + 10
    verdict = await reviewer.evaluate(ENDPOINT, msgspec.json.encode(review(bare)), deadline)
    assert verdict.label == "patched", verdict.decision
    return b"panicDevices" in (verdict.patch or b"")


@pytest.mark.control("release-changes-mid-review", "mixed-releases")
async def test_an_update_of_kubevirt_is_followed(apiservers: ApiServers) -> None:
    settings = changed(builders.settings(), instancetypes=InstancetypeSettings(cluster_wide=True))
    async with live(apiservers, settings) as case:
        spec = {"devices": {"preferredPanicDeviceModel": "isa"}}
        case.server.serve(PRESETS)
        case.server.put(PANICKING, "panicking", spec=spec)
        case.server.put(NAMESPACES, "demo")
        put_kubevirt(case, "v1.8.4", "v1.8.4")
        case.cluster.start()
        await case.ready()
        reviewer = Reviewer(case.cluster, lambda: settings, NoAudit(), Observer())
        before: Any = case.cluster.peek(KubeVirtKey())

        assert not await has_panic_device(reviewer)
        put_kubevirt(case, "v1.8.4", "v1.9.0")
        await until(lambda: case.cluster.peek(KubeVirtKey()) is not before)
        assert not await has_panic_device(reviewer)
        put_kubevirt(case, "v1.9.0", "v1.9.0")
        answers = [await has_panic_device(reviewer)]
        while not answers[-1]:
            answers.append(await has_panic_device(reviewer))
        # Once the new rules count they stay; on the way back those of the older release count from the beginning.
        assert [await has_panic_device(reviewer) for _ in range(20)] == [True] * 20
        assert sorted(answers) == answers
        before = case.cluster.peek(KubeVirtKey())
        put_kubevirt(case, "v1.9.0", "v1.6.6")
        await until(lambda: case.cluster.peek(KubeVirtKey()) is not before)
        assert [await has_panic_device(reviewer) for _ in range(20)] == [False] * 20


# Objects that cannot be read, by depth or by bytes, at every endpoint.
_DEEP = "@deep@"
_OBJECTS = {
    # Values that the API server stores in spec.template.metadata, which has no schema.
    "deeper than we read": b"[" * 300 + b"]" * 300,
    "deeper than Python walks": b'{"a":' * 1100 + b"1" + b"}" * 1100,
    "as deep as the API server takes": b"[" * 9_990 + b"]" * 9_990,
    "of more brackets than are counted": b"[" + b"[1]," * 60_000 + b'{"a":' * 1100 + b"1" + b"}" * 1100 + b"]",
    # Bodies that no API server sends, but other clients might.
    "invalid UTF-8": b'"\xff"',
    "a lone surrogate": b'"\\ud800"',
    "a control character": b'"\x01"',
    "no JSON": b"NaN",
    "a number out of range": b"1e999999",
}


@pytest.mark.control("unreadable-vms")
@pytest.mark.repeats
@pytest.mark.parametrize(
    ("number", "path", "mode"),
    [
        (at // 2 + (mode == "audit"), path, mode)
        for at, path in enumerate(sorted(BY_PATH))
        for mode in (("enforce",) if BY_PATH[path].stage == "enforce" else ("warn", "audit"))
    ],
)
def test_an_object_that_can_not_be_read_is_denied_by_what_validates_and_warned_of_elsewhere(
    number: int, path: str, mode: str
) -> None:
    """With every object, the new and the old one in turn; every other endpoint begins with the old one."""
    endpoint, places = BY_PATH[path], ("object", "oldObject")
    for place, (what, value) in zip(itertools.cycle(places[:: 1 - 2 * (number % 2)]), _OBJECTS.items(), strict=False):
        # In the metadata, which every view reads.
        asked = review_of(endpoint, {"kind": endpoint.kind}, **{place: {"metadata": {"labels": _DEEP}}})
        body = msgspec.json.encode(asked).replace(f'"{_DEEP}"'.encode(), value)
        kept = KeptInMemory()

        facts = known() | opted_in(endpoint.policy, mode=mode)
        verdict, response = evaluate(asked, facts, endpoint, kept=kept, body=body)

        refused = endpoint.verb == "validate" and endpoint.denies and mode == "enforce"
        assert verdict.decision.code == common.INVALID_OBJECT, (what, place)
        said = (response["allowed"], response.get("status", {}).get("code"), bool(response.get("warnings")))
        assert said == (not refused, 422 if refused else None, mode != "audit" and not refused), (what, place)
        assert ("patch" in response, kept.errors) == (False, [])
        assert (kept.records[0].user, kept.records[0].object.namespace) == (builders.CONTROLLER, "demo")


@pytest.mark.repeats
@pytest.mark.parametrize("levels", [300, 1100, 9_990])
def test_an_allow_list_is_not_got_around_by_depth(levels: int) -> None:
    endpoint, what = BY_PATH[f"{VM_RULES_PATH}enforce"], {"kind": "VirtualMachineInstancetype", "name": "huge"}
    asked = review(vm(instancetype=what))
    asked["request"]["object"]["spec"]["template"]["metadata"] = _DEEP
    body = msgspec.json.encode(asked).replace(f'"{_DEEP}"'.encode(), b'{"a":' * levels + b"1" + b"}" * levels)
    facts = known() | opted_in(names.INSTANCETYPES, annotations={names.ALLOWED_INSTANCETYPES_ANNOTATION: "small"})
    verdict, response = evaluate(asked, facts, endpoint, body=body)
    assert (verdict.label, response["allowed"], response["status"]["code"]) == ("denied", False, 422)
    assert f"is nested {levels + 3} levels deep" in response["status"]["message"]


@pytest.mark.repeats
def test_whether_an_endless_object_was_a_dry_run_is_not_known() -> None:
    asked = review(launcher_pod() | {"metadata": _DEEP})
    many = msgspec.json.encode(asked).replace(f'"{_DEEP}"'.encode(), _OBJECTS["of more brackets than are counted"])
    few = msgspec.json.encode(asked).replace(f'"{_DEEP}"'.encode(), _OBJECTS["deeper than Python walks"])
    assert evaluate(asked, body=many)[0].request.dry_run is True
    assert evaluate(asked, body=few)[0].request.dry_run is False


@pytest.mark.repeats
def test_what_is_read_beside_an_object_may_be_deep_too() -> None:
    def walk(value: Any) -> Any:
        return walk([value])

    async def policy(*_: object) -> Any:
        return walk(1)

    endpoint = msgspec.structs.replace(BY_PATH[f"{VM_RULES_PATH}enforce"], handler=policy)
    kept = KeptInMemory()

    verdict, response = evaluate(review(vm()), known() | opted_in(names.INSTANCETYPES), endpoint, kept=kept)

    assert (verdict.decision.code, response["status"]["code"]) == (common.INVALID_OBJECT, 422)
    assert kept.errors == []


EXCLUDED = frozenset({"kube-system"})


def scope(
    stage: Stage = "enforce",
    where: str = "demo",
    cluster_wide: bool = False,
    facts: dict[Any, object] | None = None,
    **more: Any,
) -> Scope:
    found = found_scope(stage, where, cluster_wide, facts, **more)
    assert isinstance(found, Scope)
    return found


def found_scope(
    stage: Stage = "enforce",
    where: str = "demo",
    cluster_wide: bool = False,
    facts: dict[Any, object] | None = None,
    **more: Any,
) -> Scope | Unavailable:
    there = facts if facts is not None else known(**more)
    return from_memory(of_namespace("scheduling", stage, where, Facts.of(there), cluster_wide, EXCLUDED))


@pytest.mark.parametrize(
    ("label", "stage", "mode"),
    [
        *(("enforce", "enforce", "enforce"), ("warn", "observe", "warn"), ("audit", "observe", "audit")),
        # Either copy of the namespace may be old: never more than the path allows, never more than the label says.
        *(("enforce", "observe", "audit"), ("warn", "enforce", "warn"), ("audit", "enforce", "audit")),
        *((label, stage, "off") for label in ("off", None) for stage in ("enforce", "observe")),
        ("Enforce", "enforce", "off"),
        ("", "enforce", "off"),
    ],
)
def test_mode_by_label_and_path(label: str | None, stage: Stage, mode: Mode) -> None:
    found = scope(stage, mode=label)
    assert (found.mode, found.reason is None) == (mode, mode != "off")


@pytest.mark.control("labels-switch-policies")
def test_cluster_wide_enforces_where_no_label_says_otherwise() -> None:
    for label, mode in ((None, "enforce"), ("off", "off"), ("warn", "warn")):
        assert scope(cluster_wide=True, mode=label).mode == mode


def test_parameters_are_the_annotations() -> None:
    found = scope(scheduler_name="batch")
    assert found.annotations == {"kubevirt-webhook.github.io/scheduler-name": "batch"}


@pytest.mark.parametrize("where", ["kube-system", "kubevirt"])
def test_excluded_namespaces(where: str) -> None:
    found = scope(where=where, cluster_wide=True)
    assert (found.mode, found.reason and found.reason.code) == ("off", common.EXCLUDED_NAMESPACE)


def test_objects_without_a_namespace() -> None:
    assert scope(where="").mode == "off"


def test_namespace_that_has_just_opted_in_is_read_again() -> None:
    facts = known() | {NamespaceKey("demo"): builders.namespace(None)}
    assert scope(facts=facts).mode == "enforce"


@pytest.mark.control("invented-namespaces")
@pytest.mark.parametrize(("read", "said"), [(None, "it does not exist"), (Unavailable("too slow"), "too slow")])
def test_unreadable_namespace_is_asked_for_once(read: Any, said: str) -> None:
    """A watched copy never says so: the API server did."""
    facts = known() | {NamespaceKey("demo"): read}
    del facts[NamespaceKey("demo", uncached=True)]
    assert found_scope(facts=facts) == Unavailable(said)


def test_where_kubevirt_runs_may_be_unknown() -> None:
    facts = known() | {KubeVirtKey(): Unavailable("forbidden")}
    assert scope(facts=facts).mode == "enforce"
    assert scope(facts=known() | {KubeVirtKey(): KubeVirtInstall(frozenset({"demo"}))}).mode == "off"


def test_vms_get_their_instancetype_before_their_scheduler() -> None:
    policies = [
        e.policy for e in ENDPOINTS if (e.resource, e.verb, e.stage) == ("virtualmachines", "mutate", "enforce")
    ]
    assert policies.index("instancetypes") < policies.index("scheduling") < policies.index("groups")


def test_faults_of_ours_stand_in_the_way_where_an_admin_wants_it_only() -> None:
    usual, strict, lax = (failing(policy) for policy in (None, "Fail", "Ignore"))

    def refusing(settings: Settings) -> set[str]:
        return {endpoint.path for endpoint in ENDPOINTS if endpoint.fails_closed(settings)}

    migrations = {f"/validate/migration/virtualmachineinstancemigrations/{s}" for s in ("enforce", "observe")}
    vms = {f"/validate/instancetypes/virtualmachines/{s}" for s in ("enforce", "observe")}
    # It matches only migrations with an added selector, which no drain has.
    assert (refusing(usual), refusing(strict), refusing(lax)) == (migrations, migrations | vms, set())
