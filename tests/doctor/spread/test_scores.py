"""Scores against those that kube-scheduler's own log shows (docs/balanced-allocation.md)."""

from __future__ import annotations

import pytest

from webhook.doctor.spread import scores
from webhook.doctor.spread.estimate import bias, count_piled
from webhook.doctor.spread.hosts import GuestDemand, Host, VmGuest

SMALL = GuestDemand.of(105, 450 * 2**20, 1)
OLD, NEW = (1, 35), (1, 36)


def host(cpus: int = 64, devices: int = 0) -> Host:
    return Host("node", 1000 * cpus, 4 * cpus * 2**30, devices)


@pytest.mark.parametrize(("version", "empty", "used"), [(OLD, 99, 99), (NEW, 74, 75)])
def test_balanced_allocation_scores_as_the_scheduler_logged(version: tuple[int, int], empty: int, used: int) -> None:
    second = host()
    second.add(SMALL)

    assert scores.balance(host(), SMALL, version) == empty
    assert scores.balance(second, SMALL, version) == used
    assert bias(host(), SMALL, version) == used - empty


def test_a_daemon_set_takes_the_bias_away() -> None:
    loaded = host()
    loaded.add(GuestDemand.of(1500, 2 * 2**30))

    assert bias(loaded, SMALL, NEW) == 0


def test_fit_is_the_free_share() -> None:
    assert scores.fit(host(), SMALL) == 99
    assert scores.fit(host(), GuestDemand.of(32_000, 128 * 2**30)) == 50
    assert scores.fit(host(), GuestDemand.of(65_000, 0)) == 50, "of CPU nothing is free"


def test_devices_count_where_the_profile_weighs_them() -> None:
    few = host(devices=110)
    few.used_devices = 54

    assert scores.fit(few, SMALL, devices_weight=2) == 74
    assert scores.fit(few, SMALL) == 99
    assert scores.fit(host(), SMALL, devices_weight=2) == 99


@pytest.mark.parametrize(
    ("cpus", "version", "profile", "number"),
    [
        # 11 is what the reproduction showed, on each node that it filled; 5 with 1.35, or without the score.
        (64, NEW, scores.STOCK, 11),
        (64, OLD, scores.STOCK, 5),
        (64, NEW, scores.STOCK._replace(balance=False), 5),
        (16, NEW, scores.STOCK, 2),
        (192, NEW, scores.STOCK, 34),
    ],
)
def test_so_many_go_to_one_node_first(
    cpus: int, version: tuple[int, int], profile: scores.Profile, number: int
) -> None:
    assert count_piled(host(cpus), SMALL, profile, version) == number


def test_a_pile_ends() -> None:
    assert count_piled(host(), GuestDemand(0, 0), scores.STOCK, NEW) == 1000


@pytest.mark.parametrize(
    ("sizes", "share", "points"),
    [
        # Two containers of an image of 600 MB, on half of the nodes and on all.
        ([600_000_000] * 2, 0.5, 27),
        ([600_000_000] * 2, 1.0, 56),
        ([1000], 1.0, 0),
        ([10**12], 1.0, 100),
        ([], 0.5, 0),
    ],
)
def test_images(sizes: list[int], share: float, points: int) -> None:
    assert scores.image_points(sizes, share) == points


def test_topology_counts_the_pods_own_namespace() -> None:
    hosts = [host(), host(), host()]
    for number, one in enumerate(hosts):
        for _ in range(number):
            one.add_guest(VmGuest("shop", "vm", SMALL))

    assert scores.topology(hosts, "shop") == [200, 66, 0], "whole numbers, as the scheduler counts"
    assert scores.topology(hosts, "lab") == [200, 200, 200]


def test_a_node_without_anything_allocatable_has_no_score() -> None:
    assert scores.fit(Host("odd", 0, 0), SMALL) == 0
    assert scores.balance(Host("odd", 0, 0), SMALL, NEW) == 75
    assert Host("odd", 0, 0).cpu_percent == Host("odd", 0, 0).memory_percent == 0
