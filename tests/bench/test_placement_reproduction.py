"""hack/balanced_allocation.py: its arithmetic is the scheduler's, and every version that it names can be built."""

from __future__ import annotations

import pytest

from hack import balanced_allocation
from hack.controlplane import build, bundles

POD = (0.105 / 64, 450 / (256 * 1024))


def share(pods: int) -> tuple[float, float]:
    return pods * POD[0], pods * POD[1]


def test_an_empty_node_loses_a_point_to_a_used_one() -> None:
    # As logged by kube-scheduler 1.36.3 for the second of such pods.
    assert balanced_allocation.score(share(0), share(1)) == 74
    assert balanced_allocation.score(share(1), share(2)) == 75


def test_before_1_36_empty_and_used_nodes_were_equal() -> None:
    # As logged by kube-scheduler 1.34.4 and 1.35.4.
    assert balanced_allocation.balance(*share(1)) == balanced_allocation.balance(*share(2)) == 99


def test_scores_are_read_from_the_log() -> None:
    line = (
        'I1122 08:36:00.000000 1 schedule_one.go:982] "Plugin scored node for pod" pod="default/pod-002" '
        'plugin="NodeResourcesBalancedAllocation" node="node-001" score=74'
    )

    assert balanced_allocation.SCORE.findall(line) == [
        ("default/pod-002", "NodeResourcesBalancedAllocation", "node-001", "74")
    ]


@pytest.mark.parametrize("minor", bundles.older_versions())
def test_an_older_control_plane_is_pinned(minor: str) -> None:
    bundle = bundles.older_control_plane(minor)

    assert bundle.version.startswith(f"v{minor}.")
    directory = build.location({"HOME": "/h", "KUBEVIRT_WEBHOOK_CACHE": "/cache"}, bundle=bundle)
    assert (directory.parent.name, build.version_of(directory)) == ("controlplane", bundle.version)


def test_there_are_other_control_planes() -> None:
    assert bundles.older_versions() == ["1.33", "1.34", "1.35", "1.36"]
