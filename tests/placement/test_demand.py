"""What pods request, and what the target pod of a migration requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks.counting import Cost, lines, nonlinear
from tests.builders import config_of
from tests.placement.samples import FOO, Json, compute_pod, kubevirt, node, vmi
from webhook.k8s.quantity import Nanos, read_resource_list
from webhook.k8s.types.core import Container
from webhook.placement.demand import is_sidecar, sum_requests, target_pod_demand
from webhook.placement.machines import LauncherPod, Vmi

CPU, MI, GI = 10**9, 2**20, 2**30
KVM, TDX, IOMMUFD = (f"devices.kubevirt.io/{name}" for name in ("kvm", "tdx", "iommufd"))


def upstream(containers: list[Nanos], init: list[tuple[Nanos, bool]]) -> Nanos:
    """AggregateContainerRequests, line by line."""

    def add(to: Nanos, more: Nanos) -> None:
        for name, value in more.items():
            to[name] = to.get(name, 0) + value

    def keep_greater(to: Nanos, other: Nanos) -> None:
        for name, value in other.items():
            to[name] = max(to.get(name, value), value)

    requests: Nanos = {}
    sidecars: Nanos = {}
    most: Nanos = {}
    for each in containers:
        add(requests, each)
    for each, always in init:
        if always:
            add(requests, each)
            add(sidecars, each)
        needs = dict(sidecars)
        if not always:
            add(needs, each)
        keep_greater(most, needs)
    keep_greater(requests, most)
    return requests


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "a/b"]), st.integers(0, 9), max_size=3)


@given(containers=st.lists(amounts, max_size=4), init=st.lists(st.tuples(amounts, st.booleans()), max_size=5))
def test_sums_are_kubernetes_own(containers: list[Nanos], init: list[tuple[Nanos, bool]]) -> None:
    assert sum_requests(containers, init) == upstream(containers, init)


def test_pod_level_and_overhead() -> None:
    """The requests of the pod itself replace those that they may, and the overhead of a RuntimeClass is added."""
    found = sum_requests([{"cpu": CPU, "a/b": 10**9}], pod_level={"cpu": "3", "hugepages-2Mi": "1Gi", "a/b": "7"})
    assert found == {"cpu": 3 * CPU, "hugepages-2Mi": GI * 10**9, "a/b": 10**9}
    added = sum_requests([{"memory": GI * 10**9}], overhead={"memory": "1Gi", "cpu": "1"})
    assert added == {"memory": 2 * GI * 10**9, "cpu": CPU}
    # What is read of containers.
    plain = msgspec.convert({"resources": {"requests": {"cpu": "1"}}}, Container)
    assert (plain.requests, Container().requests) == ({"cpu": CPU}, {})
    assert (is_sidecar(Container(restart_policy="Always")), is_sidecar(plain)) == (True, False)
    assert read_resource_list({"cpu": "lots", "memory": None, "a/b": 1}) == {"a/b": 10**9}


@pytest.mark.control("thousands-of-requests")
def test_thousands_of_containers_and_resources_take_steps_by_their_number() -> None:
    steps = 0

    class CountingAmounts(dict[str, int]):
        def items(self) -> Any:
            nonlocal steps
            steps += len(self)
            return super().items()

    init = [(CountingAmounts({f"example.com/r{number}": 1}), True) for number in range(3000)]

    assert (len(sum_requests([], init)), steps) == (3000, 3000)


def machine(domain: Json | None = None, **spec: Any) -> Vmi:
    return vmi(spec, domain)


def requests(vm: Vmi, launcher: LauncherPod | None, **options: Any) -> dict[str, int]:
    return target_pod_demand(vm, launcher, **options).requests


def test_the_present_pod_shows_all_that_its_containers_request() -> None:
    guest = {"memory": {"guest": "1Gi"}, "cpu": {"cores": 2}}
    launcher = compute_pod(
        {"cpu": "200m", "memory": "1300Mi", "ephemeral-storage": "50M", KVM: "1"},
        beside=[{"name": "hook-sidecar-0", "resources": {"requests": {"cpu": "10m", "memory": "1M"}}}],
        initContainers=[
            {"name": "guest-console-log", "restartPolicy": "Always", "resources": {"requests": {"memory": "60M"}}}
        ],
        overhead={"memory": "100Mi"},
    )

    assert requests(machine(guest), launcher) == {
        "cpu": 210,
        KVM: 1,
        "ephemeral-storage": 50_000_000,
        "memory": 1300 * MI + 1_000_000 + 60_000_000 + 100 * MI,
    }


SOCKETS, GUEST = {"cpu": {"sockets": 8}}, {"memory": {"guest": "4Gi"}}
IO_POOL = {**SOCKETS, "ioThreads": {"supplementalPoolThreadCount": 2}}
OVERHEAD = {"kubevirt.io/memory-overhead-bytes": str(300 * MI)}
HALF = kubevirt(memoryOvercommit=200)
THREE_GI = {"memory": "3Gi"}
# Of a guest with one vCPU: five processes, an I/O thread, the vCPU and graphics.
NEW = (25 + 100 + 25 + 40 + 30 + 8 + 8 + 32) * MI
PINNED: Json = {**GUEST, "cpu": {"sockets": 8, "dedicatedCpuPlacement": True}}
SMALL_PAGES = {"memory": {"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}}}


@pytest.mark.parametrize(
    ("domain", "launcher", "options", "expected"),
    [
        # CPUs: hotplugged ones are requested, by the allocation ratio of now, and those of an I/O pool may count.
        (SOCKETS, compute_pod({"cpu": "200m"}), {}, {"cpu": 800}),
        (SOCKETS, compute_pod({"cpu": "8"}), {}, {"cpu": 800}),
        (SOCKETS, compute_pod({"cpu": "8"}), {"configuration": kubevirt(cpuAllocationRatio=2)}, {"cpu": 4000}),
        (SOCKETS, compute_pod({"cpu": "8"}), {"configuration": kubevirt(cpuAllocationRatio=3)}, {"cpu": 2667}),
        (IO_POOL, compute_pod({"cpu": "800m"}), {}, {"cpu": 800}),
        (IO_POOL, compute_pod({"cpu": "1"}), {}, {"cpu": 1000}),
        (IO_POOL, compute_pod({"cpu": "1200m"}), {}, {"cpu": 1000}),
        # Where no ratio is applied the pod says it.
        ({"cpu": {"sockets": 8, "dedicatedCpuPlacement": True}}, compute_pod({"cpu": "3"}), {}, {"cpu": 3000}),
        ({**SOCKETS, "resources": {"requests": {"cpu": "3"}}}, compute_pod({"cpu": "3"}), {}, {"cpu": 3000}),
        ({**SOCKETS, "resources": {"limits": {"cpu": "3"}}}, compute_pod({"cpu": "3"}), {}, {"cpu": 3000}),
        # Without a topology KubeVirt requests nothing.
        ({"cpu": {"model": "host-model"}}, None, {}, {"cpu": None}),
        # Memory: the overhead is what the present pod shows, hotplugged memory is requested.
        (GUEST, compute_pod({"memory": "4396Mi"}), {}, {"memory": 4396 * MI}),
        (GUEST, compute_pod({"memory": "1324Mi"}), {}, {"memory": 4 * GI}),
        (GUEST, compute_pod({"memory": "1324Mi"}, OVERHEAD), {}, {"memory": 4 * GI + 300 * MI}),
        # Half for the guest, and the 300Mi that the pod shows beyond its 4Gi.
        (GUEST, compute_pod({"memory": "4396Mi"}), {"configuration": HALF}, {"memory": 2 * GI + 300 * MI}),
        # Made under the same settings: the overhead isn't known, and the least counts.
        (GUEST, compute_pod({"memory": "2348Mi"}), {"configuration": HALF}, {"memory": 2 * GI}),
        (GUEST, compute_pod({"memory": "4396Mi"}, OVERHEAD), {"configuration": HALF}, {"memory": 2 * GI + 300 * MI}),
        *(
            (
                {**GUEST, "resources": {"requests": THREE_GI, "overcommitGuestOverhead": True}},
                compute_pod({"memory": memory}),
                {},
                {"memory": 3 * GI},
            )
            for memory in ("3Gi", "3300Mi")
        ),
        # Without a pod the least overhead that KubeVirt computes counts; for pagetables it looks at the VM's request.
        *(
            ({**GUEST, "resources": {kind: THREE_GI}}, None, {"configuration": HALF}, {"memory": 3 * GI + NEW + more})
            for kind, more in (("requests", 6 * MI), ("limits", 0))
        ),
        ({**GUEST, "cpu": {"cores": 4}}, None, {}, {"memory": 4 * GI + NEW + 24 * MI}),
        ({**GUEST, "devices": {"autoattachGraphicsDevice": False}}, None, {}, {"memory": 4 * GI + NEW - 32 * MI}),
        (
            GUEST,
            None,
            {"configuration": config_of("1.9", {"additionalGuestMemoryOverheadRatio": "2"})},
            {"memory": 4 * GI + 2 * NEW - 1000},
        ),
        (
            GUEST,
            None,
            {"configuration": config_of("1.9", {"additionalGuestMemoryOverheadRatio": "much"})},
            {"memory": 4 * GI + NEW},
        ),
        # Dedicated CPUs are all requested; the emulator may have one of its own.
        (PINNED, None, {}, {"cpu": 8000, "memory": 4 * GI + NEW + 156 * MI}),
        ({"cpu": {**PINNED["cpu"], "isolateEmulatorThread": True}}, None, {}, {"cpu": 9000}),
        ({"cpu": {"dedicatedCpuPlacement": True}, "resources": {"requests": {"cpu": "5"}}}, None, {}, {"cpu": 5000}),
        ({}, compute_pod({"memory": "300Mi"}), {}, {"memory": 300 * MI}),
    ],
)
def test_cpus_and_memory(domain: Json, launcher: LauncherPod | None, options: Json, expected: Json) -> None:
    found = requests(machine(domain), launcher, **options)
    assert {resource: found.get(resource) for resource in expected} == expected


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (SMALL_PAGES, {"hugepages-2Mi": 4 * GI}),
        ({"memory": {"hugepages": {"pageSize": "1Gi"}}}, {"hugepages-1Gi": GI}),
        (SMALL_PAGES | {"resources": {"requests": {"memory": "5Gi"}}}, {"hugepages-2Mi": 4 * GI}),
        (SMALL_PAGES | {"resources": {"requests": {"memory": "3Gi"}}}, {"hugepages-2Mi": 3 * GI}),
    ],
)
def test_huge_pages_hold_the_guest_and_memory_the_rest(domain: Json, expected: dict[str, int]) -> None:
    more = {"5Gi": GI + 10 * MI, "3Gi": 6 * MI}.get(
        domain.get("resources", {}).get("requests", {}).get("memory", ""), 0
    )
    assert requests(machine(domain), None) == {"cpu": 100, "memory": NEW + more, **expected}
    page = next(iter(expected))
    shown = requests(machine(domain), compute_pod({"memory": "300Mi", page: "1Gi"}))
    assert shown == {"cpu": 100, "memory": 300 * MI, **expected}


class TestDevices:
    @pytest.mark.control("vm-looks-unplaceable")
    def test_devices_of_the_guest(self) -> None:
        devices = {
            "gpus": [{"name": "one", "deviceName": "nvidia.com/A100"}, {"name": "claimed", "claimName": "c"}],
            "hostDevices": [
                {"name": "two", "deviceName": FOO},
                {"name": "three", "deviceName": FOO},
                {"name": "none"},
                {"name": "claimed", "deviceName": FOO, "claimName": "c"},
                None,
            ],
        }
        known = {"cpu": 100, FOO: 2, "nvidia.com/A100": 1}

        assert requests(machine({"devices": devices}), None) == known
        assert (
            requests(machine({"devices": devices}), compute_pod({"cpu": "100m", FOO: "2", "nvidia.com/A100": "1"}))
            == known
        )

    @pytest.mark.parametrize(
        ("domain", "emulates", "expected"),
        [
            ({}, False, ["tun"]),
            ({"devices": {"autoattachPodInterface": False}}, False, []),
            ({"devices": {"autoattachPodInterface": False, "interfaces": [{"model": "e1000"}]}}, False, ["tun"]),
            ({"devices": {"interfaces": [{"name": "a"}]}}, False, ["tun", "vhost-net"]),
            ({"devices": {"interfaces": [{"model": "e1000"}, {"model": "virtio"}]}}, False, ["tun", "vhost-net"]),
            ({"devices": {"interfaces": [{"name": "a"}]}}, True, ["tun"]),
            ({"devices": {"autoattachVSOCK": True}}, False, ["tun", "vhost-vsock"]),
            ({"launchSecurity": {"sev": {}}}, False, ["sev", "tun"]),
            ({"launchSecurity": {"snp": {}}}, False, ["sev", "tun"]),
            ({"devices": {"disks": [{"lun": {"reservation": True}}, {"lun": {}}]}}, False, ["pr-helper", "tun"]),
            ({"devices": {"disks": [{"disk": {}}]}}, False, ["tun"]),
        ],
    )
    def test_kubevirts_own_devices_of_a_pod_that_is_yet_to_come(
        self, domain: Json, emulates: bool, expected: list[str]
    ) -> None:
        """As KubeVirt's getRequiredResources has them, where a node reports them."""
        configuration = kubevirt(useEmulation=emulates)

        def found(reports: Any, pod: LauncherPod | None = None) -> list[str]:
            asked = requests(machine(domain), pod, configuration=configuration, reports=reports)
            return [name.rpartition("/")[2] for name in asked if name.startswith("devices.kubevirt.io/")]

        assert found(lambda _: True) == expected
        assert found(lambda name: name.endswith("/tun")) == [name for name in expected if name == "tun"]
        assert found(lambda _: False) == []
        # A present pod says itself what it requests.
        assert found(lambda _: True, compute_pod({"cpu": "100m"})) == []

    @pytest.mark.control("vm-looks-unplaceable")
    def test_resources_of_networks_are_requested_as_long_as_there_are_networks(self) -> None:
        launcher = compute_pod({FOO: "2"})
        attached = [{"name": "one", "multus": {"networkName": "sriov"}}, {"name": "default", "pod": {}}, None]
        assert requests(machine(networks=attached * 2), launcher)[FOO] == 2
        unplugged = target_pod_demand(machine(networks=attached), launcher)
        assert unplugged.requests[FOO] == 1
        (gap,) = unplugged.gaps
        assert FOO in gap
        assert FOO not in requests(machine(), launcher)
        # What the VM requests by name, and KubeVirt's own devices, need no explanation.
        vm = machine({"resources": {"requests": {FOO: "3"}}})
        assert (requests(vm, compute_pod({FOO: "3"}))[FOO], requests(vm, None)[FOO]) == (3, 3)
        found = target_pod_demand(machine(), compute_pod({KVM: "1", "devices.kubevirt.io/sev": "1"}))
        assert (found.requests, found.gaps) == ({"cpu": 100, KVM: 1, "devices.kubevirt.io/sev": 1}, ())
        # Claims are named as not evaluated.
        (gap,) = target_pod_demand(machine(), compute_pod({}, resourceClaims=[{"name": "gpu"}])).gaps
        assert "ResourceClaims" in gap

    @pytest.mark.control("vm-looks-unplaceable")
    def test_what_the_present_node_does_not_offer_either_is_provided_in_another_way(self) -> None:
        """By DRA, or by a scheduler that ignores it: then allocatable says nothing."""
        vm, launcher = machine({"resources": {"requests": {FOO: "1"}}}), compute_pod({"memory": "1Gi", FOO: "1"})
        here = node(allocatable={"memory": "512Mi"})
        found = target_pod_demand(vm, launcher, here)
        assert found.requests == {"cpu": 100, "memory": GI}
        (gap,) = found.gaps
        assert FOO in gap
        assert target_pod_demand(vm, launcher, node(allocatable={FOO: "1"})).requests[FOO] == 1
        assert target_pod_demand(vm, launcher, node()).requests[FOO] == 1


