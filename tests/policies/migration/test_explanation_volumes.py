"""Volumes that only some nodes reach."""

from __future__ import annotations

from typing import Any

from tests.policies.migration.explaining import CLAIMED, explained, stored
from tests.policies.migration.world import (
    vmi,
)
from webhook.errors import Unavailable
from webhook.facts import Key, ObjectKey
from webhook.placement.machines import CLAIMS, VOLUMES, Claim
from webhook.policies.migration.explanation import MAX_CLAIMS, FactPermissions


def test_volumes_that_only_some_nodes_reach() -> None:
    found = vmi(volumes=CLAIMED)

    answer = explained(found=found, more=stored("a"))
    assert (answer.eligible.names, answer.notes) == (["node-a2"], ())
    (reason,) = (reason for reason in answer.reasons if reason.origin == "volumes")
    assert (reason.nodes.names, reason.alone) == (["node-b1", "node-b2"], 1)
    assert explained(found=found, more=stored("a") | {ObjectKey(VOLUMES, "", "pv-1"): None}).notes == ()
    unread = explained(found=found, more=stored("a") | {ObjectKey(VOLUMES, "", "pv-1"): Unavailable("403")})
    (gap,) = unread.gaps
    assert "PersistentVolume pv-1" in gap
    assert gap.endswith("403")


def test_volumes_beside_the_launcher_pod_do_not_bind_it() -> None:
    hotplugged = {"name": "data", "persistentVolumeClaim": {"claimName": "web01-data", "hotpluggable": True}}
    answer = explained(found=vmi(volumes=[hotplugged]), more=stored("a"))

    assert answer.eligible.count == 2
    (note,) = answer.notes
    assert '"data"' in note
    assert "1/2" in note


def test_volumes_are_left_alone_where_the_reader_may_not_see_them() -> None:
    answer = explained(found=vmi(volumes=CLAIMED), reader=FactPermissions(without_volumes="alice may not"))

    (gap,) = answer.gaps
    assert gap.endswith("alice may not")


def test_volumes_count_where_no_node_is_eligible_too() -> None:
    answer = explained({"zone": "c"}, vmi(volumes=CLAIMED), more=stored("a"))

    (reason,) = (reason for reason in answer.reasons if reason.origin == "volumes")
    assert reason.nodes.names == ["node-b1", "node-b2"]
    # Without the selector, the volumes still keep the VM in its zone.
    assert [opening.nodes.names for opening in answer.openings] == [["node-a2"]]
    assert answer.notes == ()


def test_a_vm_with_thousands_of_volumes_has_some_read_and_the_rest_reported() -> None:
    claims = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(3000)]
    given: dict[Key[Any], object] = {ObjectKey(CLAIMS, "demo", f"c{n}"): Claim() for n in range(MAX_CLAIMS)}
    answer = explained(found=vmi(volumes=claims), more=given)

    (gap,) = answer.gaps
    assert f"{3000 - MAX_CLAIMS} more volumes" in gap
