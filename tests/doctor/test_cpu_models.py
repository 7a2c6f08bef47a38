"""The CPU model that nodes have in common, and the VMs that cannot migrate because of theirs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook.doctor.cpu_models import check_cpu_models, newest
from webhook.k8s.resources import NODES, PODS
from webhook.placement.machines import PLACED_VMIS

MODEL, HOST, MIGRATION, FEATURE = (
    f"{each}.node.kubevirt.io/" for each in ("cpu-model", "host-model-cpu", "cpu-model-migration", "cpu-feature")
)
INTEL = ("Haswell", "Skylake-Server", "Cascadelake-Server")


def node(name: str, *models: str, host: str = "", vendor: str = "Intel", **labels: str) -> Change:
    """A node that supports some models and can receive its own host model."""
    written = {f"{MODEL}{model}": "true" for model in models}
    written |= {"kubevirt.io/schedulable": "true", "kubernetes.io/arch": "amd64"}
    written |= {f"cpu-vendor.node.kubevirt.io/{vendor}": "true"}
    if host:
        written |= {f"{HOST}{host}": "true", f"{MIGRATION}{host}": "true"}
    return put(NODES, name, metadata={"labels": written | labels})


def vmi(name: str, on: str = "a", model: str = "host-model", condition: Any = None, **cpu: Any) -> Change:
    status = {"phase": "Running", "nodeName": on, "conditions": [condition] if condition else []}
    spec = {"domain": {"cpu": {"model": model} | cpu, "devices": {}}, "architecture": "amd64"}
    return put(PLACED_VMIS, name, "shop", metadata={"uid": f"uid-{name}"}, spec=spec, status=status)


def pod(of: str, selector: dict[str, str], on: str = "a") -> Change:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": of, "uid": f"uid-{of}"}
    metadata = {"labels": {"kubevirt.io": "virt-launcher"}, "ownerReferences": [owner | {"controller": True}]}
    spec = {"nodeName": on, "nodeSelector": selector, "containers": []}
    return put(PODS, f"virt-launcher-{of}", "shop", metadata=metadata, spec=spec, status={"phase": "Running"})


ALIKE = both(node("a", *INTEL, host="Cascadelake-Server"), node("b", *INTEL, host="Cascadelake-Server"))
# The second node lacks what the first one has beyond Skylake.
OLDER = both(node("a", *INTEL, host="Cascadelake-Server"), node("b", *INTEL[:2], host="Skylake-Server"))
AMD = both(OLDER, node("c", "EPYC", host="EPYC", vendor="AMD"))
BY_KUBEVIRT = {"type": "LiveMigratable", "status": "False", "reason": "CPUModeLiveMigratable"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (both(), "ok no-nodes"),
        (ALIKE, "ok common-model"),
        (both(ALIKE, vmi("web")), "ok common-model; ok all-migrate"),
        (both(OLDER, vmi("web")), "ok common-model; warning host-model"),
        # From the older node it can go to the newer one, which does not have its model by name of its own host.
        (
            both(
                OLDER,
                node("a", *INTEL, host="Cascadelake-Server", **{f"{MIGRATION}Skylake-Server": "true"}),
                vmi("web", "b"),
            ),
            "ok common-model; ok all-migrate",
        ),
        # After its first migration the pod says what its first host was.
        (
            both(OLDER, vmi("web"), pod("web", {f"{MIGRATION}Skylake-Server": "true"})),
            "ok common-model; ok all-migrate",
        ),
        (both(ALIKE, vmi("web", model="Cascadelake-Server")), "ok common-model; ok all-migrate"),
        (both(OLDER, vmi("web", model="Cascadelake-Server")), "ok common-model; warning named-model"),
        (both(OLDER, vmi("web", model="Skylake-Server")), "ok common-model; ok all-migrate"),
        (
            both(OLDER, vmi("web", model="Haswell", features=[{"name": "avx512f", "policy": "require"}])),
            "ok common-model; warning named-model",
        ),
        (both(ALIKE, vmi("web", model="host-passthrough")), "ok common-model; ok all-migrate"),
        (both(OLDER, vmi("web", model="host-passthrough")), "ok common-model; warning host-passthrough"),
        (both(ALIKE, vmi("web", condition=BY_KUBEVIRT)), "ok common-model; warning by-kubevirt"),
        (AMD, "warning no-common-model"),
        (both(AMD, vmi("web", "c", model="EPYC")), "warning no-common-model; warning named-model"),
        (both(OLDER, vmi("web", ""), vmi("db", "gone")), "ok common-model; ok all-migrate"),
        (node("a", *INTEL), "ok common-model"),
        (both(node("a"), node("b"), vmi("web")), "ok no-labels"),
        (both(ALIKE, node("m", vendor="ARM", **{"kubernetes.io/arch": "arm64"})), "ok common-model"),
        (both(ALIKE, node("off", **{"kubevirt.io/schedulable": "false"})), "ok common-model"),
        (forbid(NODES), "unknown unreadable"),
        (both(ALIKE, vmi("web"), forbid(PODS)), "unknown unreadable"),
    ],
)
async def test_what_is_found(world: DoctorWorld, change: Change, expected: str) -> None:
    found = await world.run(check_cpu_models, change)
    assert "; ".join(f"{each.verdict} {each.code}" for each in found) == expected


async def test_a_default_that_not_all_nodes_have(world: DoctorWorld) -> None:
    for model, expected in (
        ("Cascadelake-Server", ["warning settings: default-model-not-common"]),
        ("Haswell", []),
        ("host-model", []),
    ):
        world.set("defaults", cpu_model=model)
        assert await world.problems(check_cpu_models, OLDER) == expected


async def test_who_has_the_best_default_already_restarts(world: DoctorWorld) -> None:
    world.set("defaults", cpu_model="Skylake-Server")
    (found,) = [each for each in await world.run(check_cpu_models, OLDER, vmi("web")) if each.verdict == "warning"]
    assert found.todo.startswith("restart them")


async def test_lists_are_bounded(world: DoctorWorld) -> None:
    (found,) = [
        each
        for each in await world.run(check_cpu_models, OLDER, *(vmi(f"web-{number}") for number in range(99)))
        if each.verdict == "warning"
    ]
    assert "99 VMs" in found.found
    assert "and 94 more" in found.found


def test_the_newest_model() -> None:
    assert newest(["Haswell", "Skylake-Server", "Skylake-Client", "my-model"]) == "Skylake-Server"
    assert newest(["Skylake-Server", "Skylake-Server-IBRS"]) == "Skylake-Server-IBRS"
    assert newest(["EPYC", "EPYC-Rome", "EPYC-Milan", "EPYC-IBPB"]) == "EPYC-Milan"
    assert newest(["qemu64", "kvm64", "Nehalem"]) == "Nehalem"
    assert newest(["my-model"]) == newest([]) == ""