@pytest.mark.control("thousands-of-requests")
def test_a_pod_with_thousands_of_resources() -> None:
    many = {f"example.com/r{number}": "1" for number in range(5000)}
    found = target_pod_demand(machine({"resources": {"requests": many}}), compute_pod(many))

    assert len(found.requests) == 64
    (gap,) = found.gaps
    assert "4937" in gap
    assert len(target_pod_demand(machine(), compute_pod(many)).gaps) == 64

    def cost(count: int) -> Cost:
        few = dict([*many.items()][:count])
        own, present = machine({"resources": {"requests": few}}), compute_pod(few)
        return lines(lambda: target_pod_demand(own, present))

    assert nonlinear(cost(0), cost(100), cost(200)) == {}


def test_a_pod_that_says_nothing_is_no_pod() -> None:
    vm = machine({"memory": {"guest": "1Gi"}})
    assert requests(vm, msgspec.convert({}, LauncherPod)) == requests(vm, None) == {"cpu": 100, "memory": GI + NEW}


RESERVED = {"memory": {"guest": "1Gi", "reservedOverhead": {"addedOverhead": "1Mi"}}}
WITH_TDX: Json = {"launchSecurity": {"tdx": {}}}
BOTH = {"memory": "2Gi", TDX: "1", IOMMUFD: "1"}


