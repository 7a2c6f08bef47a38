"""Nodes and pods as the API server gives them."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from webhook.doctor.spread.hosts import GuestDemand
from webhook.doctor.spread.inventory import Inventory, take
from webhook.k8s.types.core import Node, Pod

Json = dict[str, Any]
IMAGE = "registry.example/virt-launcher:v1"
SPREAD = [{"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]


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
    return take(
        [msgspec.convert(one, Node) for one in nodes],
        [msgspec.convert(one, Pod) for one in pods],
        lambda _: spreading,
    )


def test_vms_are_apart_from_what_else_is_on_their_nodes() -> None:
    found = taken([node("a"), node("b")], [pod("web"), launcher("young", created=2), launcher("old", "b")])

    assert [(host.name, host.used_cpu, host.used_memory, host.count) for host in found.hosts] == [
        ("a", 1000, 2**30, 0),
        ("b", 0, 0, 0),
    ]
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
    assert [(host.used_cpu, host.count) for host in found.hosts] == [(1000, 0)]


def test_nodes_that_take_no_vms_keep_theirs() -> None:
    closed = [
        node("cordoned", unschedulable=True),
        node("tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        {"metadata": {"name": "unlabeled"}},
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


def test_an_image_without_a_tag_is_the_latest() -> None:
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


_ODD = st.none() | st.sampled_from(["", "1", "-5", "1e400", "x"]) | st.integers(-(10**20), 10**20)


@given(cpu=_ODD, memory=_ODD, pods=_ODD, requested=_ODD)
def test_odd_quantities_are_no_error(cpu: Any, memory: Any, pods: Any, requested: Any) -> None:
    odd = node("a")
    odd["status"]["allocatable"] = {"cpu": cpu, "memory": memory, "pods": pods}
    asks = {"resources": {"requests": {"cpu": requested}}}

    found = taken([odd], [pod("web", containers=[asks]), launcher("vm", containers=[asks])])

    assert found.hosts[0].cpu >= 0
    assert found.guests[0].demand.cpu >= 0
