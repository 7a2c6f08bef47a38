"""The migration policy: denials, where the real scheduler puts target pods, an admin's settings, and no replica."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from .conftest import ModuleWebhook, NewTenant, NewWebhook
from .support.foreign_webhook import Labeller
from .support.kube import Json, KubeObject, eventually
from .support.messages import Said, codes, parse
from .support.migrations import (
    AMD,
    EAST,
    HOSTNAME,
    INTEL,
    OBSOLETE,
    REQUIRED,
    WEST,
    MigrationMover,
    guest,
    member,
    migration,
    refused,
    rejection,
    target_of,
    terms_of,
)
from .support.objects import ZONE
from .support.pki import KUBEVIRT_APISERVER
from .support.tenant import Tenant
from .support.webhook_server import MIGRATION
from .support.workloads import MIGRATIONS, PODS, VMIS

ENTRY = "virtualmachineinstancemigrations.migration.enforce.kubevirt-webhook.github.io"
# What the denial names: the sum, and both sides.
CONTRADICTION = ("0/4 nodes", f"{ZONE}=west", f"{ZONE}=east")


def test_a_contradiction_is_refused_and_explained(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest(nodeSelector=EAST))

    status = refused(lambda: vm.ask(WEST))
    shown = moving.kubectl(migration("web", WEST))

    message, said = status["message"], parse(status["message"])
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert (said.webhook, said.policy, said.code) == (ENTRY, "migration", "selector-conflict")
    assert all(part in said.text for part in CONTRADICTION)
    (cause,) = status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "spec.addedNodeSelector")
    assert parse(cause["message"]) == Said("", said.policy, "", said.text, said.code)
    assert f'Error from server (Forbidden): error when creating "STDIN": {message}\n' == shown.stderr
    assert moving.owner.list(MIGRATIONS, moving.namespace) == []
    # An older version is no way around.
    older = {**migration("web", WEST), "apiVersion": "kubevirt.io/v1alpha3"}
    assert parse(refused(lambda: moving.owner.make(older, moving.namespace))["message"]).code == "selector-conflict"
    # What can work is admitted, and an evacuation does not reach the webhook.
    assert vm.ask(EAST).warnings == vm.evacuate().warnings == ()
    assert moving.verdicts() == [*["denied selector-conflict"] * 3, "allowed nodes-eligible"]


def test_nodes_are_named_to_the_audit_alone(moving: Tenant) -> None:
    """The API server here has no client certificate: any caller could claim to be a user who may list nodes."""
    vm = MigrationMover(moving, guest(nodeSelector=EAST))
    alice = member(moving)

    told = [refused(lambda by=by: vm.ask(WEST, by=by))["message"] for by in (alice, moving.owner)]  # type: ignore[misc]

    assert codes(told) == ["selector-conflict"] * 2
    assert told[0] == told[1]
    assert not re.search(r"\bnode-[a-d]\b", told[0])
    for line in moving.audit():
        listed = [name for group in line["details"]["nodes"] for name in group["nodes"]]
        assert sorted(listed) == ["node-a", "node-b", "node-c", "node-d"]
        assert sum(group["count"] for group in line["details"]["nodes"]) == 4
    assert [line["user"] for line in moving.audit()] == ["alice", "admin"]


NO_OBSOLETE = {"key": OBSOLETE, "operator": "DoesNotExist"}


def equals(key: str, value: str) -> Json:
    return {"key": key, "operator": "In", "values": [value]}


def to_west(pod: KubeObject) -> bool:
    """Whether every way that a pod leaves open leads to the zone west."""
    return all(equals(ZONE, "west") in term["matchExpressions"] for term in terms_of(pod))


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


LENIENT = {"collision": "warn", "noEligibleNode": "warn", "reservedKeys": "allow", "requireRight": True}
STRICT = {"requireRight": True, "viaVirtctl": "deny", "maxUnfinished": 2}
MAY_PIN = {"apiGroups": ["kubevirt-webhook.github.io"], "resources": ["migrationtargets"], "verbs": ["use"]}
MISMATCH = "didn't match Pod's node affinity/selector"


@pytest.fixture
def lenient(module_webhook: ModuleWebhook, new_tenant: NewTenant) -> Tenant:
    return new_tenant(server=module_webhook({"migration": LENIENT}), policies=[MIGRATION])


@pytest.fixture
def strict(module_webhook: ModuleWebhook, new_tenant: NewTenant) -> Tenant:
    return new_tenant(server=module_webhook({"migration": STRICT}), policies=[MIGRATION])


def keys_of(pod: Json) -> list[str]:
    """What the only term of a pod's required node affinity is about."""
    (term,) = terms_of(pod)
    return [expression["key"] for expression in term["matchExpressions"]]


# -- lenient -----------------------------------------------------------------------------------------------------------


