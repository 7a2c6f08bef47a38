from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import launcher_pod, vm
from tests.server.background.drift.world import settings, stored
from webhook import names
from webhook.k8s.views import Namespace, ObjectMeta, Unstructured
from webhook.review.endpoints import BY_PATH, ENDPOINTS
from webhook.server.background.drift import candidates
from webhook.settings.snapshot import InstancetypeSettings, MigrationSettings

PODS = BY_PATH["/mutate/scheduling/pods/enforce"]
VMS = BY_PATH["/mutate/instancetypes/virtualmachines/enforce"]
VALIDATED = BY_PATH["/validate/instancetypes/virtualmachines/enforce"]
SCHEDULING = names.policy_label(names.SCHEDULING)


def whole(obj: Any) -> Unstructured:
    return msgspec.convert(obj, Unstructured)


def namespace(**labels: str) -> Namespace:
    return Namespace(ObjectMeta(name="demo", labels={key.replace("__", "/"): value for key, value in labels.items()}))


def test_every_policy_of_pods_and_vms_at_create_is_asked_but_those_of_migrations_themselves() -> None:
    asked = {endpoint.path for look in candidates.LOOKS for endpoint in look.endpoints}
    others = {e.path for e in ENDPOINTS if e.stage == "enforce" and e.path not in asked}

    assert all("/pods/" in path or "/virtualmachine" in path for path in asked)
    assert {path.split("/")[3] for path in others} <= {"virtualmachineinstancemigrations", "pods"}
    assert "/mutate/migration/pods/enforce" in asked


@pytest.mark.parametrize(
    ("label", "wide", "enforced"),
    [("enforce", False, True), ("warn", True, False), ("off", True, False), (None, True, True), (None, False, False)],
)
def test_only_what_enforces_counts(label: str | None, wide: bool, enforced: bool) -> None:
    found = Namespace(ObjectMeta(name="demo", labels={SCHEDULING: label} if label else None))
    made = settings(scheduling=builders.scheduling(cluster_wide=wide))

    assert (names.SCHEDULING in candidates.enforced_policies(found, made)) == enforced


@pytest.mark.parametrize(
    "meta", [{"name": "kube-system"}, {"name": "demo", "deletion_timestamp": "2026-11-21T15:00:00Z"}]
)
def test_excluded_and_dying_namespaces_don_t(meta: dict[str, str]) -> None:
    assert not candidates.enforced_policies(Namespace(ObjectMeta(labels={SCHEDULING: "enforce"}, **meta)), settings())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operator", "values", "labels", "selected"),
    [
        ("In", ["a"], {"t": "a"}, True),
        ("In", ["a"], {"t": "b"}, False),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {"t": "a"}, False),
        ("NotIn", ["a"], {}, True),
        ("Exists", None, {"t": ""}, True),
        ("Exists", None, {}, False),
        ("DoesNotExist", None, {"t": ""}, False),
        ("DoesNotExist", None, {}, True),
    ],
)
def test_nor_do_those_that_the_api_server_never_asks_about(
    operator: str, values: list[str] | None, labels: dict[str, str], selected: bool
) -> None:
    expression = {"key": "t", "operator": operator} | ({"values": values} if values else {})
    made = settings()
    made = msgspec.structs.replace(
        made, webhooks=msgspec.structs.replace(made.webhooks, namespace_selector=(expression,))
    )
    found = Namespace(ObjectMeta(name="demo", labels={SCHEDULING: "enforce", **labels}))

    assert bool(candidates.enforced_policies(found, made)) == selected


def test_nothing_is_listed_for_what_is_switched_off() -> None:
    off = settings(
        scheduling=builders.scheduling(virtual_machines=False),
        instancetypes=InstancetypeSettings(virtual_machines=False, virtual_machine_instances=False),
    )
    policies: Any = [names.SCHEDULING, names.INSTANCETYPES]

    assert [look.resource.plural for look in candidates.looks(policies, off)] == ["pods"]
    assert [look.resource.plural for look in candidates.looks(policies, settings())] == [
        "pods",
        "virtualmachines",
        "virtualmachineinstances",
    ]
    (pods,) = candidates.looks(["migration"], settings(migration=MigrationSettings()))
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
    ],
)
def test_what_can_be_judged(obj: Any, endpoint: Any, evaluated: bool) -> None:
    assert candidates.is_evaluated(endpoint, whole(obj)) == evaluated


def test_a_candidate_is_judged_by_those_who_can() -> None:
    look = next(look for look in candidates.LOOKS if look.resource.plural == "virtualmachines")
    marked = stored(
        vm(instancetype={"name": "u1", "revisionName": "r"}), annotations={names.INJECTED_SCHEDULER_ANNOTATION: "x"}
    )
    found = candidates.candidate(look, whole(marked), "")

    assert found
    assert found.endpoints == (VMS,)
    assert (found.namespace, found.name, found.uid) == ("demo", "web01", "uid-web01")
    assert candidates.candidate(look, whole(stored(vm(), deletionTimestamp="2026-11-21T15:00:00Z")), "") is None


def test_the_review_is_that_of_a_creation() -> None:
    obj = stored(launcher_pod(nodeName="node-a")) | {"status": {"phase": "Running"}}
    body = candidates.review(PODS, whole(obj), "controller")
    request = json.loads(body)["request"]

    assert (request["operation"], request["userInfo"]["username"]) == ("CREATE", "controller")
    assert request["object"]["status"] == {}
    assert "nodeName" not in request["object"]["spec"]
    assert request["object"]["spec"]["schedulerName"] == "default-scheduler"
    assert PODS.codec.decode(body).malformed is None
