"""Drains and the descheduler beside a real KubeVirt: which evictions reach virt-api, which VMs it marks, and that what
`explain drain` foretells of random VMs is what evicting all of them does.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.e2e.support.foreign_webhook import eviction
from tests.e2e.support.kube import Json, KubeError, KubeObject, denial, eventually
from tests.e2e.support.messages import parse
from tests.e2e.support.objects import is_unschedulable, obj
from tests.e2e.support.webhook_server import TIMEOUT_SECONDS, WebhookServer
from tests.e2e.support.workloads import PODS, VMIS, VMS
from webhook.cli.explain import from_cluster
from webhook.forecast.drain import plan
from webhook.forecast.report import BLOCKS, MOVES, SHUTS_DOWN, VmPlan
from webhook.k8s.client.identity import Kubeconfig

from .control_plane import ZONES
from .place import IN_A, Place

pytestmark = pytest.mark.kubevirt

DESCHEDULER = {"requested-by": "sigs.k8s.io/descheduler"}


def test_a_drain_goes_on_while_we_are_a_black_hole(place: Place, server: WebhookServer) -> None:
    place.vm(template=IN_A)
    first = place.running()["status"]["nodeName"]
    server.freeze()
    try:
        began = time.monotonic()
        rejection = place.evict(place.launcher())
        lasted = time.monotonic() - began

        assert "Eviction triggered evacuation" in rejection.message
        assert lasted < TIMEOUT_SECONDS, "we were asked, and waited for"
        eventually(lambda: place.get(VMIS)["status"]["nodeName"] != first, what="the VM to leave its node")
    finally:
        server.thaw()


def test_the_descheduler_is_told_when_a_vm_has_nowhere_to_go(place: Place) -> None:
    place.vm(template={**IN_A, "nodeSelector": {"kubernetes.io/hostname": "node-1"}})
    place.running()

    vetoed = place.evict(place.launcher(), DESCHEDULER)
    assert vetoed.status == 429
    assert parse(vetoed.message).code == "no-eligible-node"
    assert "evacuationNodeName" not in place.get(VMIS)["status"]

    drained = place.evict(place.launcher())
    assert "Eviction triggered evacuation" in drained.message


def test_the_descheduler_is_told_of_a_vm_that_kubevirt_can_never_migrate(place: Place) -> None:
    name = "w" * 64
    place.vm(name)
    place.running(name)

    vetoed = place.evict(place.launcher(name), DESCHEDULER)
    with pytest.raises(KubeError, match=r"metadata\.labels: Invalid value"):
        place.migrate(name)

    assert parse(vetoed.message).code == "name-too-long"
    assert "64 characters" in vetoed.message
    assert "evacuationNodeName" not in place.get(VMIS, name)["status"]


HOSTNAME = "kubernetes.io/hostname"
DRAINED, *OTHERS = sorted(ZONES)
GONE = 404
# Each kind of VM there is, and random ones beside them.
CERTAIN: list[Json] = [
    {},
    {"evictionStrategy": "None"},
    {"nodeSelector": {HOSTNAME: DRAINED}},
    {"nodeSelector": {"zone": "a"}, "memory": "30Gi"},
]
# Runs on the only other node of that zone.
FILLER: Json = {"nodeSelector": {HOSTNAME: OTHERS[0]}, "memory": "40Gi"}


def template(dice: random.Random, wanted: Json) -> Json:
    spec = dict(wanted)
    memory = spec.pop("memory", dice.choice(["1Gi", "2Gi"]))
    return {"domain": {"devices": {}, "memory": {"guest": memory}}, **spec}


def wish(dice: random.Random) -> Json:
    apart = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "filler"}}}
    wishes: list[Json] = [
        {"nodeSelector": {"zone": "a"}},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}},
        {"evictionStrategy": dice.choice(["LiveMigrate", "LiveMigrateIfPossible", "None"])},
    ]
    return dice.choice(wishes)


@contextmanager
def cordoned(place: Place, nodes: Iterable[str]) -> Iterator[None]:
    listed = list(nodes)
    for name in listed:
        place.admin.patch("v1/nodes", name, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        for name in listed:
            place.admin.patch("v1/nodes", name, {"spec": {"unschedulable": None}})


def evict_all(place: Place) -> None:
    """One round of a drain: an eviction of every launcher pod on the node that has not ended."""
    for pod in place.admin.list(PODS, place.namespace):
        on_it = pod["spec"].get("nodeName") == DRAINED and pod["status"].get("phase") == "Running"
        if not on_it or "deletionTimestamp" in pod["metadata"]:
            continue
        name = pod["metadata"]["name"]
        evict = partial(place.admin.create, PODS, eviction(name), place.namespace, name=name, subresource="eviction")
        refused = denial(evict)
        assert refused is None or refused.status in (429, GONE), refused


def outcome(place: Place, vm: VmPlan) -> str:
    """The outcome of a VM so far."""
    try:
        vmi: KubeObject = place.get(VMIS, vm.name)
    except KubeError as error:
        assert error.status == GONE
        return SHUTS_DOWN
    if vmi["status"].get("phase") in ("Succeeded", "Failed"):
        return SHUTS_DOWN
    return BLOCKS if vmi["status"].get("nodeName") == DRAINED else MOVES


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_foretold_of_a_drain_is_what_happens(apart: Place, seed: int) -> None:
    place, dice = apart, random.Random(seed)
    eventually(place.real.is_empty, what="the VMs of other tests to end")
    # Pending target pods take turns away from the others, for five minutes each.
    place.real.configure(migrations={"parallelMigrationsPerCluster": 20, "parallelOutboundMigrationsPerNode": 20})
    wanted = [*CERTAIN, *(wish(dice) for _ in range(4))]
    vms = [_vm("filler", template(dice, FILLER), "filler")]
    vms += [_vm(f"vm-{number}", template(dice, each), "mover") for number, each in enumerate(wanted)]
    place.make(vms[0])
    assert place.running("filler")["status"]["nodeName"] == OTHERS[0]
    with cordoned(place, OTHERS):
        for vm in vms[1:]:
            place.make(vm)
        for vm in vms[1:]:
            assert place.running(vm["metadata"]["name"])["status"]["nodeName"] == DRAINED
    kubeconfig = place.real.plane.kubeconfig_for("admin", ["system:masters"])
    found = plan(asyncio.run(from_cluster(Kubeconfig(str(kubeconfig)))), [DRAINED])
    mine = [vm for vm in found.steps[0].vms if vm.namespace == place.namespace]
    foretold = {vm.name: vm.outcome for vm in mine}

    def ended() -> bool:
        evict_all(place)
        return {vm.name: outcome(place, vm) for vm in mine} == foretold

    with cordoned(place, [DRAINED]):
        eventually(ended, what=f"{foretold} to happen")
        # A pod that has no node now gets none: the scheduler has evaluated it, or KubeVirt does not try.
        for name in (vm.name for vm in mine if vm.outcome == BLOCKS):
            eventually(partial(place.unschedulable, name), what=f"a pod of {name} without a node")
    assert {vm.outcome for vm in mine} == {MOVES, SHUTS_DOWN, BLOCKS}
    for vm in vms:
        place.admin.delete(VMS, vm["metadata"]["name"], place.namespace)
    place.real.configure(migrations=None)


def _hotplugged(place: Place, name: str, key: str, value: str) -> Json:
    """The template of a VM with a hotplugged volume that only the nodes with a label can attach."""
    requirement = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    size = {"storage": "1Gi"}
    volume: Json = {
        "capacity": size,
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "none",
        "csi": {"driver": "tests.example", "volumeHandle": name},
        "claimRef": {"namespace": place.namespace, "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [requirement]}},
    }
    place.admin.create("v1/persistentvolumes", obj("PersistentVolume", f"{place.namespace}-{name}", spec=volume))
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "none", "resources": {"requests": size}}
    place.make(obj("PersistentVolumeClaim", name, spec=claim | {"volumeName": f"{place.namespace}-{name}"}))
    source = {"claimName": name, "hotpluggable": True}
    disks = [{"name": "data", "disk": {"bus": "scsi"}}]
    return {
        "domain": {"devices": {"disks": disks}, "memory": {"guest": "1Gi"}},
        "volumes": [{"name": "data", "persistentVolumeClaim": source}],
    }


def _attachments(place: Place, node: str) -> list[KubeObject]:
    """The pods that attach hotplugged volumes, of a node; empty: of none yet."""
    found = [
        pod
        for pod in place.admin.list(PODS, place.namespace)
        if pod["metadata"].get("labels", {}).get("kubevirt.io") == "hotplug-disk"
    ]
    return [pod for pod in found if pod["spec"].get("nodeName", "") == node]


def test_the_pod_that_attaches_hotplugged_volumes_decides(apart: Place) -> None:
    """It is no blocker, its eviction is denied, and a node that cannot have it cannot have the VM."""
    place = apart
    eventually(place.real.is_empty, what="the VMs of other tests to end")
    near = {**_hotplugged(place, "near", "zone", "a"), "nodeSelector": {"zone": "a"}}
    with cordoned(place, OTHERS):
        for name, spec in (("near", near), ("here", _hotplugged(place, "here", HOSTNAME, DRAINED))):
            place.make(_vm(name, spec, "mover"))
            place.running(name)
        eventually(lambda: len(_attachments(place, DRAINED)) == 2, what="the volumes to be attached")
    kubeconfig = place.real.plane.kubeconfig_for("admin", ["system:masters"])
    (step,) = plan(asyncio.run(from_cluster(Kubeconfig(str(kubeconfig)))), [DRAINED]).steps

    assert {vm.name: (vm.code, vm.to) for vm in step.vms} == {
        "near": ("migrates", "node-2"),
        "here": ("no-attachment", ""),
    }
    assert (step.other_pods, step.blocked_pods) == (0, ())
    with cordoned(place, [DRAINED]):
        for pod in _attachments(place, DRAINED):
            assert "cannot evict hotplug pod" in place.evict(pod).message
        evict_all(place)
        eventually(lambda: place.get(VMIS, "near")["status"]["nodeName"] == "node-2", what="the one to move")
        assert len(_attachments(place, "node-2")) == 1
        eventually(
            lambda: any(map(is_unschedulable, _attachments(place, ""))), what="no node to attach the other volume"
        )
        assert place.get(VMIS, "here")["status"]["nodeName"] == DRAINED
    for name in ("near", "here"):
        place.admin.delete(VMS, name, place.namespace)
        place.admin.delete("v1/persistentvolumes", f"{place.namespace}-{name}")


def _vm(name: str, spec: Json, app: str) -> Json:
    """A VM that is not started again once it has ended."""
    whole = {"runStrategy": "Once", "template": {"metadata": {"labels": {"app": app}}, "spec": spec}}
    return obj("VirtualMachine", name, spec=whole)
