"""The migration policy on target pods: where the real scheduler puts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .conftest import NewTenant
from .support.foreign_webhook import Labeller
from .support.kube import Json, KubeObject, eventually
from .support.migrations import EAST, HOSTNAME, OBSOLETE, REQUIRED, WEST, MigrationMover, guest, target_of, terms_of
from .support.objects import ZONE
from .support.tenant import Tenant
from .support.webhook_server import MIGRATION
from .support.workloads import PODS, VMIS

NO_OBSOLETE = {"key": OBSOLETE, "operator": "DoesNotExist"}
MISMATCH = "didn't match Pod's node affinity/selector"


def equals(key: str, value: str) -> Json:
    return {"key": key, "operator": "In", "values": [value]}


def to_west(pod: KubeObject) -> bool:
    """Whether every way that a pod leaves open leads to the zone west."""
    return all(equals(ZONE, "west") in term["matchExpressions"] for term in terms_of(pod))


def affinity(*terms: Mapping[str, Any]) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def test_the_target_goes_where_it_is_told(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest())

    asked = vm.ask(WEST)
    target = vm.target(asked)

    assert terms_of(target) == [{"matchExpressions": [NO_OBSOLETE, equals(ZONE, "west")]}]
    assert vm.node_of(target) in {"node-c", "node-d"}
    (_, line) = moving.audit()
    (reason,) = line["reasons"]
    assert reason["code"] == "target-constrained"
    assert f"{ZONE}=west" in reason["text"]
    assert asked["metadata"]["name"] in reason["text"]
    assert ["/".join(change["path"]) for change in line["changes"]] == [
        f"spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
    ]


def test_all_ways_of_a_vms_affinity_are_narrowed(moving: Tenant) -> None:
    ways = affinity(
        {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-b"]}]},
    )
    vm = MigrationMover(moving, guest(affinity=ways))

    target = vm.target(vm.ask({HOSTNAME: "node-c"}))

    assert [term["matchExpressions"][-1] for term in terms_of(target)] == [equals(HOSTNAME, "node-c")] * 2
    assert vm.node_of(target) == "node-c"


def test_a_wish_from_before_our_time_holds(new_tenant: NewTenant) -> None:
    tenant = new_tenant("off", policies=[MIGRATION])
    vm = MigrationMover(tenant, guest(nodeSelector=EAST))
    asked = vm.ask(WEST)
    dropped = vm.target(asked)
    assert vm.node_of(dropped) == "node-b"  # as KubeVirt has it
    tenant.owner.delete(PODS, dropped["metadata"]["name"], tenant.namespace, gracePeriodSeconds="0")

    tenant.label("enforce", MIGRATION)
    eventually(lambda: to_west(vm.target(asked, dryRun="All")), what="the namespace to be judged")
    target = vm.target(asked)

    assert target["spec"]["nodeSelector"][ZONE] == "east"
    assert to_west(target)
    assert MISMATCH in vm.why_pending(target)
    # Nor does a VM go elsewhere that changed meanwhile.
    other = MigrationMover(tenant, guest("other"))
    asked = other.ask(WEST)
    tenant.controller.patch(VMIS, "other", {"spec": {"nodeSelector": EAST}}, tenant.namespace)
    target = other.target(asked)
    assert to_west(target)
    assert MISMATCH in other.why_pending(target)


def test_a_wish_is_for_one_migration_only(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest())
    first = vm.ask(WEST)
    vm.finish(first, vm.target(first))

    evacuating = vm.evacuate()
    target = vm.target(evacuating)
    assert terms_of(target) == [{"matchExpressions": [NO_OBSOLETE]}]
    assert ZONE not in target["spec"]["nodeSelector"]
    vm.finish(evacuating, target)

    back = vm.target(vm.ask({HOSTNAME: "node-a"} if vm.node_of(target) != "node-a" else {HOSTNAME: "node-b"}))
    (term,) = terms_of(back)
    assert [expression["key"] for expression in term["matchExpressions"]] == [OBSOLETE, HOSTNAME]
    assert vm.node_of(back) in {"node-a", "node-b"}
    # The API server does not even call the webhook for the drain's target.
    assert moving.verdicts("Pod") == ["patched target-constrained"] * 2


def test_a_later_webhook_makes_us_look_again(moving: Tenant) -> None:
    """Nothing is added then, but for a way that the other webhook opened, which is narrowed too."""
    west, east = equals(ZONE, "west"), equals(ZONE, "east")
    vm, other = MigrationMover(moving, guest()), MigrationMover(moving, guest("other"))
    asked = vm.ask(WEST), other.ask(WEST)
    with Labeller(moving.server.access, moving.namespace):
        target = vm.target(asked[0])
    with Labeller(moving.server.access, moving.namespace, {"matchExpressions": [east]}):
        widened = other.target(asked[1])

    assert target["metadata"]["labels"]["example.com/seen"] == "yes"
    assert [term["matchExpressions"] for term in terms_of(target)] == [[NO_OBSOLETE, west]]
    assert [term["matchExpressions"] for term in terms_of(widened)] == [[NO_OBSOLETE, west], [east, west]]
    assert other.node_of(widened) in {"node-c", "node-d"}
    first, again, *others = moving.verdicts("Pod")
    assert (first, again) == ("patched target-constrained", "allowed target-already-constrained")
    assert others == ["patched target-constrained"] * 2


def test_a_user_who_copies_a_target_pod_is_left_alone(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest())
    host = moving.owner.get("v1/nodes", "node-a")

    copied = moving.owner.create(PODS, target_of(vm.vmi, vm.ask(WEST), vm.source, host), moving.namespace)

    assert not to_west(copied)
    assert moving.verdicts("Pod") == []
