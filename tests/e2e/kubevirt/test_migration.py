"""Added selectors beside a real KubeVirt: where its target pods run with the webhook, and where without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.support.kube import KubeError, KubeObject, eventually
from tests.e2e.support.messages import parse
from tests.e2e.support.objects import obj
from tests.e2e.support.webhook_server import DOMAIN, WebhookServer
from tests.e2e.support.workloads import MIGRATIONS, VMIS

from .conftest import SETTINGS
from .control_plane import RunningKubeVirt
from .place import DEFAULTS, IN_A, POLICIES, Place, make_place

pytestmark = pytest.mark.kubevirt

# What virt-controller tells another cluster of a VM's node (getNodeSelectorsFromNodeName).
SOURCE_LABELS = ("host-model-cpu.", "host-model-required-features.", "cpu-vendor.")


def test_an_added_selector_that_contradicts_the_vm_is_refused_by_both_ways_in(place: Place) -> None:
    place.vm(template=IN_A)
    place.running()

    with pytest.raises(KubeError, match=r"zone=b.* zone=a.* \[selector-conflict\]"):
        place.migrate(zone="b")
    said = place.real.call(place.namespace, "web", "migrate", {"addedNodeSelector": {"zone": "b"}})

    assert "[selector-conflict]" in said
    assert place.admin.list(MIGRATIONS, place.namespace) == []


def test_alone_kubevirt_migrates_it_elsewhere(apart: Place) -> None:
    apart.vm(template=IN_A, instancetype={"name": "u1.small"})
    apart.running()

    assert apart.ended(apart.migrate(zone="b")) == "Succeeded"

    assert apart.real.nodes.zone(apart.running()["status"]["nodeName"]) == "a"


def test_where_a_contradiction_is_only_warned_of_the_vm_goes_nowhere_instead_of_elsewhere(
    real: RunningKubeVirt, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "migration": {"collision": "warn", "noEligibleNode": "warn"}}
    with WebhookServer(real.plane, tmp_path, "warning", settings) as warning:
        assert warning.validates
        place = make_place(real, warning.labels("enforce", [f"{DOMAIN}/{policy}" for policy in POLICIES]), DEFAULTS)
        place.vm(template=IN_A)
        node = place.running()["status"]["nodeName"]

        migration = place.migrate(zone="b")

        assert parse(migration.warnings[0]).code == "selector-conflict"
        assert "zone=b" in migration.warnings[0]
        pod = eventually(place.unschedulable, what="the scheduler to find no node")
        assert pod["spec"]["nodeSelector"]["zone"] == "a"
        assert place.running()["status"]["nodeName"] == node
        place.admin.delete(MIGRATIONS, migration["metadata"]["name"], place.namespace)


def test_an_added_selector_is_followed_once(place: Place) -> None:
    place.vm()
    first = place.running()["status"]["nodeName"]
    other = "b" if place.real.nodes.zone(first) == "a" else "a"

    assert place.ended(place.migrate(zone=other)) == "Succeeded"

    pod = place.launcher()
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    added = {"key": "zone", "operator": "In", "values": [other]}
    assert place.real.nodes.zone(pod["spec"]["nodeName"]) == other
    assert all(added in term["matchExpressions"] for term in terms["nodeSelectorTerms"])
    assert place.ended(place.migrate()) == "Succeeded"
    assert "zone" not in place.launcher()["spec"]["nodeSelector"]


def test_explain_names_the_nodes_that_take_a_vm_from_elsewhere(place: Place) -> None:
    place.real.configure(developerConfiguration={"featureGates": ["Snapshot", "DecentralizedLiveMigration"]})
    eventually(lambda: place.vm(run="WaitAsReceiver"), what="virt-api to take VMs that are received")
    is_waiting = lambda: place.get(VMIS)["status"].get("phase") == "WaitingForSync"
    eventually(is_waiting, what="the VMI to wait for its source")
    spec = {"vmiName": "web", "receive": {"migrationID": "one"}, "addedNodeSelector": {"zone": "b"}}
    _come_from(place, "node-3")
    answer = place.explained("--to", "zone=b")

    place.make(obj("VirtualMachineInstanceMigration", "receive", spec=spec))

    pod = eventually(
        lambda: next((pod for pod in place.launchers() if pod["spec"].get("nodeName")), None), what="a pod"
    )

    assert answer["eligible"]["names"] == [pod["spec"]["nodeName"]] == ["node-4"]
    assert (answer["obstacles"], answer["gaps"]) == ([], [])


def _come_from(place: Place, node: str) -> None:
    """The status that the sending side's KubeVirt reports of a VM that runs on a node of that name."""
    labels = place.admin.get("v1/nodes", node)["metadata"]["labels"]
    selectors = {key: value for key, value in labels.items() if key.startswith(SOURCE_LABELS)}
    source = {"node": node, "nodeSelectors": selectors}
    source |= {
        "pod": "virt-launcher-web-1",
        "selinuxContext": "none",
        "migrationUID": "1",
        "syncAddress": "10.0.0.1:9185",
    }

    def write() -> KubeObject:
        vmi = place.get(VMIS)
        vmi["status"].setdefault("migrationState", {})["sourceState"] = source
        return place.real.plane.kubevirt_controller.replace(VMIS, vmi)

    eventually(write, what="the source's state to be written")
