"""What follows from the mistakes that lint finds, with the real kube-scheduler; more of them are in
test_scheduler_configurations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.install.schedulers.configurations import configuration, profile
from webhook.cli.data import directory

from .conftest import OwnPlane
from .support.commands import HeldLease
from .support.configured import create, end, is_untouched, place, placed, start, tried
from .support.kube import Json
from .support.objects import make_node
from .support.plane import ControlPlane
from .support.processes import StartError

HERE = Path(__file__).parent
NODES = 4
SIZE = {"cpu": "16", "memory": "64Gi", "devices.kubevirt.io/kvm": "110"}
CLUSTERS = {"profiles": [{"schedulerName": "default-scheduler"}]}
LAUNCHER = {"names": ["registry.example/kubevirt/virt-launcher:v1"], "sizeBytes": 600_000_000}


@pytest.fixture(scope="module")
def plane(module_plane: OwnPlane) -> ControlPlane:
    started = module_plane()
    for number in range(NODES):
        make_node(started.admin, f"node-{number}", allocatable=SIZE)
    return started


def test_each_mistake_is_tried_with_the_real_kube_scheduler() -> None:
    page = (directory("manifests").parent / "docs" / "schedulers.md").read_text()
    section = page.partition("## Check a scheduler configuration")[2].partition("\n## ")[0]
    codes = set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE))
    tests = "".join((HERE / f"test_scheduler_{name}.py").read_text() for name in ("configurations", "traps", "lint"))

    assert codes
    assert {code for code in codes if f'"{code}"' not in tests} == set()


def test_profiles_with_different_queues_do_not_start(plane: ControlPlane) -> None:
    other = {"queueSort": {"enabled": [{"name": "Other"}], "disabled": [{"name": "*"}]}}
    written = tried(configuration(profile(), profile("other", plugins=other)), "differing-queue-sort")
    with pytest.raises(StartError, match=r"queueSort.*must be the same for all profiles"):
        start(plane, written)


def test_without_the_default_profile_pods_that_name_no_scheduler_wait(plane: ControlPlane) -> None:
    start(plane, tried(configuration(profile()), "default-profile-missing", is_the_clusters=True))
    try:
        create(plane, "named-none", scheduler=None)
        create(plane, "vm")
        placed(plane, "vm")
        assert is_untouched(plane, "named-none")
    finally:
        end(plane)


@pytest.fixture
def two(plane: ControlPlane) -> Iterator[list[str]]:
    """The names of two schedulers that a test starts."""
    names = ["one", "two"]
    yield names
    end(plane, *names)


def both_place(plane: ControlPlane, names: list[str], scheduler: str | None) -> bool:
    """Whether each of two schedulers places pods while the other one is frozen, so that neither waits for a Lease."""
    for number, frozen in enumerate(names):
        with ExitStack() as thawing:
            process = plane.scheduler(frozen)
            process.pause()
            thawing.callback(process.resume)
            create(plane, f"pod-{number}", scheduler=scheduler)
            placed(plane, f"pod-{number}")
    return True


def test_a_second_default_profile_places_the_pods_of_the_first(plane: ControlPlane, two: list[str]) -> None:
    start(plane, CLUSTERS, two[0])
    start(plane, tried(configuration(profile(), profile("default-scheduler")), "default-profile-twice"), two[1])

    assert both_place(plane, two, None)


def test_without_leader_election_all_replicas_place_pods(plane: ControlPlane, two: list[str]) -> None:
    written = tried(configuration(leaderElection={"leaderElect": False}), "no-leader-election")
    for name in two:
        start(plane, written, name)

    assert both_place(plane, two, "kubevirt")
    assert plane.admin.list("coordination.k8s.io/v1/leases", "kubevirt-scheduler") == []


def test_with_the_clusters_lease_a_second_scheduler_places_nothing_or_the_cluster_does_not(
    plane: ControlPlane, two: list[str]
) -> None:
    lease = HeldLease("kube-system", "kube-scheduler", seconds=3)
    written = tried(configuration(leaderElection={"leaderElect": True}), "lease-clash")
    plane.start_scheduler(two[0], CLUSTERS, lease=lease)
    plane.start_scheduler(two[1], {"profiles": written["profiles"]}, lease=lease, wait=False)
    create(plane, "vm")
    create(plane, "other", scheduler=None)
    placed(plane, "other")
    assert is_untouched(plane, "vm")

    plane.scheduler(two[0]).kill()
    placed(plane, "vm")
    plane.scheduler(two[0]).start()
    create(plane, "another", scheduler=None)
    create(plane, "vm-again")
    placed(plane, "vm-again")
    assert is_untouched(plane, "another")


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/os", "labelSelector": {"matchLabels": {"apart": "yes"}}}
        ]
    }
}
FILTERS: dict[str, Json] = {
    # The only topology is taken by the first pod.
    "InterPodAffinity": {"affinity": APART, "labels": {"apart": "yes"}},
    "NodeAffinity": {"nodeSelector": {"no-node": "has-this"}},
    "NodeResourcesFit": {"requests": {"cpu": "1000"}},
    "NodeUnschedulable": {},
}


@pytest.mark.parametrize("plugin", FILTERS)
def test_without_a_filter_vms_go_where_they_must_not(plane: ControlPlane, plugin: str) -> None:
    plugins: Any = {"multiPoint": {"disabled": [{"name": plugin}, {"name": "ImageLocality"}]}}
    start(plane, tried(configuration(profile(plugins=plugins)), "filter-off"))
    names = [node["metadata"]["name"] for node in plane.admin.list("v1/nodes")]
    try:
        for name in names:
            plane.admin.patch("v1/nodes", name, {"spec": {"unschedulable": plugin == "NodeUnschedulable"}})
        assert place(plane, 2, **FILTERS[plugin]).total() == 2
    finally:
        for name in names:
            plane.admin.patch("v1/nodes", name, {"spec": {"unschedulable": None}})
        end(plane)


@pytest.mark.parametrize("is_on", [True, False])
def test_image_locality_piles_vms_up_on_the_node_that_lists_the_launcher(plane: ControlPlane, is_on: bool) -> None:
    plane.admin.patch("v1/nodes", "node-2", {"status": {"images": [LAUNCHER]}}, subresource="status")
    written = configuration(profile(plugins={})) if is_on else configuration()
    start(plane, tried(written, "image-locality-on") if is_on else written)
    try:
        found = place(plane, NODES)
        assert (found["node-2"] == NODES) is is_on
    finally:
        plane.admin.patch("v1/nodes", "node-2", {"status": {"images": []}}, subresource="status")
        end(plane)


@pytest.mark.parametrize("lost", [True, False])
def test_without_default_constraints_the_pods_of_a_service_are_not_spread(plane: ControlPlane, lost: bool) -> None:
    selector = {"app": "web"}
    service = {"metadata": {"name": "web"}, "spec": {"selector": selector, "ports": [{"port": 80}]}}
    plane.admin.create("v1/services", {"apiVersion": "v1", "kind": "Service", **service}, "default")
    args = {"defaultingType": "List", "defaultConstraints": []} if lost else {"defaultingType": "System"}
    spread = {
        "name": "PodTopologySpread",
        "args": {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "PodTopologySpreadArgs", **args},
    }
    written = configuration(profile(pluginConfig=[spread]))
    start(plane, tried(written, "default-constraints-lost") if lost else written)
    try:
        # All but one node are half full.
        for number in range(1, NODES):
            create(plane, f"large-{number}", requests={"cpu": "8", "memory": "32Gi"})
            placed(plane, f"large-{number}")
        found = place(plane, 6, labels=selector)
        assert (len(found) == 1) is lost
    finally:
        end(plane)
        plane.admin.delete("v1/services", "web", "default")


@pytest.mark.parametrize("percentage", [1, 100])
def test_if_few_nodes_are_scored_vms_miss_the_emptiest_node(own_plane: OwnPlane, percentage: int) -> None:
    """At least 100 nodes are always looked at."""
    plane = own_plane()
    make_node(plane.admin, "empty", allocatable={"cpu": "1k", "memory": "4Ti"})
    for number in range(220):
        make_node(plane.admin, f"node-{number}", allocatable=SIZE)
    written = configuration(percentageOfNodesToScore=percentage)
    start(plane, tried(written, "few-nodes-scored") if percentage == 1 else written)
    found = place(plane, 8, requests={"cpu": "2", "memory": "8Gi"})

    assert (found["empty"] == 8) is (percentage == 100)
