"""Soft topology spread constraints through the real API server, and where the stock scheduler puts pods with them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import Result

from tests.policies.scheduling.test_spread import OF_HOST
from webhook import names

from .conftest import NewTenant, NewWebhook, OwnPlane
from .support import versions
from .support.kube import Json, KubeObject, eventually
from .support.objects import launcher_pod, make_node
from .support.program import command
from .support.tenant import Tenant
from .support.workloads import PODS, vm

NODES = 4
MACHINES = 3 * NODES
# On these a small VM changes no whole-number score, so that the stock scheduler piles VMs up.
LARGE = {"cpu": "64", "memory": "256Gi"}
SPREADING: Mapping[str, Any] = {"schedulers": {}, "scheduling": {"spread": "hostname"}}
OWN = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}


def placed(tenant: Tenant, count: int) -> Counter[str]:
    """How many launcher pods of a namespace are on each node, once all have one."""

    def nodes() -> list[str] | None:
        found = [pod["spec"].get("nodeName") for pod in tenant.owner.list(PODS, tenant.namespace)]
        return found if len(found) == count and all(found) else None

    return Counter(eventually(nodes, what=f"nodes for {count} pods"))


def test_doctor_says_where_vms_are_and_what_the_constraint_then_does(
    own_plane: OwnPlane, new_webhook: NewWebhook, tmp_path: Path
) -> None:
    plane = own_plane()
    image = launcher_pod("any")["spec"]["containers"][0]["image"]
    listed = {True: [image], False: [f"registry.example/other:{number}" for number in range(50)]}
    for number in range(NODES):
        images = [{"names": [name], "sizeBytes": 700_000_000} for name in listed[number < NODES // 2]]
        make_node(plane.admin, f"node-{number}", allocatable=LARGE, images=images)
    plane.start_scheduler("default")
    server = new_webhook(SPREADING, access=plane)
    without, spread = Tenant.new(server, mode=None), Tenant.new(server)
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps(SPREADING))

    def run(*arguments: str) -> Result:
        return command(plane, *arguments, f"--config={settings}", "-o", "json", check=False)

    def doctor() -> dict[str, Json]:
        report = json.loads(run("doctor").stdout)
        return {finding["subject"]: finding for finding in report["findings"] if finding["check"] == "spread"}

    for number in range(MACHINES):
        without.launch(without.start(vm(f"vm-{number}")))
    piled = placed(without, MACHINES)
    before = doctor()

    counts = Counter(piled[f"node-{number}"] for number in range(NODES))
    assert before["VMs"]["figures"]["vmsPerNode"] == [
        {"vms": vms, "nodes": nodes} for vms, nodes in sorted(counts.items())
    ]
    # Only since this score counts what a pod changes does it prefer used nodes.
    biased = before["NodeResourcesBalancedAllocation"]["figures"]["biasedNodes"]
    assert biased == (NODES if versions.BALANCE_BY_CHANGE.is_there else 0)
    shown = before["launcher image"]["figures"]
    assert (shown["image"], shown["listing"], shown["withoutItAndFull"]) == (image, NODES // 2, NODES // 2)
    # By the estimate VMs pile up as things are, and so they did.
    estimate = before["estimate"]["figures"]
    assert estimate["asNow"]["nodesWithoutVms"] > 0
    assert len(piled) < NODES
    assert (before["cure"]["verdict"], estimate["cheapest"]) == ("warning", "constraint")

    # The constraint then does what doctor reports.
    plane.admin.delete_all(PODS, without.namespace, gracePeriodSeconds="0")
    for number in range(MACHINES):
        pod = spread.launch(spread.start(vm(f"vm-{number}")))
        assert (pod["spec"]["topologySpreadConstraints"], pod.warnings) == ([OF_HOST], ())
        assert pod["metadata"]["annotations"][names.INJECTED_SPREAD_ANNOTATION] == "hostname"
    assert estimate["cures"][1]["cure"] == "constraint"
    assert estimate["cures"][1]["vmsStandardDeviation"] == 0
    assert set(placed(spread, MACHINES).values()) == {MACHINES // NODES}
    assert doctor()["cure"]["verdict"] == "ok"

    explained = run("explain", "spread", f"{spread.namespace}/vm-0")
    assert (explained.exit_code, json.loads(explained.stdout)["injected"]) == (0, [OF_HOST])
    assert run("explain", "spread", f"{without.namespace}/vm-0").exit_code == 1


def test_in_vms_they_give_way_to_what_the_owner_applies_later(new_webhook: NewWebhook, new_tenant: NewTenant) -> None:
    switched_on = {"spread": "hostname", "spreadVirtualMachines": True}
    tenant = new_tenant(server=new_webhook({"schedulers": {}, "scheduling": switched_on}))
    applied = vm("later")
    applied["metadata"]["namespace"] = tenant.namespace

    def in_template(found: KubeObject) -> Any:
        return found["spec"]["template"]["spec"]["topologySpreadConstraints"]

    assert in_template(tenant.overwrite(tenant.create(vm()), vm())) == [OF_HOST]
    assert in_template(tenant.owner.apply(applied)) == [OF_HOST]

    wanted = {**OF_HOST, "maxSkew": 5, "labelSelector": {"matchLabels": {"app": "web"}}}
    del wanted["nodeTaintsPolicy"]
    applied["spec"]["template"]["spec"]["topologySpreadConstraints"] = [wanted, OWN]
    result = tenant.owner.apply(applied)

    assert in_template(result) == [wanted, OWN]
    assert names.INJECTED_SPREAD_ANNOTATION not in result["metadata"].get("annotations", {})
    assert len(result.warnings) == 1
