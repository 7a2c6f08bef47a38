"""Where VMs run, and the changes that would spread them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests import golden_files
from tests.builders import Json
from tests.doctor.world import LAUNCHER_IMAGE, DoctorWorld, forbid, measured_cluster
from tests.install.schedulers.configurations import configuration
from webhook import names
from webhook.doctor.estimate import Conditions, Inventory, estimate, take
from webhook.doctor.spread import check_spread, estimate_cures, histogram
from webhook.findings import Finding, Measurement
from webhook.k8s.resources import CONFIG_MAPS, NAMESPACES, NODES_WITH_IMAGES, PODS
from webhook.k8s.types.core import Node, Pod
from webhook.kubevirt.hyperconverged import HyperConverged

pytestmark = pytest.mark.repeats
VERSION = (1, 36)


def piled(world: DoctorWorld, nodes: int = 6, each: int = 6, **spec: Any) -> None:
    """VMs on the half of the nodes that lists the launcher's image."""
    for number in range(nodes):
        world.vm_node(f"vm-node-{number}", lists=number % 2 == 0)
        for vm in range(each if number % 2 == 0 else 0):
            world.vm(f"vm-{number}-{vm}", f"vm-node-{number}", schedulerName="default-scheduler", **spec)


def demo(world: DoctorWorld, spread: str) -> None:
    labels = {names.policy_label(names.SCHEDULING): "enforce"}
    world.namespace("demo", labels=labels, annotations={names.SPREAD_ANNOTATION: spread})


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


def figures(finding: Finding) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(finding)["figures"]
    return found


@pytest.mark.golden
async def test_the_json_form_is_as_the_golden_file_says(world: DoctorWorld) -> None:
    piled(world)
    for number in range(4):
        world.vm(f"lab-{number}", "vm-node-2", "lab", schedulerName="default-scheduler")

    findings = await world.run(check_spread)

    whole = json.dumps(msgspec.to_builtins(findings), indent=2, sort_keys=True) + "\n"
    golden_files.check("doctor/spread.json", whole)


async def test_where_the_settings_say_so_already_only_old_vms_are_left(world: DoctorWorld) -> None:
    piled(world)
    demo(world, "hostname")

    finding = by_subject(await world.run(check_spread))["cure"]

    assert (finding.verdict, finding.code) == ("warning", "uneven:restart")


async def test_even_vms_need_nothing(world: DoctorWorld) -> None:
    for number in range(6):
        world.vm_node(f"vm-node-{number}")
        world.vm(f"vm-{number}", f"vm-node-{number}")

    assert await world.problems(check_spread) == []
    assert by_subject(world.found)["cure"].code == "even"
    assert "namespaces" not in by_subject(world.found), "one namespace has the figures of all"


async def test_an_older_scheduler_has_no_bias(world: DoctorWorld) -> None:
    piled(world)
    world.server.answer("/version", lambda _: web.json_response({"gitVersion": "v1.34.4"}), times=9)
    assert figures(by_subject(await world.run(check_spread))["NodeResourcesBalancedAllocation"])["biasedNodes"] == 0


@pytest.mark.parametrize(
    "answer",
    [
        *(web.json_response({"gitVersion": "devel"}), web.json_response({}), web.json_response([])),
        *(web.Response(text="{", status=200), web.json_response({"gitVersion": "v1.36.3"}, status=500)),
    ],
)
async def test_a_version_that_is_not_codes(world: DoctorWorld, answer: web.Response) -> None:
    piled(world)
    # The first request reads the date.
    world.server.answer("/version", lambda _: web.Response(status=answer.status, body=answer.body), times=9)
    assert await world.problems(check_spread) == ["unknown VMs: unreadable"]


@pytest.mark.parametrize("spread", ["zone", "both"])
async def test_zones_that_nodes_do_not_have(world: DoctorWorld, spread: str) -> None:
    world.vm_node("with", zone="a")
    world.vm_node("without")
    demo(world, spread)
    assert await world.problems(check_spread) == ["warning zones: zones-missing"]
    assert by_subject(world.found)["zones"].found.startswith("1/2 nodes ")


async def test_nodes_that_kubevirts_configuration_excludes_take_no_vms(world: DoctorWorld) -> None:
    """They are not spread over, and need no zone."""
    demo(world, "both")
    world.vm_node("a", zone="1")
    world.vm_node("b")
    assert "zones-missing" in {each.code for each in await world.run(check_spread)}
    world.kubevirt(developerConfiguration={"nodeSelectors": {"topology.kubernetes.io/zone": "1"}})
    assert "zones-missing" not in {each.code for each in await world.run(check_spread)}
    world.kubevirt(developerConfiguration={"nodeSelectors": {"pool": "vms"}})
    (found,) = await world.run(check_spread)
    assert (found.code, "pool=vms" in found.found) == ("no-nodes", True)


