"""What a scan for drift looks at, and the review of an object."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import launcher_pod, vm
from tests.server.drift_scan.conftest import settings, stored
from webhook import names
from webhook.k8s.types.meta import Namespace, ObjectMeta, Unstructured
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.registry import BY_PATH, ENDPOINTS
from webhook.server.drift_scan import scanned_objects
from webhook.settings.model import MatchExpression, NamespaceSelector, Settings, WebhookSettings

PODS = BY_PATH["/mutate/scheduling/pods/enforce"]
VMS = BY_PATH["/mutate/instancetypes/virtualmachines/enforce"]
VALIDATED = BY_PATH["/validate/instancetypes/virtualmachines/enforce"]
NAMED, SIZED = (BY_PATH[f"/validate/{policy}/virtualmachines/enforce"] for policy in ("naming", "sizes"))
SCHEDULING = names.policy_label(names.SCHEDULING)


def whole(obj: Any) -> Unstructured:
    return msgspec.convert(obj, Unstructured)


def test_every_policy_of_pods_and_vms_at_create_is_asked_but_those_of_migrations_themselves() -> None:
    asked = {endpoint.path for kind in scanned_objects.SCANNED_KINDS for endpoint in kind.endpoints}
    others = {e.path for e in ENDPOINTS if e.stage == "enforce" and e.path not in asked}
    assert all("/pods/" in path or "/virtualmachine" in path for path in asked)
    elsewhere = {"virtualmachineinstancemigrations", "pods", "evictions", "namespaces"}
    assert {path.split("/")[3] for path in others} <= elsewhere
    assert "/mutate/migration/pods/enforce" in asked
    # A pod that runs holds the room that it would need.
    assert {path for path in others if path.startswith("/validate") and path.endswith("/pods/enforce")} == {
        "/validate/headroom/pods/enforce",
        "/validate/preemption/pods/enforce",
    }


def enforces(labels: dict[str, str] | None, made: Settings, **meta: Any) -> bool:
    namespace = Namespace(ObjectMeta(labels=labels, **{"name": "demo"} | meta))
    return names.SCHEDULING in scanned_objects.enforced_policies(namespace, made)


@pytest.mark.parametrize(
    ("label", "wide", "enforced"),
    [("enforce", False, True), ("warn", True, False), ("off", True, False), (None, True, True), (None, False, False)],
)
def test_only_what_enforces_counts(label: str | None, wide: bool, enforced: bool) -> None:
    made = settings(scheduling=builders.scheduling(cluster_wide=wide))
    assert enforces({SCHEDULING: label} if label else None, made) == enforced


@pytest.mark.parametrize("meta", [{"name": "kube-system"}, {"deletion_timestamp": "2026-11-21T15:00:00Z"}])
def test_excluded_and_dying_namespaces_don_t(meta: dict[str, str]) -> None:
    assert not enforces({SCHEDULING: "enforce"}, settings(), **meta)


@pytest.mark.parametrize(("labels", "counts"), [({"t": "a"}, True), ({"t": "b"}, False), ({"t": "a", "x": ""}, False)])
def test_nor_do_those_that_the_api_server_never_asks_about(labels: dict[str, str], counts: bool) -> None:
    expressions = (
        MatchExpression(key="t", operator="In", values=("a",)),
        MatchExpression(key="x", operator="DoesNotExist"),
    )
    made = settings(webhooks=WebhookSettings(namespace_selector=NamespaceSelector(match_expressions=expressions)))
    assert enforces({SCHEDULING: "enforce", **labels}, made) == counts


def test_nothing_is_listed_for_what_is_switched_off() -> None:
    off = settings(
        scheduling=builders.scheduling(virtual_machines=False),
        instancetypes=InstancetypeSettings(virtual_machines=False, virtual_machine_instances=False),
    )
    policies: Any = [names.SCHEDULING, names.INSTANCETYPES]
    assert [kind.resource.plural for kind in scanned_objects.scanned_kinds(policies, off)] == ["pods"]
    everything = ["pods", "virtualmachines", "virtualmachineinstances"]
    assert [kind.resource.plural for kind in scanned_objects.scanned_kinds(policies, settings())] == everything
    (pods,) = scanned_objects.scanned_kinds(["migration"], settings(migration=MigrationSettings()))
    assert [endpoint.policy for endpoint in pods.endpoints] == ["migration"]


@pytest.mark.parametrize(
    ("obj", "endpoint", "evaluated"),
    [
        (stored(launcher_pod()), PODS, True),
        (stored(launcher_pod()) | {"status": {"phase": "Running"}}, PODS, True),
        (stored(launcher_pod()) | {"status": {"phase": "Succeeded"}}, PODS, False),
        (stored(launcher_pod()) | {"status": {"phase": "Failed"}}, PODS, False),
        (stored(launcher_pod(), deletionTimestamp="2026-11-21T15:00:00Z"), PODS, False),
        (stored(launcher_pod(), annotations={names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt"}), PODS, False),
        (stored(vm(), annotations={names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt"}), VMS, True),
        (stored(vm(), annotations={names.INJECTED_PREFERENCE_ANNOTATION: "x"}), VMS, False),
        (stored(vm(instancetype={"name": "u1"})), VALIDATED, True),
        (stored(vm(instancetype={"name": "u1", "revisionName": "r"})), VALIDATED, False),
        (stored(vm()) | {"status": {"preferenceRef": {"name": "p"}}}, VALIDATED, False),
        (stored(vm()) | {"status": {"preferenceRef": {"name": "p"}}}, VMS, True),
        # A name is what it was, whatever KubeVirt has captured.
        (stored(vm()) | {"status": {"preferenceRef": {"name": "p"}}}, NAMED, True),
        (stored(vm()) | {"status": {"instancetypeRef": {"name": "u1"}}}, SIZED, False),
    ],
)
def test_what_can_be_evaluated(obj: Any, endpoint: Any, evaluated: bool) -> None:
    assert scanned_objects.is_evaluated(endpoint, whole(obj)) == evaluated


def test_the_review_is_that_of_a_creation() -> None:
    obj = stored(launcher_pod(nodeName="node-a")) | {"status": {"phase": "Running"}}
    body = scanned_objects.review(PODS, whole(obj), "controller")
    request = json.loads(body)["request"]
    assert (request["operation"], request["userInfo"]["username"]) == ("CREATE", "controller")
    assert request["object"]["status"] == {}
    assert "nodeName" not in request["object"]["spec"]
    assert request["object"]["spec"]["schedulerName"] == "default-scheduler"
    assert PODS.codec.decode(body).malformed is None
