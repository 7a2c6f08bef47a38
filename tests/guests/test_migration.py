"""Guests migrate while they count: memory is copied, and no second is lost or counted twice."""

from __future__ import annotations

from tests.e2e.support.objects import ZONE

from .support import Guests, gaps

OTHER = {"node-1": "node-2", "node-2": "node-1"}


def zone_of(node: str) -> str:
    return f"zone-{node.rpartition('-')[2]}"


def test_a_migration_ends_on_the_node_that_the_selector_chose(guests: Guests) -> None:
    guests.run_vm("web")
    guests.wait_booted("web")
    guests.wait_migratable("web")
    source = guests.node_of("web")
    before = guests.count_on("web")

    made = guests.migrate("web", {ZONE: zone_of(OTHER[source])})
    guests.wait_migrated(made)
    after = guests.count_on("web")

    assert guests.node_of("web") == OTHER[source]
    assert gaps(after) == []
    # It is the same guest, not one that booted again.
    assert after[: len(before)] == before
    assert guests.told("web").count("guest: booted") == 1

    # Contradiction: denied, and the guest goes on.
    assert "0/2 nodes are available" in guests.denial("web", {ZONE: "zone-3"})
    assert gaps(guests.count_on("web")) == []
    assert guests.node_of("web") == OTHER[source]

    # Without a selector it is free again.
    guests.wait_migrated(guests.migrate("web"))
    assert guests.node_of("web") == source
    assert gaps(guests.count_on("web")) == []


def test_a_drain_moves_guests_as_foretold(guests: Guests) -> None:
    names = ["one", "two", "three"]
    for name in names:
        guests.run_vm(name)
    for name in names:
        guests.wait_booted(name)
        guests.wait_migratable(name)
    node = guests.node_of("one")
    there = [name for name in names if guests.node_of(name) == node]
    foretold = guests.run("explain", "drain", node, check=False).stdout

    assert f"{len(there)} migration" in foretold
    drained = (
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--pod-selector=kubevirt.io=virt-launcher",
    )
    try:
        guests.kubectl(*drained, "--timeout=400s", timeout=420)
        assert {guests.node_of(name) for name in names} == {OTHER[node]}
        for name in names:
            assert gaps(guests.count_on(name)) == []
    finally:
        guests.kubectl("uncordon", node)