async def test_without_nodes_or_vms(world: DoctorWorld) -> None:
    assert await world.told(check_spread) == ["ok nodes: no-nodes"]
    world.vm_node("vm-node-0")
    assert [one.rpartition(": ")[2] for one in await world.told(check_spread)] == ["balanced-allocation", "no-vms"]


@pytest.mark.parametrize("resource", [NODES_WITH_IMAGES, PODS, NAMESPACES])
async def test_what_may_not_be_listed(world: DoctorWorld, resource: Any) -> None:
    assert await world.told(check_spread, forbid(resource)) == ["unknown VMs: unreadable"]
    where = " in all namespaces" if resource.namespaced else ""
    assert world.found[0].found.endswith(f"grant list on {resource.plural}{where}")


@pytest.mark.control("estimates-of-large-clusters")
async def test_output_is_bounded_and_sorted(world: DoctorWorld) -> None:
    world.vm_node("vm-node-0", cpus=192)
    for number in range(60):
        for vm in range(1 + number % 3):
            world.vm(f"vm-{number}-{vm}", "vm-node-0", f"tenant-{number:02}")

    finding = by_subject(await world.run(check_spread))["namespaces"]

    largest = figures(finding)["largest"]
    assert (figures(finding)["namespaces"], len(largest)) == (60, 50)
    assert [one["namespace"] for one in largest[:3]] == ["tenant-02", "tenant-05", "tenant-08"]
    assert len(finding.found.split("; ")) == 6


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([5, 5, 5], "5 on 3 nodes"),
        ([0, 0, 10, 9], "0 on 2 nodes, 9 on 1, 10 on 1"),
        ([*range(9)], "0 to 1 on 2 nodes, 2 to 3 on 2, 4 to 5 on 2, 6 to 7 on 2, 8 to 9 on 1"),
        ([0, 99.9, 1000], "0 on 1 node, 99 on 1, 1000 on 1"),
    ],
)
def test_values_in_order(values: list[float], text: str) -> None:
    assert histogram(values) == text
    assert histogram([1.5, 1.9], "%") == "1% on 2 nodes"


@pytest.mark.control("estimates-of-large-clusters")
@given(st.lists(st.floats(0, 1e6) | st.integers(0, 10), min_size=1))
def test_it_is_bounded_and_counts_every_node(values: list[float]) -> None:
    bars = histogram(values).split(", ")
    assert len(bars) <= 8
    assert sum(int(bar.rpartition(" on ")[2].split()[0]) for bar in bars) == len(values)


def inventory(key: str, *, is_spread: bool = False) -> Inventory:
    """A row of the benchmark, with its VMs where the stock scheduler puts them."""
    found = measured_cluster(key)
    counts = estimate(found, Conditions(VERSION)).counts
    places = [name for name, count in zip(found.open, counts, strict=True) for _ in range(count)]
    guests = [msgspec.structs.replace(guest, node=at) for guest, at in zip(found.guests, places, strict=True)]
    if is_spread:
        guests = [msgspec.structs.replace(each, pod=each.spread_over_nodes()) for each in guests]
    return found._replace(guests=tuple(guests))


@pytest.mark.parametrize(
    ("key", "measure", "cheapest"),
    [
        *(("16cpu-daemonsets-100", "vms", "nodeStatusMaxImages"), ("64cpu-daemonsets-100", "vms", "constraint")),
        *(("64cpu-1000", "vms", "nodeStatusMaxImages"), ("medium-300", "vms", "nodeStatusMaxImages")),
        *(("64cpu-daemonsets-300", "vms", "constraint"), ("20-namespaces-300", "vms", "constraintAndProfileByDevices")),
        ("mixed-300", "memory", "nodeStatusMaxImages"),
    ],
)
def test_the_cheapest_that_is_enough(key: str, measure: str, cheapest: str | None) -> None:
    found = estimate_cures(inventory(key), VERSION)
    assert found.measure == measure
    assert (found.cheapest.key if found.cheapest else None) == cheapest


