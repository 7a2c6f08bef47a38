"""Guests boot where the scheduler "kubevirt" put them, with what their instancetype gives, seen from inside."""

from __future__ import annotations

from collections import Counter

from tests.e2e.support.kube import Json
from tests.e2e.support.workloads import INSTANCETYPES, VMIS, VMS, vmi_of
from webhook.names import INSTANCETYPE_ANNOTATION

from .support import INSTANCETYPE, NAMESPACE, OTHER, Guests, gaps, guest_vm

# u1.nano: 1 vCPU and 512Mi. The kernel keeps some of it for itself.
CPUS, MEMORY_KIB = 1, 512 * 1024
KEPT_KIB = 96 * 1024
VM_COUNT = 10
PAIR: Json = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineInstancetype",
    "metadata": {"name": "pair"},
    "spec": {"cpu": {"guest": 2}, "memory": {"guest": "384Mi"}},
}


def test_a_vm_boots_with_the_default_instancetype_inside(guests: Guests) -> None:
    guests.run_vm("web")

    inside = guests.wait_booted("web")

    assert inside.cpus == CPUS
    assert MEMORY_KIB - KEPT_KIB < inside.memory_kib <= MEMORY_KIB
    (pod,) = guests.launchers("web")
    assert (pod["spec"]["schedulerName"], pod["spec"]["nodeName"]) == ("kubevirt", guests.node_of("web"))
    assert guests.scheduler_of(pod) == "kubevirt"
    assert guests.admin.get(VMS, "web", NAMESPACE)["spec"]["instancetype"]["name"] == INSTANCETYPE
    counts = guests.count_on("web", 5)
    assert gaps(counts) == []


def test_a_bare_vmi_gets_the_instancetype_that_it_names(guests: Guests) -> None:
    guests.admin.create(INSTANCETYPES, PAIR, NAMESPACE)
    bare = vmi_of(guest_vm("bare"))
    bare["metadata"]["annotations"] = {INSTANCETYPE_ANNOTATION: "VirtualMachineInstancetype/pair"}
    guests.admin.create(VMIS, bare, NAMESPACE)

    inside = guests.wait_booted("bare")

    guests.admin.delete(INSTANCETYPES, "pair", NAMESPACE)
    memory = 384 * 1024
    assert inside.cpus == PAIR["spec"]["cpu"]["guest"]
    assert memory - KEPT_KIB < inside.memory_kib <= memory


def test_ten_vms_are_spread_over_both_nodes(guests: Guests) -> None:
    names = [f"vm-{number}" for number in range(VM_COUNT)]
    guests.start(*names)

    placed = Counter(guests.launcher(name)["spec"]["nodeName"] for name in names)
    assert placed.keys() == OTHER.keys()
    assert max(placed.values()) - min(placed.values()) <= 1
    assert {guests.scheduler_of(guests.launcher(name)) for name in names} == {"kubevirt"}
    for name in names:
        assert gaps(guests.count_on(name)) == []
