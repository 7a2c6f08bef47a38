"""Guests migrate while they count: memory is copied, and no second is lost or counted twice, nor by a drain."""

from __future__ import annotations

import time

import pytest

from tests.e2e.support.objects import ZONE

from .support import NAMESPACE, OTHER, Guests, gaps, most_at_once, phases_of, times_of

NAMES = [f"vm-{number}" for number in range(4)]
NODE = "node-1"
DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=kubevirt.io=virt-launcher")


def zone_of(node: str) -> str:
    return f"zone-{node.rpartition('-')[2]}"


def test_a_migration_ends_on_the_node_that_the_selector_chose(guests: Guests) -> None:
    guests.start("web")
    source = guests.node_of("web")
    before = guests.count_on("web")

    made = guests.wait_migrated(guests.migrate("web", {ZONE: zone_of(OTHER[source])}))
    after = guests.count_on("web")

    assert guests.node_of("web") == OTHER[source]
    assert guests.scheduler_of(guests.launcher("web")) == "kubevirt"
    assert gaps(after) == []
    # It is the same guest, not one that booted again.
    assert after[: len(before)] == before
    assert guests.told("web").count("guest: booted") == 1
    print(f"{times_of(guests.vmi('web'), made)}; the guest stood still for {guests.longest_pause('web') - 1:.1f}s")


@pytest.fixture
def crowd(guests: Guests) -> Guests:
    guests.kubectl("cordon", OTHER[NODE])
    try:
        guests.start(*NAMES)
    finally:
        guests.kubectl("uncordon", OTHER[NODE])
    assert {guests.node_of(name) for name in NAMES} == {NODE}
    return guests


def test_a_drain_moves_guests_as_predicted(crowd: Guests) -> None:
    guests = crowd
    plan = guests.explain("drain", NODE)
    predicted = {vm["name"]: vm for vm in plan["steps"][0]["vms"] if vm["namespace"] == NAMESPACE}
    for name in NAMES:
        guests.follow(name)
    before = {name: guests.count_on(name) for name in NAMES}
    began = time.monotonic()

    try:
        guests.kubectl("drain", NODE, *DRAIN, "--timeout=400s", timeout=420)
        lasted = time.monotonic() - began
        moved = {name: guests.node_of(name) for name in NAMES}
        assert moved == {name: vm["to"] for name, vm in predicted.items()}
        assert {vm["outcome"] for vm in predicted.values()} == {"moves"}
        for name in NAMES:
            after = guests.count_on(name)
            assert (gaps(after), after[: len(before[name])]) == ([], before[name])
            assert guests.told(name).count("guest: booted") == 1
    finally:
        guests.kubectl("uncordon", NODE)

    made = sorted(guests.migrations(), key=lambda each: phases_of(each)["Scheduling"])
    assert sorted(each["spec"]["vmiName"] for each in made) == NAMES
    assert plan["moves"] == len(made)
    assert most_at_once(made) == plan["limits"]["perNode"]
    assert lasted <= plan["atMostSeconds"]
    print(f"predicted {plan['seconds']}s, lasted {lasted:.0f}s")
    for each in made:
        name = each["spec"]["vmiName"]
        times, pause = times_of(guests.vmi(name), each), guests.longest_pause(name) - 1
        print(f"{name}: turn {predicted[name]['turn']}, {times}, stood still for {pause:.1f}s")
