from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import UNAVAILABLE, VMI_UID, Json, known, launcher_pod, review, vm, vmi
from tests.policies.eviction import world as evictions
from tests.review.memory import PODS, PODS_OBSERVED, VMS, KeptInMemory, evaluate
from tests.server.background.decisions import DENIED
from webhook import names
from webhook.admission.decision import Decision, Reason
from webhook.facts import NamespaceKey
from webhook.k8s.views import Namespace, ObjectMeta
from webhook.policies.scheduling import messages
from webhook.review.endpoints import BY_PATH, Endpoint
from webhook.server.background.event_observer import EventObserver, event_of
from webhook.server.background.event_recorder import Event

EVICTIONS = BY_PATH["/mutate/eviction/pods/enforce"]


def said(body: Json, endpoint: Endpoint, decision: Decision | None = None, **facts: Any) -> Event | None:
    if decision is not None:
        endpoint = msgspec.structs.replace(endpoint, handler=lambda *_: decision)
    return event_of(endpoint, evaluate(body, known(vmi(), **facts), endpoint)[0])


def test_a_refused_creation_is_told_of_the_namespace() -> None:
    event = said(review(vm()), VMS, DENIED)

    note = "kubevirt-webhook (scheduling): CREATE of VirtualMachine web01 was denied: it cannot be [no]"
    assert event == Event("demo", "v1", "Namespace", "demo", "", "Denied", "no", note)


def test_a_refused_change_is_told_of_the_object() -> None:
    body = review(vm() | {"metadata": {"name": "web01", "uid": "u1"}}, operation="UPDATE", name="web01")
    event = said(body, VMS, DENIED)

    assert event
    assert (event.api_version, event.kind, event.name, event.uid) == (
        "kubevirt.io/v1",
        "VirtualMachine",
        "web01",
        "u1",
    )


def test_what_concerns_a_pod_is_reported_on_its_vmi() -> None:
    event = said(review(launcher_pod()), PODS, health=UNAVAILABLE)

    assert event
    assert (event.reason, event.code) == ("Warned", "scheduler-unavailable")
    assert (event.kind, event.name, event.uid) == ("VirtualMachineInstance", "web01", VMI_UID)
    assert messages.unavailable("kubevirt", UNAVAILABLE.why).text in event.note
    assert event.note.startswith("kubevirt-webhook (scheduling): ")
    assert event.note.endswith(" [scheduler-unavailable]")


def test_what_could_not_be_evaluated() -> None:
    body = review(vm() | {"spec": 5}, name="web01")
    event = said(body, VMS)

    assert event
    assert (event.reason, event.kind, event.name) == ("NotEvaluated", "VirtualMachine", "web01")


def test_mode_warn_says_what_would_be() -> None:
    observed = msgspec.structs.replace(PODS_OBSERVED, handler=lambda *_: DENIED)
    body = review(vm())
    pod = event_of(observed, evaluate(review(launcher_pod()), known(vmi(), mode="warn"), observed)[0])

    assert pod
    assert (pod.reason, pod.kind) == ("WouldDeny", "VirtualMachineInstance")
    assert said(body, VMS, DENIED, mode="audit") is None


def test_a_refused_eviction_is_told_of_the_pod() -> None:
    endpoint = BY_PATH["/mutate/eviction/pods/enforce"]
    request = evictions.review()["request"]
    sent: Any = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    labels = {names.policy_label(names.EVICTION): "enforce"}
    there = {NamespaceKey("demo"): Namespace(ObjectMeta(name="demo", labels=labels))}
    refusing = msgspec.structs.replace(endpoint, handler=lambda *_: DENIED)
    event = event_of(refusing, evaluate(sent, known() | there, refusing)[0])

    assert event
    assert (event.api_version, event.kind, event.name) == ("v1", "Pod", evictions.POD)
    request["object"]["deleteOptions"] = {"dryRun": ["All"]}
    assert event_of(refusing, evaluate(sent, known() | there, refusing)[0]) is None


def test_an_object_without_a_name_is_told_of_the_namespace() -> None:
    body = review(vm() | {"metadata": {}})
    event = said(body, VMS, Decision((Reason("x", "y"),), warnings=(Reason("x", "beware"),)))

    assert event
    assert (event.kind, event.name) == ("Namespace", "demo")


@pytest.mark.parametrize("change", [{"dryRun": True}, {"namespace": ""}])
def test_nothing_is_told_of_dry_runs_and_of_what_is_in_no_namespace(change: Json) -> None:
    assert said(review(vm(), **change), VMS, DENIED) is None


def test_nothing_is_told_of_an_eviction_whose_own_options_say_dry_run() -> None:
    there = Namespace(ObjectMeta(name="demo", labels={names.policy_label(names.EVICTION): names.ENFORCE}))
    facts = evictions.facts(nodes=[]) | {NamespaceKey("demo"): there, NamespaceKey("demo", fresh=True): there}
    body = evictions.review()
    told = event_of(EVICTIONS, evaluate(body, facts, EVICTIONS)[0])
    assert told
    assert (told.reason, told.code) == ("Denied", "no-eligible-node")

    body["request"]["object"]["deleteOptions"] = {"dryRun": ["All"]}
    assert event_of(EVICTIONS, evaluate(body, facts, EVICTIONS)[0]) is None


def test_nothing_is_told_of_what_went_as_it_should() -> None:
    assert said(review(launcher_pod()), PODS) is None


def test_everything_is_passed_on() -> None:
    kept, told = KeptInMemory(), list[Event]()
    on = [True]
    announcer = EventObserver(kept, told.append, lambda: on[0])
    endpoint = msgspec.structs.replace(VMS, handler=lambda *_: DENIED)
    verdict = evaluate(review(vm()), known(), endpoint)[0]
    announcer.on_evaluated(endpoint, verdict, 0.1)
    announcer.on_evaluated(PODS, evaluate(review(launcher_pod()))[0], 0.1)
    on[0] = False
    announcer.on_evaluated(endpoint, verdict, 0.1)
    error = ValueError()
    announcer.on_error(PODS, error)

    assert len(told) == 1
    assert kept.errors == [error]
