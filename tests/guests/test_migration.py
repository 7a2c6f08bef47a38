"""Guests migrate while they count: memory is copied, and no second is lost or counted twice."""

from __future__ import annotations

from tests.e2e.support.messages import parse
from tests.e2e.support.objects import ZONE

from .support import OTHER, Guests, gaps, times_of


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


def test_without_a_selector_a_second_migration_is_free_again(guests: Guests) -> None:
    guests.start("web")
    source = guests.node_of("web")
    assert parse(guests.denial("web", {ZONE: "zone-3"})).code == "no-eligible-node"
    guests.wait_migrated(guests.migrate("web", {ZONE: zone_of(OTHER[source])}))
    assert guests.node_of("web") == OTHER[source]
    guests.wait_alone("web")

    guests.wait_migrated(guests.migrate("web"))

    assert guests.node_of("web") == source
    assert ZONE not in guests.launcher("web")["spec"]["nodeSelector"]
    assert (gaps(guests.count_on("web")), guests.told("web").count("guest: booted")) == ([], 1)
