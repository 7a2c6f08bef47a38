"""Volumes that only some nodes reach."""

from __future__ import annotations

from tests.policies.migration.explaining import CLAIMED, explained, stored
from tests.policies.migration.world import (
    vmi,
)
from webhook.errors import Unavailable
from webhook.facts import ObjectKey
from webhook.placement.volumes import VOLUMES


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


def test_volumes_are_left_alone_where_nobody_has_checked_the_right() -> None:
    answer = explained(found=vmi(volumes=CLAIMED), deputy=True)

    assert len(answer.gaps) == 1


def test_volumes_do_not_matter_where_no_node_is_eligible() -> None:
    assert explained({"zone": "c"}, vmi(volumes=CLAIMED)).notes == ()
