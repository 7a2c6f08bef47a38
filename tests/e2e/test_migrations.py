"""The migration policy: denials, where the real scheduler puts target pods, an admin's settings, and no replica."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.monitoring.test_rules import RECORDS

from .conftest import NewTenant, NewWebhook
from .support.access import Access
from .support.kube import Json, KubeObject, denial, denied, eventually
from .support.messages import Said, parse
from .support.migrations import (
    EAST,
    HOSTNAME,
    OBSOLETE,
    REQUIRED,
    WEST,
    MigrationMover,
    guest,
    migration,
    target_of,
    terms_of,
)
from .support.objects import ZONE
from .support.tenant import Tenant
from .support.webhook_server import MIGRATION
from .support.workloads import MIGRATIONS, PODS

ENTRY = "virtualmachineinstancemigrations.migration.enforce.kubevirt-webhook.github.io"
# What the denial names: the sum, and both sides.
CONTRADICTION = ("0/4 nodes", f"{ZONE}=west", f"{ZONE}=east")


@pytest.mark.control("migrations-that-cannot-succeed")
def test_a_contradiction_is_refused_and_explained(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest(nodeSelector=EAST))

    refused = denied(lambda: vm.ask(WEST))
    shown = moving.kubectl(migration("web", WEST))

    said = parse(refused.message)
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert (said.webhook, said.policy, said.code) == (ENTRY, "migration", "selector-conflict")
    assert all(part in said.text for part in CONTRADICTION)
    (cause,) = refused.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "spec.addedNodeSelector")
    assert parse(cause["message"]) == Said("", said.policy, "", said.text, said.code)
    assert f'Error from server (Forbidden): error when creating "STDIN": {refused.message}\n' == shown.stderr
    assert moving.owner.list(MIGRATIONS, moving.namespace) == []
    # An older version is no way around.
    older = {**migration("web", WEST), "apiVersion": "kubevirt.io/v1alpha3"}
    assert parse(denied(lambda: moving.owner.make(older, moving.namespace)).message).code == "selector-conflict"
    # What can work is admitted, and an evacuation does not reach the webhook.
    assert vm.ask(EAST).warnings == vm.evacuate().warnings == ()
    assert moving.verdicts() == [*["denied selector-conflict"] * 3, "allowed nodes-eligible"]


def test_a_vm_with_many_reservations_that_has_migrated_before(moving: Tenant) -> None:
    """All that its target depends on is read, however much that is."""
    manifest, luns = guest(), [f"lun-{number}" for number in range(8)]
    manifest["spec"]["domain"]["devices"] = {"disks": [{"name": lun, "lun": {"reservation": True}} for lun in luns]}
    vm = MigrationMover(moving, manifest)
    shown = {f"pr.kubevirt.io/{lun}": "" for lun in luns}
    came = {"kubevirt.io/migrationJobName": "before"}
    metadata = {"metadata": {"labels": shown, "annotations": came}}
    moving.controller.patch(PODS, vm.source["metadata"]["name"], metadata, moving.namespace)

    assert vm.ask(EAST).warnings == ()
    assert moving.verdicts() == ["allowed nodes-eligible"]


NO_OBSOLETE = {"key": OBSOLETE, "operator": "DoesNotExist"}


def equals(key: str, value: str) -> Json:
    return {"key": key, "operator": "In", "values": [value]}


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

    # The choice is for one migration only.
    vm.finish(asked, target)
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

    # A copy of a target pod by a user stays as it is.
    host = moving.owner.get("v1/nodes", "node-a")
    copied = moving.owner.create(PODS, target_of(vm.vmi, asked, vm.source, host), moving.namespace)
    assert equals(ZONE, "west") not in terms_of(copied)[0]["matchExpressions"]
    assert moving.verdicts("Pod") == ["patched target-constrained"] * 2


def test_a_node_that_receives_enough_is_left_out_also_by_a_drain(
    new_webhook: NewWebhook, new_tenant: NewTenant
) -> None:
    """Three of four nodes are free to take VMs of node-a, one migration each, and the fourth finds none left."""
    server = new_webhook({"migration": {"maxInboundPerNode": 1}})
    tenant, other = (new_tenant(server=server, policies=[MIGRATION]) for _ in range(2))
    taken: list[str] = []
    begun: list[tuple[MigrationMover, KubeObject]] = []
    for number, place in enumerate((tenant, other, tenant, other)):
        vm = MigrationMover(place, guest(f"web{number}"))
        begun.append((vm, vm.evacuate()))
        target = vm.target(begun[-1][1])
        taken.append(vm.node_of(target))
        expressions = [each for term in terms_of(target) for each in term["matchExpressions"]]
        left_out = [value for each in expressions if each["operator"] == "NotIn" for value in each["values"]]
        assert left_out == (sorted(taken[:-1]) if number < 3 else [])
        vm.enter(begun[-1][1], "Running")

    assert sorted(taken[:3]) == ["node-b", "node-c", "node-d"]
    codes = [[each["code"] for each in line["reasons"]] for line in (*tenant.audit("Pod"), *other.audit("Pod"))]
    exceeded = ["no-added-selector", "inbound-limit-exceeded"]
    assert sorted(codes) == [["inbound-limited"], ["inbound-limited"], ["no-added-selector"], exceeded]
    # The other two nodes receive one each.
    for at in (0, 3):
        begun[at][0].enter(begun[at][1], "Succeeded")
    vm = MigrationMover(tenant, guest("last"))
    assert vm.node_of(vm.target(vm.evacuate())) == taken[0]


# The API server waits this long for one answer, in seconds; a request that does not wait for it is far faster.
TIMEOUT = 3


def seconds(act: Callable[[], object]) -> float:
    """How long something takes at best: other work on the machine may delay a single attempt."""

    def once() -> float:
        started = time.monotonic()
        act()
        return time.monotonic() - started

    return min(once() for _ in range(3))


METRIC = "apiserver_admission_webhook"
FAILED = 'error_type="calling_webhook_error"'
OURS = re.compile(r'name="[^"]+[.]kubevirt-webhook[.]github[.]io"')


def sample(plane: Access, metric: str, *labels: str) -> float:
    """The sum of a metric's samples that are of kubevirt-webhook and have these labels."""
    text = plane.kubectl("get", "--raw", "/metrics").stdout
    lines = [line for line in text.splitlines() if line.startswith(f"{metric}{{") and OURS.search(line)]
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))


