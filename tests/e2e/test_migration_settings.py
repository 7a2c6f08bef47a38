"""The migration policy as an admin may set it: lenient, or only for those who have a right to choose nodes."""

from __future__ import annotations

import pytest

from .conftest import ModuleWebhook, NewTenant
from .support.kube import Json
from .support.messages import parse
from .support.migrations import (
    AMD,
    CPU_FEATURE,
    EAST,
    INTEL,
    OBSOLETE,
    WEST,
    MigrationMover,
    evacuation,
    guest,
    member,
    refused,
    terms_of,
)
from .support.objects import ZONE
from .support.pki import KUBEVIRT_APISERVER
from .support.tenant import Tenant
from .support.webhook_server import MIGRATION
from .support.workloads import MIGRATIONS

LENIENT = {"collision": "warn", "noEligibleNode": "warn", "reservedKeys": "allow", "requireRight": True}
STRICT = {"requireRight": True, "viaVirtctl": "deny", "maxUnfinished": 2}
MAY_PIN = {"apiGroups": ["kubevirt-webhook.github.io"], "resources": ["migrationtargets"], "verbs": ["use"]}
AVX2 = f"{CPU_FEATURE}avx2"
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


def test_a_contradiction_that_is_only_warned_of_waits_and_goes_nowhere_else(lenient: Tenant) -> None:
    vm = MigrationMover(lenient, guest(nodeSelector=EAST))

    asked = vm.ask(WEST)
    target = vm.target(asked)

    (warning,) = asked.warnings
    assert parse(warning).code == "selector-conflict"
    assert f"{ZONE}=west" in warning
    assert f"{ZONE}=east" in warning
    assert target["spec"]["nodeSelector"][ZONE] == "east"
    assert keys_of(target) == [OBSOLETE, ZONE]
    assert MISMATCH in vm.why_pending(target)
    assert lenient.verdicts() == ["allowed selector-conflict", "patched target-constrained"]


def test_a_node_that_is_not_there_yet_is_waited_for(lenient: Tenant) -> None:
    vm = MigrationMover(lenient, guest())

    asked = vm.ask({"disk": "floppy"})

    (warning,) = asked.warnings
    assert parse(warning).code == "no-eligible-node"
    assert "4 node(s) without disk=floppy" in warning
    assert MISMATCH in vm.why_pending(vm.target(asked))


def test_another_vendors_key_does_not_lift_the_guard(lenient: Tenant) -> None:
    vm = MigrationMover(lenient, guest(model="host-passthrough"))

    target = vm.target(vm.ask({AMD: "true"}))

    assert (AMD in target["spec"]["nodeSelector"], INTEL in target["spec"]["nodeSelector"]) == (True, False)
    assert keys_of(target) == [AMD, INTEL]
    assert MISMATCH in vm.why_pending(target)


@pytest.mark.parametrize("mode", ["enforce", "off"])
def test_a_cpu_feature_is_asked_for_once(lenient: Tenant, new_tenant: NewTenant, mode: str) -> None:
    tenant = new_tenant(mode, server=lenient.server, policies=[MIGRATION])
    vm = MigrationMover(tenant, guest())
    first = vm.ask({AVX2: "true"})
    target = vm.target(first)
    if mode == "enforce":
        assert keys_of(target) == [OBSOLETE, AVX2]
        assert vm.node_of(target) == "node-d"  # the only one that has it
    vm.finish(first, target)

    again = vm.target(vm.evacuate())

    assert f"{CPU_FEATURE}vmx" in again["spec"]["nodeSelector"]
    if mode == "enforce":
        assert AVX2 not in again["spec"]["nodeSelector"]
        assert vm.node_of(again) != "node-d"
    else:  # as KubeVirt has it: the VM never leaves the only node with this feature
        assert AVX2 in again["spec"]["nodeSelector"]
        assert MISMATCH in vm.why_pending(again)


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


def test_a_mark_of_kubevirts_own_does_not_hide_a_users_migration(strict: Tenant) -> None:
    vm = MigrationMover(strict, guest())
    disguised = evacuation()
    disguised["spec"]["addedNodeSelector"] = dict(WEST)
    # A drain's name together with a selector would hide its target pod from the webhook.
    assert refused(lambda: strict.owner.create(MIGRATIONS, disguised, strict.namespace))["code"] == 422
    disguised["metadata"]["generateName"] = "mine-"
    for _ in range(2):
        strict.owner.create(MIGRATIONS, disguised, strict.namespace)

    assert refused(lambda: vm.ask(WEST))["code"] == 429