@pytest.mark.parametrize(
    ("domain", "present", "version", "gates", "expected"),
    [
        (WITH_TDX, None, "1.8", [], {TDX: None}),
        (WITH_TDX, None, "1.9", [], {TDX: 1}),
        ({}, None, "1.8", ["IOMMUFD"], {IOMMUFD: None}),
        ({}, None, "1.9", ["IOMMUFD"], {IOMMUFD: 1}),
        ({}, None, "1.9", [], {IOMMUFD: None}),
        (RESERVED, None, "1.7", [], {"memory": GI + NEW}),
        (RESERVED, None, "1.8", [], {"memory": GI + NEW + MI}),
        # A pod of a newer KubeVirt, or from before a gate was closed: the target pod is made by what counts now.
        (WITH_TDX, BOTH, "1.8", [], {TDX: None, IOMMUFD: None}),
        (WITH_TDX, BOTH, "1.9", [], {TDX: 1, IOMMUFD: None}),
        (WITH_TDX, BOTH, "1.9", ["IOMMUFD"], {TDX: 1, IOMMUFD: 1}),
        # A device that the owner requests stays.
        ({"resources": {"requests": {IOMMUFD: "1"}}}, {IOMMUFD: "1"}, "1.9", [], {IOMMUFD: 1}),
    ],
)
def test_what_a_release_requests(domain: Json, present: Any, version: str, gates: list[str], expected: Json) -> None:
    configuration = config_of(version, {"developerConfiguration": {"featureGates": gates}})
    found = requests(machine(domain), compute_pod(present) if present else None, configuration=configuration)
    assert {resource: found.get(resource) for resource in expected} == expected