def test_the_rules_ask_for_what_the_test_reads() -> None:
    text = "\n".join(rule["expr"] for rule in RECORDS.values())

    for metric in ("fail_open_count", "rejection_count", "admission_duration_seconds_bucket"):
        assert f'apiserver_admission_webhook_{metric}{{name=~".+[.]kubevirt-webhook[.]github[.]io"' in text


@pytest.mark.control("outage-blocks-the-cluster", "unreachable-replicas")
def test_while_nobody_answers_choices_are_refused_and_a_drain_goes_on(
    plane: Access, new_webhook: NewWebhook, new_tenant: NewTenant
) -> None:
    server = new_webhook({"webhooks": {"timeoutSeconds": TIMEOUT}})
    server.insist()
    tenant = new_tenant(server=server, policies=[MIGRATION])
    vm = MigrationMover(tenant, guest())
    chosen = vm.ask(WEST)
    vm.target(chosen, dryRun="All")
    assert sample(plane, f"{METRIC}_admission_duration_seconds_bucket", 'le="+Inf"', 'type="admit"') > 0
    allowed, denied = sample(plane, f"{METRIC}_fail_open_count"), sample(plane, f"{METRIC}_rejection_count", FAILED)

    for silence, why in ((server.freeze, "deadline exceeded"), (server.kill, "connection refused")):
        silence()

        assert seconds(vm.evacuate) < TIMEOUT
        refused = eventually(lambda: denial(lambda: vm.ask(WEST)), what="the failure policy to be known")
        assert (refused.status, refused.body["reason"]) == (500, "InternalError")
        assert f'failed calling webhook "{ENTRY}"' in refused.message
        assert why in refused.message
        assert vm.ask().warnings == ()
        target = vm.target(vm.evacuate())
        assert vm.node_of(target) != "node-a"
        tenant.controller.delete("v1/pods", target["metadata"]["name"], tenant.namespace, gracePeriodSeconds="0")
    # A drain's target pod is none that the webhook is asked about, but one of a chosen node is.
    vm.target(chosen, dryRun="All")
    assert sample(plane, f"{METRIC}_fail_open_count", 'type="admit"') > allowed
    assert sample(plane, f"{METRIC}_rejection_count", FAILED) > denied
