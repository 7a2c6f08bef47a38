"""The findings of doctor about the distribution of VMs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests import golden_files
from tests.doctor.world import DoctorWorld, codes
from webhook import names
from webhook.doctor.checks.spread import check
from webhook.doctor.support.finding import Finding
from webhook.k8s.client.resources import NAMESPACES, NODES_WITH_IMAGES, PODS


def piled(world: DoctorWorld, nodes: int = 6, each: int = 6, **spec: Any) -> None:
    """VMs on the half of the nodes that lists the launcher's image."""
    for number in range(nodes):
        world.vm_node(f"vm-node-{number}", lists=number % 2 == 0)
        for vm in range(each if number % 2 == 0 else 0):
            world.vm(f"vm-{number}-{vm}", f"vm-node-{number}", schedulerName="default-scheduler", **spec)


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

    findings = await world.run(check)

    whole = json.dumps(msgspec.to_builtins(findings), indent=2, sort_keys=True) + "\n"
    golden_files.check("doctor/spread.json", whole)


async def test_vms_that_pile_up_need_the_constraint(world: DoctorWorld) -> None:
    piled(world)

    findings = by_subject(await world.run(check))

    assert (findings["cure"].verdict, findings["cure"].code) == ("warning", "uneven:constraint")
    assert figures(findings["estimate"])["cheapest"] == "constraint"
    assert figures(findings["launcher image"]) == {
        "image": "registry.example/kubevirt/virt-launcher:v1",
        "nodes": 6,
        "listing": 3,
        "withoutItAndFull": 3,
        "points": 18,
    }
    assert figures(findings["VMs"])["vmsPerNode"] == [{"vms": 0, "nodes": 3}, {"vms": 6, "nodes": 3}]
    assert figures(findings["NodeResourcesBalancedAllocation"])["biasedNodes"] == 6
    assert "namespaces" not in findings, "one namespace has the figures of all"


async def test_where_the_settings_say_so_already_only_old_vms_are_left(world: DoctorWorld) -> None:
    piled(world)
    world.namespace(
        "demo",
        labels={names.policy_label(names.SCHEDULING): "enforce"},
        annotations={names.SPREAD_ANNOTATION: "hostname"},
    )

    finding = by_subject(await world.run(check))["cure"]

    assert (finding.verdict, finding.code) == ("warning", "uneven:restart")


async def test_even_vms_need_nothing(world: DoctorWorld) -> None:
    for number in range(6):
        world.vm_node(f"vm-node-{number}")
        world.vm(f"vm-{number}", f"vm-node-{number}")

    findings = await world.run(check)

    assert codes(findings, "warning") == []
    assert by_subject(findings)["cure"].code == "even"


async def test_an_older_scheduler_has_no_bias(world: DoctorWorld) -> None:
    piled(world)
    world.server.answer("/version", lambda _: web.json_response({"gitVersion": "v1.34.4"}), times=9)

    assert figures(by_subject(await world.run(check))["NodeResourcesBalancedAllocation"])["biasedNodes"] == 0


@pytest.mark.parametrize(
    "answer",
    [
        web.json_response({"gitVersion": "devel"}),
        web.json_response({}),
        web.json_response([]),
        web.Response(text="{", status=200),
        web.json_response({"gitVersion": "v1.36.3"}, status=500),
    ],
)
async def test_a_version_that_is_not_codes(world: DoctorWorld, answer: web.Response) -> None:
    piled(world)
    # The first request reads the date.
    world.server.answer("/version", lambda _: web.Response(status=answer.status, body=answer.body), times=9)

    assert codes(await world.run(check), "unknown") == ["VMs: unreadable"]


@pytest.mark.parametrize("spread", ["zone", "both"])
async def test_zones_that_nodes_do_not_have(world: DoctorWorld, spread: str) -> None:
    world.vm_node("with", zone="a")
    world.vm_node("without")
    world.namespace(
        "demo",
        labels={names.policy_label(names.SCHEDULING): "enforce"},
        annotations={names.SPREAD_ANNOTATION: spread},
    )

    findings = await world.run(check)

    assert codes(findings, "warning") == ["zones: zones-missing"]
    assert by_subject(findings)["zones"].found.startswith("1/2 nodes ")


async def test_no_node_takes_vms(world: DoctorWorld) -> None:
    (finding,) = await world.run(check)

    assert (finding.code, finding.verdict) == ("no-nodes", "ok")


async def test_no_vm_runs(world: DoctorWorld) -> None:
    world.vm_node("vm-node-0")

    assert set(by_subject(await world.run(check))) == {"NodeResourcesBalancedAllocation", "VMs"}


@pytest.mark.parametrize("resource", [NODES_WITH_IMAGES, PODS, NAMESPACES])
async def test_what_may_not_be_listed(world: DoctorWorld, resource: Any) -> None:
    world.forbid(resource)

    (finding,) = await world.run(check)

    assert (finding.verdict, finding.code) == ("unknown", "unreadable")
    assert finding.found.endswith(f"grant list on {resource.plural}")


async def test_output_is_bounded_and_sorted(world: DoctorWorld) -> None:
    world.vm_node("vm-node-0", cpus=192)
    for number in range(60):
        for vm in range(1 + number % 3):
            world.vm(f"vm-{number}-{vm}", "vm-node-0", f"tenant-{number:02}")

    finding = by_subject(await world.run(check))["namespaces"]

    largest = figures(finding)["largest"]
    assert (figures(finding)["namespaces"], len(largest)) == (60, 50)
    assert [one["namespace"] for one in largest[:3]] == ["tenant-02", "tenant-05", "tenant-08"]
    assert len(finding.found.split("; ")) == 6
