"""Starts, stops, pools that scale, and nodes that are lost, at random: with headroom no VM is left without a place.

``HEADROOM_OPERATIONS=1000`` takes so many for each cluster, and ``HEADROOM_SEEDS=10`` so many clusters of each kind.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.placement.headroom.operations import Operations

COUNT = int(os.environ.get("HEADROOM_OPERATIONS", "80"))
SEEDS = range(int(os.environ.get("HEADROOM_SEEDS", "2")))
KINDS: dict[str, Any] = {"alike": {}, "with rules": {"rules": True}, "large and small": {"alike": False}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_vm_is_left_without_a_place(kind: str, seed: int) -> None:
    outcome = Operations(seed, enforced=True, **KINDS[kind]).run(COUNT)
    assert outcome.down == 0, outcome
    assert outcome.losses
    assert outcome.restarts


def test_in_a_cluster_that_is_nearly_full_each_start_is_decided() -> None:
    """``HEADROOM_OPERATIONS=500`` for what the page says of it."""
    operations = Operations(0, enforced=True, nodes=20, memory="128Gi", cpu="64")
    operations.fill(0.93 if COUNT > 80 else 0.88)
    outcome = operations.run(COUNT if COUNT > 80 else 8)
    assert (outcome.unproven, outcome.down) == (0, 0), outcome


def test_without_it_some_are() -> None:
    outcomes = [Operations(seed, enforced=False).run(COUNT) for seed in range(len(SEEDS) + 2)]
    assert sum(each.down for each in outcomes) > 0, outcomes
