"""The scheduling policy on VirtualMachineInstances, switched on for them and off for VMs."""

from __future__ import annotations

import pytest

from .conftest import SCHEDULERS, ModuleWebhook, NewTenant
from .support.tenant import Tenant
from .support.workloads import MARK, VMIS, scheduler_of, vm


@pytest.fixture
def evaluated(module_webhook: ModuleWebhook, new_tenant: NewTenant) -> Tenant:
    """A namespace of a server that matches VMIs and not VMs."""
    switches = {"virtualMachines": False, "virtualMachineInstances": True}
    return new_tenant(server=module_webhook({"schedulers": SCHEDULERS, "scheduling": switches}))


def test_the_choice_shows_in_the_vmi_and_its_vm_stays_as_it_was(evaluated: Tenant) -> None:
    created = evaluated.create(vm())
    vmi = evaluated.start(created)
    pod = evaluated.launch(vmi)

    assert (scheduler_of(created), scheduler_of(vmi), scheduler_of(pod)) == (None, "kubevirt", "kubevirt")
    assert vmi["metadata"]["annotations"][MARK] == "kubevirt"
    assert [line["object"]["kind"] for line in evaluated.audit()] == ["VirtualMachineInstance", "Pod"]
    assert evaluated.verdicts() == ["patched scheduler-injected", "allowed already-injected"]


def test_a_choice_in_the_template_is_left_alone(evaluated: Tenant) -> None:
    assert scheduler_of(evaluated.start(vm("explicit", scheduler="default-scheduler"))) == "default-scheduler"
    assert scheduler_of(evaluated.start(vm("other", scheduler="volcano"))) == "volcano"
    assert evaluated.verdicts() == []


def test_heartbeats_are_none_of_our_business(evaluated: Tenant) -> None:
    evaluated.start(vm())
    before = evaluated.server.answered()

    # Without a status subresource, every change of a VMI's status is an update of the VMI.
    running = evaluated.controller.patch(VMIS, "web", {"status": {"phase": "Running"}}, evaluated.namespace)

    assert running["status"]["phase"] == "Running"
    assert evaluated.server.answered() == before
