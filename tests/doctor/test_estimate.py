"""Nodes and pods as the API server has them, the scores of kube-scheduler, and estimates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doctor.world import measured_cluster
from webhook.doctor import estimate
from webhook.doctor.estimate import Conditions, GuestDemand, Host, Inventory, SpreadEstimate, VmGuest, deviation
from webhook.k8s.types.core import Node, Pod

Json = dict[str, Any]
IMAGE = "registry.example/virt-launcher:v1"
SPREAD = [{"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]
_ODD = st.none() | st.sampled_from(["", "1", "-5", "1e400", "x"]) | st.integers(-(10**20), 10**20)
SMALL = GuestDemand.of(105, 450 * 2**20, 1)
OLD, NEW = (1, 35), (1, 36)
VERSION = (1, 36)


def node(name: str, *images: str, **spec: Any) -> Json:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "250", "devices.kubevirt.io/kvm": "1k"}
    listed = [{"names": [image], "sizeBytes": 600_000_000} for image in images]
    labels = {"kubevirt.io/schedulable": "true"}
    status = {"allocatable": allocatable, "images": listed}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(name: str, where: str = "a", **spec: Any) -> Json:
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {"image": "shop:v1", "resources": {"requests": requests}}
    whole = {"nodeName": where, "containers": [container], **spec}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": whole, "status": {"phase": "Running"}}


def launcher(name: str, where: str = "a", created: int = 1, **spec: Any) -> Json:
    result = pod(name, where, **{"containers": [{"image": IMAGE}], "schedulerName": "default-scheduler", **spec})
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "controller": True}
    result["metadata"] |= {
        "labels": {"kubevirt.io": "virt-launcher"},
        "ownerReferences": [{**owner, "name": name, "uid": name}],
        "creationTimestamp": f"2026-01-01T00:00:0{created}Z",
    }
    return result


def taken(nodes: list[Json], pods: list[Json], *, spreading: bool = False) -> Inventory:
    return estimate.take(
        [msgspec.convert(one, Node) for one in nodes], [msgspec.convert(one, Pod) for one in pods], lambda _: spreading
    )


def test_vms_are_apart_from_what_else_is_on_their_nodes() -> None:
    found = taken([node("a"), node("b")], [pod("web"), launcher("young", created=2), launcher("old", "b")])
    hosts = [(host.name, host.used.cpu, host.used.memory, host.count) for host in found.hosts]
    assert hosts == [("a", 1000, 2**30, 0), ("b", 0, 0, 0)]
    assert [(guest.name, guest.node) for guest in found.guests] == [("old", "b"), ("young", "a")]
    assert [host.count for host in found.occupied_hosts()] == [1, 1]
    assert (found.hosts[0].cpu, found.hosts[0].pods, found.hosts[0].devices) == (64_000, 250, 1000)


def test_what_a_container_does_not_request_is_assumed_for_scores_alone() -> None:
    sidecar = {"image": IMAGE, "restartPolicy": "Always", "resources": {"requests": {"cpu": "5m"}}}
    (guest,) = taken([node("a")], [launcher("vm", initContainers=[sidecar], overhead={"memory": "10Mi"})]).guests
    assert guest.demand == GuestDemand(5, 10 * 2**20, 0, 105, 410 * 2**20)


def test_who_does_not_count() -> None:
    done = pod("done")
    done["status"]["phase"] = "Succeeded"
    impostor = pod("impostor")
    impostor["metadata"]["labels"] = {"kubevirt.io": "virt-launcher"}
    found = taken([node("a")], [done, impostor, pod("waiting", ""), launcher("elsewhere", "gone")])

    assert found.guests == ()
    assert [(host.used.cpu, host.count) for host in found.hosts] == [(1000, 0)]


def test_nodes_that_take_no_vms_keep_theirs() -> None:
    closed = [
        node("cordoned", unschedulable=True),
        node("tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        {"metadata": {"name": "unlabeled"}},
        node("emptied") | {"status": {"conditions": [{"type": "Drained", "status": "True"}]}},
    ]
    soft = node("soft", taints=[{"key": "busy", "effect": "PreferNoSchedule"}])
    found = taken([*closed, soft], [launcher("vm", "cordoned")])

    assert [host.name for host in found.open] == ["soft"]
    assert found.guests == ()
    assert [(host.name, host.count) for host in found.occupied_hosts()] == [("cordoned", 1), ("soft", 0)]


def test_who_lists_the_image() -> None:
    full = node("full", *(f"other:{number}" for number in range(50)))
    found = taken([node("a", IMAGE), node("b"), full, node("c", IMAGE)], [launcher("vm")])

    assert (found.image, found.listing, found.full, found.points) == (IMAGE, 2, 1, 26)
    assert [host.lists_image for host in found.hosts] == [True, False, False, True]
    # An image without a tag is the latest.
    bare = "registry.example:5000/virt-launcher"
    assert taken([node("a", f"{bare}:latest")], [launcher("vm", containers=[{"image": bare}])]).listing == 1


def test_constraints_of_pods_and_those_that_new_ones_will_get() -> None:
    own = [{"topologyKey": "rack"}]
    pods = [
        launcher("none", created=1),
        launcher("spread", created=2, topologySpreadConstraints=SPREAD, schedulerName="kubevirt"),
        launcher("own", created=3, topologySpreadConstraints=own),
    ]

    assert [guest.is_spread for guest in taken([node("a")], pods).guests] == [False, True, False]
    assert [guest.is_spread for guest in taken([node("a")], pods, spreading=True).guests] == [True, True, False]
    assert [guest.is_stock for guest in taken([node("a")], pods).guests] == [True, False, True]


@given(cpu=_ODD, memory=_ODD, pods=_ODD, requested=_ODD)
def test_odd_quantities_are_no_error(cpu: Any, memory: Any, pods: Any, requested: Any) -> None:
    odd = node("a")
    odd["status"]["allocatable"] = {"cpu": cpu, "memory": memory, "pods": pods}
    asks = {"resources": {"requests": {"cpu": requested}}}

    found = taken([odd], [pod("web", containers=[asks]), launcher("vm", containers=[asks])])

    assert found.hosts[0].cpu >= 0
    assert found.guests[0].demand.cpu >= 0


def host(cpus: int = 64, devices: int = 0) -> Host:
    return Host("node", 1000 * cpus, 4 * cpus * 2**30, devices)


@pytest.mark.parametrize(("version", "empty", "used"), [(OLD, 99, 99), (NEW, 74, 75)])
def test_balanced_allocation_scores_as_the_scheduler_logged(version: tuple[int, int], empty: int, used: int) -> None:
    second = host()
    second.add(SMALL)
    assert estimate.balance_score(host(), SMALL, version) == empty
    assert estimate.balance_score(second, SMALL, version) == used
    assert estimate.bias(host(), SMALL, version) == used - empty


def test_a_daemon_set_takes_the_bias_away() -> None:
    loaded = host()
    loaded.add(GuestDemand.of(1500, 2 * 2**30))
    assert estimate.bias(loaded, SMALL, NEW) == 0


def test_fit_is_the_free_share() -> None:
    assert estimate.fit_score(host(), SMALL) == 99
    assert estimate.fit_score(host(), GuestDemand.of(32_000, 128 * 2**30)) == 50
    assert estimate.fit_score(host(), GuestDemand.of(65_000, 0)) == 50, "of CPU nothing is free"
    # Devices count where the profile weighs them.
    few = replace(host(devices=110), used=GuestDemand(devices=54))
    assert estimate.fit_score(few, SMALL, devices_weight=2) == 74
    assert estimate.fit_score(few, SMALL) == 99
    assert estimate.fit_score(host(), SMALL, devices_weight=2) == 99


@pytest.mark.parametrize(
    ("cpus", "version", "profile", "number"),
    [
        # 11 is what the reproduction showed, on each node that it filled; 5 with 1.35, or without the score.
        *((64, NEW, estimate.STOCK, 11), (64, OLD, estimate.STOCK, 5)),
        *((64, NEW, estimate.STOCK._replace(balance=False), 5), (16, NEW, estimate.STOCK, 2)),
        (192, NEW, estimate.STOCK, 34),
    ],
)
def test_so_many_go_to_one_node_first(
    cpus: int, version: tuple[int, int], profile: estimate.Profile, number: int
) -> None:
    assert estimate.count_piled(host(cpus), SMALL, profile, version) == number
    assert estimate.count_piled(host(cpus), GuestDemand(0, 0), profile, version) == 1000, "a pile ends"


@pytest.mark.parametrize(
    ("sizes", "share", "points"),
    [
        # Two containers of an image of 600 MB, on half of the nodes and on all.
        *(([600_000_000] * 2, 0.5, 27), ([600_000_000] * 2, 1.0, 56), ([1000], 1.0, 0), ([10**12], 1.0, 100)),
        ([], 0.5, 0),
    ],
)
def test_images(sizes: list[int], share: float, points: int) -> None:
    assert estimate.image_points(sizes, share) == points


def test_topology_counts_the_pods_own_namespace() -> None:
    hosts = [host(), host(), host()]
    for number, one in enumerate(hosts):
        for _ in range(number):
            one.add_guest(VmGuest("shop", "vm", SMALL))

    assert estimate.spread_scores(hosts, "shop") == [200, 66, 0], "whole numbers, as the scheduler counts"
    assert estimate.spread_scores(hosts, "lab") == [200, 200, 200]


def test_a_node_without_anything_allocatable_has_no_score() -> None:
    assert estimate.fit_score(Host("odd", 0, 0), SMALL) == 0
    assert estimate.balance_score(Host("odd", 0, 0), SMALL, NEW) == 75
    assert SpreadEstimate.of([Host("odd", 0, 0)]) == SpreadEstimate((0,), (0.0,), (0.0,))
    assert deviation(SpreadEstimate.of([]).counts) == 0, "nor has no node"


@pytest.mark.parametrize(
    ("key", "measured"),
    [
        # By default-scheduler, the profile, the constraint, and both. All VMs of a row are equal: for mixed sizes the
        # estimate is off by up to 2.3.
        *(("64cpu-40", (3.8, 2.3, 0.0, 0.0)), ("64cpu-300", (15.1, 4.0, 1.0, 0.0))),
        *(("64cpu-daemonsets-100", (5.2, 3.0, 0.0, 0.0)), ("64cpu-daemonsets-300", (15.0, 3.7, 1.0, 0.0))),
        *(("192cpu-daemonsets-100", (7.5, 3.5, 0.0, 0.0)), ("uneven-load-100", (11.9, 7.9, 0.8, 4.0))),
        *(("all-images-100", (2.7, 3.1, 0.0, 0.0)), ("medium-300", (14.3, 0.0, 1.0, 0.0))),
        *(("20-namespaces-300", (15.0, 3.7, 5.2, 3.2)), ("300-namespaces-300", (15.0, 3.5, 15.0, 3.5))),
        ("20-namespaces-300-limit-110", (15.0, 1.0, 5.2, 0.9)),
    ],
)
def test_it_says_what_the_scheduler_did(key: str, measured: tuple[float, ...]) -> None:
    hosts, guests, points = measured_cluster(key)
    cases = [
        Conditions(VERSION, points, profile, is_spread)
        for is_spread in (False, True)
        for profile in (estimate.STOCK, estimate.SPREAD_BY_DEVICES)
    ]

    estimated = [deviation(estimate.estimate(hosts, guests, conditions).counts) for conditions in cases]

    assert estimated == pytest.approx(measured, abs=1.0)


def test_conditions_of_each_vm_are_its_own() -> None:
    hosts = [Host(f"node-{number}", 64_000, 2**38, 1000, lists_image=number % 2 == 0) for number in range(4)]
    now = Conditions(VERSION, points=30)

    def placed(*, is_spread: bool = False, is_stock: bool = True) -> SpreadEstimate:
        guests = [VmGuest("shop", f"{number}", SMALL, is_spread=is_spread, is_stock=is_stock) for number in range(8)]
        return estimate.estimate(hosts, guests, now)

    assert placed().empty == 3
    assert placed(is_spread=True).counts == (2, 2, 2, 2)
    assert sum(placed(is_stock=False).counts[1::2]) > 0, "a scheduler of its own does not look at images"


def test_vms_go_only_where_they_can() -> None:
    hosts = [
        Host("closed", 64_000, 2**38, is_open=False),
        *(Host("full", 64_000, 2**38, pods=0), Host("small", 50, 2**38), Host("tight", 64_000, 2**20)),
        Host("without-device", 64_000, 2**38, labels={"zone": "a"}),
        *(Host(f"in-{zone}", 64_000, 2**38, devices=10, labels={"zone": zone}) for zone in ("b", "a")),
    ]
    guests = [VmGuest("shop", f"{number}", SMALL, selector={"zone": "a"}) for number in range(12)]

    found = estimate.estimate(hosts, guests, Conditions(VERSION, 0))

    assert found.counts == (0, 0, 0, 0, 0, 10)
    assert found.unplaced == 2
    assert [host.count for host in hosts] == [0] * 7, "the nodes stay as they are"


HOSTS = [Host(f"{number}", 1, 1) for number in range(400)]
GUESTS = [VmGuest("shop", f"{number}", SMALL) for number in range(4000)]


@given(st.integers(0, 400), st.integers(1, 400))
def test_a_large_cluster_is_estimated_by_a_part(nodes: int, vms: int) -> None:
    hosts, guests = HOSTS[:nodes], GUESTS[: 10 * vms]

    some_hosts, some_guests = estimate.sample(hosts, guests)

    assert len(some_hosts) * len(some_guests) <= 1.2 * estimate.MOST_LOOKS + len(hosts) + len(guests)
    assert bool(some_hosts) == bool(hosts)
    if nodes * 10 * vms <= estimate.MOST_LOOKS:
        assert (some_hosts, some_guests) == (hosts, guests)
