"""The migration policy at the creation of a migration: its denials, its warnings, and what users see."""

from __future__ import annotations

import json
import re

from .support.messages import Said, codes, parse
from .support.migrations import (
    AMD,
    CPU_FEATURE,
    EAST,
    HOSTNAME,
    WEST,
    MigrationMover,
    guest,
    member,
    migration,
    refused,
)
from .support.objects import ZONE
from .support.tenant import Tenant
from .support.workloads import MIGRATIONS

ENTRY = "virtualmachineinstancemigrations.migration.enforce.kubevirt-webhook.github.io"
# What the denial names: the sum, and both sides.
CONTRADICTION = ("0/4 nodes", f"{ZONE}=west", f"{ZONE}=east")


def test_a_contradiction_is_refused_and_explained(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest(nodeSelector=EAST))

    status = refused(lambda: vm.ask(WEST))
    shown = moving.server.access.kubectl(
        "create", "-f-", f"-n{moving.namespace}", stdin=json.dumps(migration("web", WEST)), check=False
    )

    message, said = status["message"], parse(status["message"])
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert (said.webhook, said.policy, said.code) == (ENTRY, "migration", "selector-conflict")
    assert all(part in said.text for part in CONTRADICTION)
    (cause,) = status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "spec.addedNodeSelector")
    assert parse(cause["message"]) == Said("", said.policy, "", said.text, said.code)
    assert f'Error from server (Forbidden): error when creating "STDIN": {message}\n' == shown.stderr
    assert moving.owner.list(MIGRATIONS, moving.namespace) == []
    assert moving.verdicts() == ["denied selector-conflict"] * 2


def test_a_key_of_kubevirts_own_is_refused(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest())
    keys = (AMD, f"{CPU_FEATURE}avx2", "kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35")
    for key in keys:
        status = refused(lambda key=key: vm.ask({key: "true"}))  # type: ignore[misc]
        assert (status["code"], status["reason"]) == (403, "Forbidden")
        (cause,) = status["details"]["causes"]
        assert parse(cause["message"]).text.startswith(f"{key} ")
    assert moving.verdicts() == ["denied selector-reserved"] * len(keys)


def test_an_older_version_is_no_way_around(moving: Tenant) -> None:
    MigrationMover(moving, guest(nodeSelector=EAST))
    older = {**migration("web", WEST), "apiVersion": "kubevirt.io/v1alpha3"}

    status = refused(
        lambda: moving.owner.create("kubevirt.io/v1alpha3/virtualmachineinstancemigrations", older, moving.namespace)
    )

    assert parse(status["message"]).code == "selector-conflict"


def test_what_can_work_is_admitted(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest())
    assert vm.ask(WEST).warnings == ()
    assert vm.ask(WEST, receive={"migrationID": "m1"}).warnings == ()
    assert moving.verdicts() == ["allowed nodes-eligible"] * 2


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


def test_a_pinned_vm_can_not_migrate_and_its_owner_is_told(moving: Tenant) -> None:
    vm = MigrationMover(moving, guest(nodeSelector={HOSTNAME: "node-a"}))

    asked, again, evacuating = vm.ask(), vm.ask({}), vm.evacuate()

    assert asked.warnings == again.warnings
    assert codes(asked.warnings) == ["vm-pinned-to-its-node"]
    assert "kubernetes.io/hostname=node-a" in asked.warnings[0]
    assert evacuating.warnings == ()
    assert len(moving.owner.list(MIGRATIONS, moving.namespace)) == 3
    assert moving.verdicts() == ["allowed vm-pinned-to-its-node"] * 2  # the evacuation does not reach the webhook
