"""Guests while the scheduler or the webhook is stopped: those that run go on, and new ones start all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.support.kube import eventually
from tests.e2e.support.workloads import VMS
from tests.node.support import NAMESPACE as INSTALLATION

from .support import NAMESPACE, Guests, gaps, guest_vm

SCHEDULER = "kubevirt-scheduler"
OWN_SIZE = {"memory": {"guest": "256Mi"}}


@pytest.fixture
def without_scheduler(guests: Guests) -> Iterator[Guests]:
    """While the second scheduler is stopped, and the webhook has noticed; with a VM that was created before."""
    early = guest_vm("early")
    early["spec"]["runStrategy"] = "Halted"
    stored = guests.admin.create(VMS, early, NAMESPACE)
    assert stored["spec"]["template"]["spec"]["schedulerName"] == "kubevirt"
    guests.scale(SCHEDULER, SCHEDULER, 0)
    guests.wait_defaults(scheduler=None)
    yield guests
    guests.scale(SCHEDULER, SCHEDULER, 2)
    guests.wait_defaults(scheduler="kubevirt")


def test_without_its_scheduler_a_vm_starts_all_the_same(without_scheduler: Guests) -> None:
    guests = without_scheduler
    guests.admin.patch(VMS, "early", {"spec": {"runStrategy": "Always"}}, NAMESPACE)
    guests.run_vm("late")

    for name in ("early", "late"):
        guests.wait_booted(name)
        (pod,) = guests.launchers(name)
        assert guests.scheduler_of(pod) == "default-scheduler"
        assert gaps(guests.count_on(name)) == []


@pytest.fixture
def without_webhook(guests: Guests) -> Iterator[Guests]:
    """While both replicas are stopped; with a guest that runs."""
    guests.start("old")
    guests.scale(INSTALLATION, INSTALLATION, 0)
    yield guests
    guests.scale(INSTALLATION, INSTALLATION, 2)


def drifted(guests: Guests) -> set[tuple[str, str, str]]:
    """Policy, kind and name of what the replicas' scans have found."""
    records = [json.loads(line) for line in guests.logs('"kind":"drift"')]
    return {(each["endpoint"].split("/")[2], each["object"]["kind"], each["object"]["name"]) for each in records}


def test_without_the_webhook_guests_run_on_and_vms_start_without_defaults(without_webhook: Guests) -> None:
    guests = without_webhook
    guests.run_vm("new", OWN_SIZE)
    unsized = guest_vm("unsized")
    unsized["spec"]["runStrategy"] = "Halted"
    guests.admin.create(VMS, unsized, NAMESPACE)
    guests.wait_booted("new")
    (pod,) = guests.launchers("new")
    assert guests.scheduler_of(pod) == "default-scheduler"
    assert gaps(guests.count_on("old")) == []
    assert guests.told("old").count("guest: booted") == 1
    for name in ("new", "unsized"):
        spec = guests.admin.get(VMS, name, NAMESPACE)["spec"]
        assert "instancetype" not in spec
        assert "schedulerName" not in spec["template"]["spec"]

    guests.scale(INSTALLATION, INSTALLATION, 2)

    expected = {
        ("scheduling", "VirtualMachine", "new"),
        ("scheduling", "VirtualMachine", "unsized"),
        ("instancetypes", "VirtualMachine", "unsized"),
        ("scheduling", "Pod", pod["metadata"]["name"]),
    }
    eventually(lambda: drifted(guests) >= expected, what="the scan to find what has drifted", timeout=120)
    assert {name for _, _, name in drifted(guests)} == {name for _, _, name in expected}
    # A new start makes it as it would have been.
    assert gaps(guests.count_on("new")) == []
