"""VMs with the same persistent reservation, which KubeVirt keeps on different nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import Json, config_of, installed
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NodesKey
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LAUNCHER_PODS, MOST_RESERVATIONS, LauncherPod, Vmi
from webhook.placement.nodes import HOSTNAME, Node
from webhook.placement.requirements import Origin
from webhook.policies.common import migration_targets
from webhook.policies.common.migration_targets import Target

CLAIM = "pr.kubevirt.io/claim-uid"
OWN = ListKey(LAUNCHER_PODS, "demo", "kubevirt.io/created-by=web")
SHARED = ListKey(LAUNCHER_PODS, "demo", f"{CLAIM}=")


NODES = [Node.read({"metadata": {"name": name, "labels": {HOSTNAME: f"host-{name}"}}}) for name in "abc"]


def pod(on: str, uid: str = "web", phase: str = "Running", labels: Json | None = None) -> LauncherPod:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": uid, "uid": uid}
    meta = {"name": f"p-{uid}", "labels": labels or {CLAIM: ""}, "ownerReferences": [owner | {"controller": True}]}
    whole = {"metadata": meta, "spec": {"nodeName": on}, "status": {"phase": phase}}
    found = msgspec.convert(whole, LauncherPod)
    # As lists have it.
    assert LAUNCHER_PODS.keep
    return LAUNCHER_PODS.keep(found) or found


def target(others: object, own: LauncherPod | None = None, version: str = "1.9", *, reserves: bool = True) -> Target:
    """The target of a VM on node a, with pods that have the label of its claim."""
    vmi = {
        "metadata": {"name": "web", "namespace": "demo", "uid": "web"},
        "spec": {"domain": {"devices": {"disks": [{"lun": {"reservation": reserves}}]}}},
        "status": {"nodeName": "a"},
    }
    known: dict[Key[Any], object] = {
        NodesKey(): NodeIndex(NODES),
        KubeVirtKey(): installed(config_of(version)),
        OWN: (own or pod("a"),),
        SHARED: others,
    }
    return migration_targets.of(msgspec.convert(vmi, Vmi), "demo", Facts.of(known))


def excluded(found: Target) -> list[str]:
    """The nodes that are ruled out by a reservation."""
    mine = [each for each in found.requirements if each.origin == Origin.RESERVATION]
    return [each.name for each in NODES if any(asked.reasons(each) for asked in mine)]


@pytest.mark.parametrize(
    ("others", "options", "nodes", "gap_count"),
    [
        ((pod("a"), pod("b", "other")), {"version": "1.8"}, [], 0),
        ((pod("a"), pod("b", "other")), {}, ["b"], 0),
        ((pod("b", "other"),), {"reserves": False}, [], 0),
        # Neither pods without a node nor those that have ended count.
        ((pod("", "waiting"), pod("b", "ended", "Succeeded"), pod("gone", "lost")), {}, [], 0),
        # A pod of an older release shows no reservation.
        ((pod("b", "other"),), {"own": pod("a", labels={"app": "x"})}, [], 1),
        (Unavailable("too many"), {}, [], 1),
    ],
    ids=["1.8", "1.9", "nothing reserved", "no nodes", "older pod", "unreadable"],
)
def test_the_nodes_of_other_vms_with_the_claim(others: object, options: Json, nodes: list[str], gap_count: int) -> None:
    found = target(others, **options)
    gaps = [each for each in found.gaps if "persistent reservation" in each]
    assert (excluded(found), len(gaps)) == (nodes, gap_count)


def test_many_labels_are_not_all_looked_up() -> None:
    """Any user who may create pods in the namespace can write them, and each is a request to the API server."""
    found = pod("a", labels={f"pr.kubevirt.io/{number:03}": "" for number in range(500)})
    assert len(found.reservations) == len(found.meta.labels or {}) == MOST_RESERVATIONS
