"""What the API server and etcd write becomes the history that it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .history import Call, Change, Json, ObjectId, Webhook
from .proxy import Rule, _about, _is_about
from .record import EtcdRecorder, _Seen, audit_events, audit_flags, moments, requests_of

ENTRY = "virtualmachines.scheduling.enforce.kubevirt-webhook.github.io"
SIZES = "virtualmachines.instancetypes.enforce.kubevirt-webhook.github.io"
WEBHOOKS = [
    Webhook(SIZES, "mutating", "/mutate/instancetypes/virtualmachines/enforce", "Ignore"),
    Webhook(ENTRY, "mutating", "/mutate/scheduling/virtualmachines/enforce", "Ignore"),
    Webhook(SIZES, "validating", "/validate/instancetypes/virtualmachines/enforce", "Ignore"),
]
VM: Json = {"kind": "VirtualMachine", "metadata": {"name": "web", "namespace": "demo"}, "spec": {}}
PATCH = [{"op": "add", "path": "/spec/x", "value": "y"}]


def event(**more: Any) -> Json:
    return {
        "auditID": "1",
        "stage": "ResponseComplete",
        "verb": "create",
        "user": {"username": "admin", "groups": ["system:masters"]},
        "objectRef": {"resource": "virtualmachines", "namespace": "demo", "name": "web"},
        "responseStatus": {"code": 201},
        "requestObject": VM,
        "responseObject": {**VM, "metadata": {**VM["metadata"], "resourceVersion": "7"}},
        "requestReceivedTimestamp": "2026-01-01T00:00:10.000000Z",
        "stageTimestamp": "2026-01-01T00:00:10.500000Z",
        "annotations": {
            "mutation.webhook.admission.k8s.io/round_0_index_0": json.dumps({"webhook": SIZES, "mutated": False}),
            "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0": SIZES,
            "mutation.webhook.admission.k8s.io/round_0_index_3": json.dumps({"webhook": ENTRY, "mutated": True}),
            "patch.webhook.admission.k8s.io/round_0_index_3": json.dumps({"webhook": ENTRY, "patch": PATCH}),
        },
    } | more


def line(path: str, decision: str, reason: str, second: float = 10.2) -> Json:
    return {
        "time": f"2026-01-01T00:00:{second:09.6f}Z",
        "endpoint": path,
        "operation": "CREATE",
        "user": "admin",
        "object": {"kind": "VirtualMachine", "namespace": "demo", "name": "web"},
        "mode": "enforce",
        "decision": decision,
        "reasons": [{"code": reason}],
    }


LINES = [
    line(WEBHOOKS[1].path, "patched", "chosen"),
    line(WEBHOOKS[2].path, "allowed", "valid"),
    # A controller's, of what is there before its owner has the answer.
    line(WEBHOOKS[2].path, "allowed", "unchanged", 10.1) | {"operation": "UPDATE"},
    line(WEBHOOKS[2].path, "allowed", "unchanged", 10.1) | {"user": "controller"},
    line(WEBHOOKS[2].path, "allowed", "other-kind", 10.1)
    | {"object": {"kind": "VirtualMachineInstance", "namespace": "demo", "name": "web"}},
    # Of another request of the same name, a second later.
    line(WEBHOOKS[1].path, "allowed", "other", 11.2),
]


def test_calls_come_in_their_order_with_what_was_answered() -> None:
    (request,) = requests_of([event()], LINES, WEBHOOKS, [])
    assert request.calls == (
        Call(SIZES, "mutating", failed_open=True),
        Call(ENTRY, "mutating", "enforce", "patched", "chosen", PATCH),
        Call(SIZES, "validating", "enforce", "allowed", "valid"),
    )
    assert (request.operation, request.code, round(request.completed - request.received, 3)) == ("CREATE", 201, 0.5)


def test_an_update_has_what_was_stored_before_it() -> None:
    updated = {**VM, "metadata": {**VM["metadata"], "resourceVersion": "5"}}
    stored = Change(ObjectId("VirtualMachine", "demo", "web"), 1.0, 2.0, {**VM, "spec": {"former": True}}, 5)
    (request,) = requests_of([event(verb="update", requestObject=updated)], [], WEBHOOKS, [stored])
    assert request.operation == "UPDATE"
    assert request.old is not None
    assert request.old["spec"] == {"former": True}
    # Of a version that etcd does not tell, nothing can be said.
    assert requests_of([event(verb="update", requestObject=updated)], [], WEBHOOKS, []) == []


def test_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    audit_flags(tmp_path)
    (tmp_path / "audit.log").write_text(f'{json.dumps(event())}\n{{"torn": \n{json.dumps(event(stage="Panic"))}\n')
    assert [each["stage"] for each in audit_events(tmp_path)] == ["ResponseComplete", "Panic"]
    ((received, completed),) = moments(audit_events(tmp_path)[:1])[7]
    assert round(completed - received, 3) == 0.5


def test_a_change_lies_between_the_narrowest_moments_in_etcds_order() -> None:
    recorder, demo = EtcdRecorder(0), ObjectId("Namespace", "", "demo")
    recorder._seen = [
        _Seen(demo, {"number": 1}, 7, began=5.0, arrived=20.0),
        _Seen(demo, {"number": 2}, 8, began=5.0, arrived=21.0),
        _Seen(demo, {"number": 3}, 9, began=5.0, arrived=22.0),
        # Read again, of an etcd that was put back: the revision is another one's.
        _Seen(demo, {"number": 4}, 8, began=22.0, arrived=30.0, is_followed=False),
    ]
    changes = recorder.changes({7: [(10.0, 11.0)], 8: [(100.0, 101.0)], 9: [(10.5, 12.0)]})
    assert [(change.after, change.by) for change in changes] == [(10.0, 11.0), (10.0, 12.0), (10.5, 12.0), (22.0, 30.0)]


def test_rules_are_about_what_they_name() -> None:
    page = _about("/api/v1/namespaces?limit=100&continue=abc")
    watch = _about("/apis/kubevirt.io/v1/virtualmachineinstances?watch=true")
    assert (page, watch) == (("namespaces", "page"), ("virtualmachineinstances", "watch"))
    assert _about("/api/v1/namespaces/demo") == ("namespaces", "get")
    assert _about("/api/v1/namespaces/demo/pods?limit=100") == ("pods", "list")
    assert _about("/apis/kubevirt.io/v1/namespaces/demo/virtualmachines/web") == ("virtualmachines", "get")
    assert _is_about(Rule("namespaces", "page"), *page)
    assert _is_about(Rule(), *page)
    assert not _is_about(Rule("pods"), *page)
    assert not _is_about(Rule("namespaces", "watch"), *page)