quantities = st.one_of(st.none(), st.integers(0, 2**40), st.sampled_from(["1Gi", "500m", "0", "-1", "many", "1e3", ""]))
lists = st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi", FOO, "foo", KVM]), quantities, max_size=4)


@given(
    own=lists,
    limits=lists,
    shown=lists,
    guest=quantities,
    page=st.sampled_from([None, "2Mi", "big"]),
    cores=st.integers(0, 64),
    ratio=st.integers(0, 20),
    overcommit=st.integers(0, 300),
    annotation=st.sampled_from([None, "100", "much"]),
)
def test_whatever_is_written(
    own: Any, limits: Any, shown: Any, guest: Any, page: Any, cores: int, ratio: int, overcommit: int, annotation: Any
) -> None:
    memory = {"guest": guest, "hugepages": {"pageSize": page} if page else None}
    vm = machine({"cpu": {"cores": cores}, "memory": memory, "resources": {"requests": own, "limits": limits}})
    launcher = compute_pod(shown, {"kubevirt.io/memory-overhead-bytes": annotation} if annotation else None)
    settings = kubevirt(cpuAllocationRatio=ratio, memoryOvercommit=overcommit)
    for present in (None, launcher):
        found = target_pod_demand(vm, present, configuration=settings)
        assert all(amount > 0 for amount in found.requests.values())
        assert "foo" not in found.requests