def test_what_is_only_warned_of_waits_and_goes_nowhere_else(lenient: Tenant) -> None:
    vm, other = MigrationMover(lenient, guest(nodeSelector=EAST)), MigrationMover(lenient, guest("other"))

    asked, missing = vm.ask(WEST), other.ask({"disk": "floppy"})
    target = vm.target(asked)

    assert codes([*asked.warnings, *missing.warnings]) == ["selector-conflict", "no-eligible-node"]
    assert target["spec"]["nodeSelector"][ZONE] == "east"
    assert keys_of(target) == [OBSOLETE, ZONE]
    assert MISMATCH in vm.why_pending(target)
    assert MISMATCH in other.why_pending(other.target(missing))
    assert lenient.verdicts("Pod") == ["patched target-constrained"] * 2


def test_another_vendors_key_does_not_lift_the_guard(lenient: Tenant) -> None:
    vm = MigrationMover(lenient, guest(model="host-passthrough"))

    target = vm.target(vm.ask({AMD: "true"}))

    assert (AMD in target["spec"]["nodeSelector"], INTEL in target["spec"]["nodeSelector"]) == (True, False)
    assert keys_of(target) == [AMD, INTEL]
    assert MISMATCH in vm.why_pending(target)


# -- strict ------------------------------------------------------------------------------------------------------------


def test_choosing_nodes_takes_a_right(strict: Tenant) -> None:
    vm = MigrationMover(strict, guest())

    status = refused(lambda: vm.ask(WEST, by=member(strict)))
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert parse(status["message"]).code == "node-choice-forbidden"
    for named in ('"alice"', strict.namespace, "verb use", "migrationtargets.kubevirt-webhook.github.io"):
        assert named in status["message"]

    assert vm.ask(by=member(strict)).warnings == ()
    vm.ask(WEST, by=member(strict, MAY_PIN))
    assert strict.verdicts()[0] == "denied node-choice-forbidden"
    assert strict.verdicts()[-1] == "allowed nodes-eligible"


def test_virtctl_hides_who_asks(strict: Tenant, lenient: Tenant) -> None:
    virtctl = strict.server.access.kube(*KUBEVIRT_APISERVER)
    vm = MigrationMover(strict, guest())

    status = refused(lambda: vm.ask(WEST, by=virtctl))

    assert status["code"] == 403
    assert parse(status["message"]).code == "node-choice-forbidden"
    assert "virtctl" in status["message"]
    assert vm.ask(by=virtctl).warnings == ()
    assert MigrationMover(lenient, guest()).ask(WEST, by=virtctl).warnings == ()
    assert lenient.verdicts() == ["allowed nodes-eligible"]


def test_unfinished_migrations_are_counted_and_kubevirts_own_are_not(strict: Tenant) -> None:
    vms = [MigrationMover(strict, guest(name)) for name in ("one", "two", "three")]
    evacuating = vms[2].evacuate()
    running = [vm.ask(WEST) for vm in vms[:2]]

    status = refused(lambda: vms[2].ask(WEST))
    assert (status["code"], status["reason"]) == (429, "TooManyRequests")
    assert parse(status["message"]).code == "too-many-migrations"
    assert strict.namespace in status["message"]
    assert "(limit 2)" in status["message"]
    assert vms[2].evacuate()["metadata"]["name"] != evacuating["metadata"]["name"]

    failed = {"status": {"phase": "Failed"}}
    name = running[0]["metadata"]["name"]
    strict.controller.patch(MIGRATIONS, name, failed, strict.namespace, subresource="status")
    vms[2].ask(WEST)


T = TypeVar("T")

# The API server waits this long for one answer, in seconds; a request that does not wait for it is far faster.
TIMEOUT = 3


def seconds(act: Callable[[], object]) -> float:
    """How long something takes at best: other work on the machine may delay a single attempt."""

    def once() -> float:
        started = time.monotonic()
        act()
        return time.monotonic() - started

    return min(once() for _ in range(3))


def test_while_nobody_answers_choices_are_refused_and_a_drain_goes_on(
    new_webhook: NewWebhook, new_tenant: NewTenant
) -> None:
    server = new_webhook({"webhooks": {"timeoutSeconds": TIMEOUT}})
    server.insist()
    tenant = new_tenant(server=server, policies=[MIGRATION])
    vm = MigrationMover(tenant, guest())

    for silence, why in ((server.freeze, "deadline exceeded"), (server.kill, "connection refused")):
        silence()

        assert seconds(vm.evacuate) < TIMEOUT
        status = eventually(lambda: rejection(lambda: vm.ask(WEST)), what="the failure policy to be known")
        assert (status["code"], status["reason"]) == (500, "InternalError")
        assert f'failed calling webhook "{ENTRY}"' in status["message"]
        assert why in status["message"]
        assert vm.ask().warnings == ()
        target = vm.target(vm.evacuate())
        assert vm.node_of(target) != "node-a"
        tenant.controller.delete("v1/pods", target["metadata"]["name"], tenant.namespace, gracePeriodSeconds="0")
