"""What a migration asks for, put together from the cluster's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.builders import Json
from tests.policies.migration.world import JOB, OWNED, OWNER, UID, facts, migration, vmi
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, ListKey, NodesKey, ObjectKey
from webhook.placement.requirement import KUBEVIRT, Label
from webhook.placement.workload import LAUNCHER_PODS, MIGRATIONS, VMIS, LauncherPod, Migration
from webhook.policies import targets
from webhook.policies.unreadable import Unreadable

WISH, RULE = "kubevirt.io/pool", "kubevirt.io/rule"
PODS = ListKey(LAUNCHER_PODS, "demo", f"kubevirt.io/created-by={UID}")
LAST = ObjectKey(MIGRATIONS, "demo", "m1")


def pod(node: str = "node-a1", phase: str = "Running", **selector: str) -> Json:
    return {
        "metadata": {
            "name": "p",
            "labels": {"kubevirt.io/migrationJobUID": JOB},
            "annotations": {"kubevirt.io/migrationJobName": "m1"},
            "ownerReferences": OWNED,
        },
        "spec": {"nodeName": node, "nodeSelector": {WISH: "true", RULE: "true"} | selector},
        "status": {"phase": phase},
    }


def world(*pods: Json, last: object = None) -> dict[Key[Any], object]:
    """The VM, and the migration that brought it where it is."""
    return facts() | {PODS: tuple(msgspec.convert(one, LauncherPod) for one in pods), LAST: last}


def required(known: Mapping[Key[Any], object]) -> list[str]:
    """What KubeVirt requires of the next target by rules that only the present pod shows."""
    target = targets.find("demo", "web01", Facts.of(known))
    assert target
    asked = [item.expression.key for item in target.requirements if isinstance(item, Label) and item.origin == KUBEVIRT]
    return [key for key in asked if key in {WISH, RULE}]


def a_migration(uid: str = JOB) -> Migration:
    made = migration({WISH: "true"})
    made["metadata"]["uid"] = uid
    return msgspec.convert(made, Migration)


def test_what_the_last_migration_added_was_for_once() -> None:
    assert required(world(pod(), last=a_migration())) == [RULE]


@pytest.mark.parametrize("last", [None, a_migration("another")], ids=["gone", "another of its name"])
def test_what_a_migration_had_added_that_is_gone_is_not_taken_for_kubevirts(last: object) -> None:
    assert required(world(pod(), last=last)) == []


def test_a_pod_that_no_migration_made_shows_kubevirts_own() -> None:
    first = pod()
    del first["metadata"]["annotations"]

    assert required(world(first)) == [WISH, RULE]


@pytest.mark.parametrize("other", [pod("node-b1"), pod(phase="Succeeded"), pod(phase="Failed")])
def test_only_the_pod_that_the_vm_runs_in_counts(other: Json) -> None:
    found = targets.find("demo", "web01", Facts.of(world(other)))

    assert found
    assert "the VM's present pod isn't known" in found.gaps[0]


@pytest.mark.parametrize("owners", [None, [], [OWNER], [OWNER | {"uid": "another", "controller": True}]])
def test_a_pod_that_only_has_the_label_does_not_count(owners: Any) -> None:
    labelled, real = pod(), pod()
    labelled["metadata"] |= {"ownerReferences": owners, "creationTimestamp": "2026-08-22T10:00:00Z"}
    del real["spec"]["nodeSelector"]

    assert required(world(labelled, real, last=a_migration())) == []
    assert required(world(labelled, last=a_migration())) == []


def test_of_several_pods_the_last_one_counts() -> None:
    pods = [pod() for _ in range(3)]
    for one, time in zip(pods, ("08:00:00", "10:00:00", "09:00:00"), strict=True):
        one["metadata"]["creationTimestamp"] = f"2026-08-22T{time}Z"
        one["spec"]["nodeSelector"] = {f"kubevirt.io/made-at-{time[:2]}": "true"}

    target = targets.find("demo", "web01", Facts.of(world(*pods, last=a_migration())))

    assert target
    asked = [each.expression.key for each in target.requirements if isinstance(each, Label)]
    assert [key for key in asked if "made-at" in key] == ["kubevirt.io/made-at-10"]


def test_a_vm_that_runs_nowhere_yet_has_no_pod() -> None:
    starting = vmi()
    del starting["status"]

    found = targets.find("demo", "web01", Facts.of(facts(starting)))

    assert found
    assert len(found.gaps) == 2


def test_no_vm_has_no_target() -> None:
    assert targets.find("demo", "web01", Facts.of({ObjectKey(VMIS, "demo", "web01"): None})) is None


@pytest.mark.parametrize("key", [PODS, LAST, NodesKey(), ObjectKey(VMIS, "demo", "web01")])
def test_what_can_not_be_read_is_said(key: Key[Any]) -> None:
    known = world(pod(), last=a_migration()) | {key: Unavailable("no answer")}

    with pytest.raises(Unreadable, match="can't be read: no answer"):
        targets.find("demo", "web01", Facts.of(known))


def test_which_nodes_have_it() -> None:
    found = targets.find("demo", "web01", Facts.of(world(pod(), last=a_migration())))

    assert found
    assert found.review(Facts.of(facts())).count == 0  # no node has the rule's label


def test_kubevirt_labels_migrations_with_the_vms_name() -> None:
    assert targets.unnameable("v" * 63) is targets.unnameable("web.01") is None
    assert str(targets.unnameable("v" * 64)).endswith("which has 64 characters, of which 63 are allowed")