async def test_parts_of_profiles_that_are_not_evaluated_are_named(world: DoctorWorld) -> None:
    """They send pods elsewhere than the estimate does."""
    plugins = {"score": {"enabled": [{"name": "TargetLoadPacking", "weight": 5}]}}
    written = configuration({"schedulerName": "kubevirt", "plugins": plugins}) | {
        "extenders": [{"prioritizeVerb": "score", "urlPrefix": "https://x"}]
    }
    for number in range(2):
        world.vm_node(f"vm-node-{number}")
    world.vm("web", "vm-node-0")
    found = {each.code: each for each in await world.run(check_spread)}
    assert isinstance(found["estimate"], Measurement)
    assert found["estimate"].figures["notEvaluated"] == []
    place = "kubevirt-scheduler"
    world.server.put(CONFIG_MAPS, place, place, data={"config.yaml": json.dumps(written)})
    found = {each.code: each for each in await world.run(check_spread)}
    assert isinstance(found["estimate"], Measurement)
    assert found["estimate"].figures["notEvaluated"] == ["TargetLoadPacking", "extenders"]


def test_kubevirt_is_configured_where_its_owner_reads_it() -> None:
    owner = HyperConverged("openshift-cnv", "hco", "v1")
    todos = [estimate_cures(inventory("20-namespaces-300"), VERSION, each).cures[-1].todo for each in (None, owner)]
    assert todos[0].endswith("set virtualMachineInstancesPerNode: 110 in the KubeVirt CR")
    assert "annotate HyperConverged openshift-cnv/hco with kubevirt.kubevirt.io/jsonpatch=" in todos[1]


def test_cures_come_cheapest_first_and_only_where_they_can_help() -> None:
    some, all_ = (
        [cure.key for cure in estimate_cures(inventory(key), VERSION).cures]
        for key in ("20-namespaces-300", "all-images-100")
    )
    assert all_ == ["constraint", "profile", "constraintAndProfile"]
    assert some == ["nodeStatusMaxImages", *all_, "constraintAndProfileByDevices"]


def test_where_new_vms_get_the_constraint_only_those_that_run_are_left() -> None:
    found = estimate_cures(inventory("64cpu-daemonsets-100", is_spread=True), VERSION)
    assert found.cheapest and found.cheapest.key == "restart"


def test_no_change_is_the_least_for_even_vms() -> None:
    found = inventory("64cpu-daemonsets-100")
    even = [msgspec.structs.replace(each, node=found.open[at % 20]) for at, each in enumerate(found.guests)]
    assert estimate_cures(found._replace(guests=tuple(even)), VERSION).cheapest is None


def test_a_cure_that_leaves_more_vms_without_room_is_none() -> None:
    # Ten VMs of half of a node's memory and many small ones, on ten nodes: spread evenly, they keep the large ones out.
    nodes, pods = [], []
    for number in range(10):
        listed = [{"names": [LAUNCHER_IMAGE], "sizeBytes": 600_000_000}] if number < 5 else []
        labels = {"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": f"node-{number}"}
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "devices.kubevirt.io/kvm": "1k"}
        status = {"allocatable": allocatable, "images": listed}
        nodes.append({"metadata": {"name": f"node-{number}", "labels": labels}, "status": status})
    for name, count, cpu, memory, first in (("small", 20, "105m", "8Gi", 0), ("large", 8, "1", "256Gi", 2)):
        for number in range(count):
            at = f"node-{number % 2 if first == 0 else number + 2}"
            pods.append(launcher(f"{name}-{number}", at, cpu, memory, created=1 + first))
    found = take([msgspec.convert(each, Node) for each in nodes], [msgspec.convert(each, Pod) for each in pods])
    cures = estimate_cures(found, VERSION)

    assert any(cure.spread.unplaced > cures.now.unplaced for cure in cures.cures)
    assert cures.cheapest is None or cures.cheapest.spread.unplaced <= cures.now.unplaced


def launcher(name: str, node: str, cpu: str, memory: str, created: int) -> Json:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "controller": True, "uid": name}
    labels = {"kubevirt.io": "virt-launcher"}
    requests = {"cpu": cpu, "memory": memory, "devices.kubevirt.io/kvm": "1"}
    containers = [{"image": LAUNCHER_IMAGE, "resources": {"requests": requests}}] * 2
    containers[1] = {"image": LAUNCHER_IMAGE, "resources": {"requests": {"cpu": "0", "memory": "0"}}}
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": f"2026-01-01T00:00:0{created}Z"}
    return {
        "metadata": {**metadata, "labels": labels, "ownerReferences": [owner | {"name": name}]},
        "spec": {"nodeName": node, "containers": containers},
        "status": {"phase": "Running"},
    }
