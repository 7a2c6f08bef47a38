"""The real kube-scheduler with the shipped configurations, and with the mistakes that lint finds."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.install.schedulers.configurations import configuration, profile
from webhook.cli.data import directory
from webhook.install.schedulers.render import Variant
from webhook.install.schedulers.render import configuration as configuration_for

from .conftest import OwnPlane
from .support.configured import create, end, node_of, start, tried
from .support.kube import Json, eventually
from .support.objects import launcher_pod, make_node
from .support.plane import ControlPlane
from .support.processes import StartError
from .support.workloads import PODS

NODES = 4
EACH = 3
TAINT = {"key": "drained", "value": "yes", "effect": "NoSchedule"}
SIZE = {"cpu": "16", "memory": "64Gi", "devices.kubevirt.io/kvm": "110"}


@pytest.fixture(scope="module")
def plane(module_plane: OwnPlane) -> ControlPlane:
    started = module_plane()
    for number in range(NODES):
        make_node(started.admin, f"node-{number}", allocatable=SIZE)
    return started


@pytest.mark.parametrize(("variant", "nodes"), [("spread", NODES), ("pack", 1)])
def test_the_shipped_configurations_do_what_they_are_named_after(plane: ControlPlane, variant: str, nodes: int) -> None:
    text = (directory("manifests") / "scheduler" / f"{variant}.yaml").read_text()
    start(plane, yaml.safe_load(text))
    try:
        placed: Counter[str] = Counter()
        for number in range(NODES * EACH):
            name = f"{variant}-{number}"
            create(plane, name)
            placed[eventually(partial(node_of, plane, name), what=f"a node for {name}")] += 1
        assert len(placed) == nodes
        assert max(placed.values()) - min(placed.values()) <= 1
    finally:
        end(plane)


def test_soft_taints_of_the_descheduler_steer_vms_away_even_from_an_empty_node(plane: ControlPlane) -> None:
    start(plane, yaml.safe_load(configuration_for(directory("manifests"), "spread")))
    nodes = [node["metadata"]["name"] for node in plane.admin.list("v1/nodes")]
    soft = {"key": "nodeutilization.descheduler.kubernetes.io/overutilized", "effect": "PreferNoSchedule"}
    try:
        plane.admin.patch("v1/nodes", nodes[0], {"spec": {"taints": [soft]}})
        placed: Counter[str | None] = Counter()
        for number in range(NODES * EACH):
            create(plane, f"steered-{number}")
            placed[eventually(partial(node_of, plane, f"steered-{number}"), what="a node")] += 1
        assert placed.keys() == set(nodes[1:])
    finally:
        plane.admin.patch("v1/nodes", nodes[0], {"spec": {"taints": None}})
        end(plane)


@pytest.mark.parametrize("variant", ["spread", "pack"])
def test_in_the_clusters_own_scheduler_both_profiles_place_pods(plane: ControlPlane, variant: Variant) -> None:
    written = yaml.safe_load(configuration_for(directory("manifests"), variant, "cluster"))
    # The path where kubeadm keeps its own, in the pod of the cluster's scheduler.
    assert written.pop("clientConnection")["kubeconfig"]
    start(plane, written)
    try:
        create(plane, "vm")
        plane.admin.create(PODS, launcher_pod("other"), "default")
        for name in ("vm", "other"):
            assert eventually(partial(node_of, plane, name), what=f"a node for {name}")
    finally:
        end(plane)


@pytest.mark.parametrize(
    ("code", "written"),
    [
        ("stale-api-version", configuration(apiVersion="kubescheduler.config.k8s.io/v1beta3")),
        ("duplicate-profile", configuration(profile(), profile())),
    ],
)
def test_the_scheduler_does_not_start(plane: ControlPlane, code: str, written: Json) -> None:
    with pytest.raises(StartError):
        start(plane, tried(written, code))


def test_without_its_filter_vms_go_to_tainted_nodes(plane: ControlPlane) -> None:
    nodes = [node["metadata"]["name"] for node in plane.admin.list("v1/nodes")]
    plugins: Any = {"multiPoint": {"disabled": [{"name": "TaintToleration"}, {"name": "ImageLocality"}]}}
    start(plane, tried(configuration(profile(plugins=plugins)), "filter-off"))
    try:
        for name in nodes:
            plane.admin.patch("v1/nodes", name, {"spec": {"taints": [TAINT]}})
        create(plane, "tainted")
        assert eventually(lambda: node_of(plane, "tainted"), what="a node that is tainted") in nodes
    finally:
        for name in nodes:
            plane.admin.patch("v1/nodes", name, {"spec": {"taints": None}})
        end(plane)


@pytest.mark.parametrize("ignorable", [False, True])
def test_an_extender_that_is_away_holds_up_all_pods_unless_it_is_ignorable(
    plane: ControlPlane, ignorable: bool
) -> None:
    extender = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "ignorable": ignorable, "httpTimeout": "1s"}
    written = configuration(extenders=[extender])
    start(plane, written if ignorable else tried(written, "extender-not-ignorable"))
    name = f"extended-{ignorable}".lower()
    try:
        create(plane, name)
        if ignorable:
            eventually(lambda: node_of(plane, name), what="a node without the extender")
            return

        def is_held_up() -> bool:
            conditions = plane.admin.get(PODS, name, "default").get("status", {}).get("conditions", [])
            return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)

        eventually(is_held_up, what="the scheduler to give up for want of the extender")
        assert node_of(plane, name) is None
    finally:
        end(plane)


def test_a_pod_whose_profile_is_not_there_is_looked_at_by_nobody(plane: ControlPlane) -> None:
    start(plane, tried(configuration(profile("vms")), "no-profile"))
    try:
        create(plane, "unknown")
        seen = launcher_pod("seen", scheduler="vms")
        plane.admin.create(PODS, seen, "default")
        eventually(lambda: node_of(plane, "seen"), what="a node for the pod of a profile that is there")
        pod = plane.admin.get(PODS, "unknown", "default")
        assert pod["spec"].get("nodeName") is None
        assert not pod.get("status", {}).get("conditions")
    finally:
        end(plane)


def test_the_page_of_the_scheduler_names_the_shipped_files() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "scheduler-variants.md").read_text()

    assert all(f"manifests/scheduler/{variant}.yaml" in page for variant in ("spread", "pack"))
