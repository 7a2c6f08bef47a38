"""Which cure is the cheapest that is enough."""

from __future__ import annotations

import pytest

from tests.doctor.spread.clusters import cluster
from webhook.doctor.spread.cures import Outlook, outlook
from webhook.doctor.spread.estimate import Conditions, estimate
from webhook.doctor.spread.hosts import GuestDemand, Host, VmGuest
from webhook.doctor.spread.inventory import Inventory

pytestmark = pytest.mark.repeats

VERSION = (1, 36)


def inventory(key: str, *, is_spread: bool = False) -> Inventory:
    """A row of the benchmark, with its VMs where the stock scheduler puts them."""
    hosts, guests, points = cluster(key)
    listing = sum(host.lists_image for host in hosts)
    placed = [(guest, host) for guest, host in zip(guests, _places(hosts, guests, points), strict=True)]
    settled = [VmGuest(guest.namespace, guest.name, guest.demand, host, is_spread=is_spread) for guest, host in placed]
    return Inventory(tuple(hosts), tuple(settled), "virt-launcher:v1", listing, len(hosts) - listing, points, 0)


def _places(hosts: list[Host], guests: list[VmGuest], points: int) -> list[str]:
    counts = estimate(hosts, guests, Conditions(VERSION, points)).counts
    return [host.name for host, count in zip(hosts, counts, strict=True) for _ in range(count)]


@pytest.mark.parametrize(
    ("key", "measure", "cheapest"),
    [
        ("16cpu-daemonsets-100", "vms", "nodeStatusMaxImages"),
        ("64cpu-daemonsets-100", "vms", "constraint"),
        ("64cpu-1000", "vms", "nodeStatusMaxImages"),
        ("medium-300", "vms", "nodeStatusMaxImages"),
        ("64cpu-daemonsets-300", "vms", "constraint"),
        ("20-namespaces-300", "vms", "constraintAndProfileByDevices"),
        ("mixed-300", "memory", "nodeStatusMaxImages"),
    ],
)
def test_the_cheapest_that_is_enough(key: str, measure: str, cheapest: str | None) -> None:
    found = outlook(inventory(key), VERSION)

    assert found.measure == measure
    assert (found.cheapest.key if found.cheapest else None) == cheapest


def keys(found: Outlook) -> list[str]:
    return [cure.key for cure in found.cures]


def test_cures_come_cheapest_first_and_only_where_they_can_help() -> None:
    assert keys(outlook(inventory("20-namespaces-300"), VERSION)) == [
        "nodeStatusMaxImages",
        "constraint",
        "profile",
        "constraintAndProfile",
        "constraintAndProfileByDevices",
    ]
    assert keys(outlook(inventory("all-images-100"), VERSION)) == ["constraint", "profile", "constraintAndProfile"]


def test_where_new_vms_get_the_constraint_only_those_that_run_are_left() -> None:
    found = outlook(inventory("64cpu-daemonsets-100", is_spread=True), VERSION)

    assert found.cheapest
    assert found.cheapest.key == "restart"


def test_even_vms_need_nothing() -> None:
    found = inventory("64cpu-daemonsets-100")
    even = [
        VmGuest(guest.namespace, guest.name, guest.demand, found.hosts[number % 20].name)
        for number, guest in enumerate(found.guests)
    ]

    assert outlook(found._replace(guests=tuple(even)), VERSION).cheapest is None


def test_a_cure_that_leaves_more_vms_without_room_is_none() -> None:
    # Ten VMs of half of a node's memory and many small ones, on ten nodes: spread evenly, they keep the large ones out.
    hosts = tuple(Host(f"node-{number}", 64_000, 2**38, 1000, lists_image=number < 5) for number in range(10))
    small, large = GuestDemand.of(105, 2**33, 1), GuestDemand.of(1000, 2**38, 1)
    guests = [VmGuest("shop", f"small-{number}", small, f"node-{number % 2}") for number in range(20)]
    guests += [VmGuest("shop", f"large-{number}", large, f"node-{number + 2}") for number in range(8)]
    found = outlook(Inventory(hosts, tuple(guests), "virt-launcher:v1", 5, 5, 27, 0), VERSION)

    assert any(cure.spread.unplaced > found.now.unplaced for cure in found.cures)
    assert found.cheapest is None or found.cheapest.spread.unplaced <= found.now.unplaced
