"""Updates beside a real KubeVirt: what `explain update` says of VMs is what the real workload updater does to them."""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial

import pytest

from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.workloads import VMS
from webhook.cli.explain import from_cluster
from webhook.forecast import report, update
from webhook.forecast.report import MOVES, SHUTS_DOWN, STAYS, VmPlan

from .nodes import LOCAL
from .place import HOSTNAME, Place, vm_run_once

pytestmark = pytest.mark.kubevirt

METHODS: tuple[Json, ...] = (
    {"workloadUpdateMethods": ["LiveMigrate", "Evict"], "batchEvictionInterval": "1s"},
    {"workloadUpdateMethods": ["LiveMigrate"]},
    {"workloadUpdateMethods": ["Evict"], "batchEvictionSize": 3, "batchEvictionInterval": "5s"},
)
# A VM of each kind; `local` ones cannot be migrated. Node-1 and node-2 are zone a, and the filler is tied to node-2.
CERTAIN: list[Json] = [
    {},
    {"evictionStrategy": "None"},
    {"nodeSelector": {HOSTNAME: "node-1"}},
    {"nodeSelector": {"zone": "a"}, "memory": "30Gi", "evictionStrategy": "LiveMigrateIfPossible"},
    {"local": True},
    {"local": True, "evictionStrategy": "None"},
]
FILLER: Json = {"nodeSelector": {HOSTNAME: "node-2"}, "memory": "40Gi"}
APART = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "filler"}}}
RANDOM: list[Json] = [
    {"nodeSelector": {"zone": "b"}},
    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}}},
    {"evictionStrategy": "LiveMigrateIfPossible", "local": True},
    {"memory": "3Gi"},
]


def _vm(name: str, wanted: Json) -> Json:
    spec = dict(wanted)
    memory, is_local = spec.pop("memory", "1Gi"), spec.pop("local", False)
    metadata: Json = {"labels": {"app": name.partition("-")[0]}, "annotations": {LOCAL: ""} if is_local else {}}
    template = {"metadata": metadata, "spec": {"domain": {"devices": {}, "memory": {"guest": memory}}, **spec}}
    return vm_run_once(name, template)


def _outcome(place: Place, vm: VmPlan, tag: str) -> str:
    if (status := place.status(vm.name)) is None:
        return SHUTS_DOWN
    is_new = str(status.get("launcherContainerImageVersion")).endswith(tag)
    return MOVES if is_new and status["nodeName"] != vm.node else STAYS


@pytest.mark.parametrize("number", range(int(os.environ.get("KUBEVIRT_UPDATES", len(METHODS)))))
def test_what_is_said_of_an_update_is_what_happens(apart: Place, number: int) -> None:
    place, dice, real = apart, random.Random(number), apart.real
    eventually(real.is_empty, what="the VMs of other tests to end")
    # Pending target pods take turns away from the others, for five minutes each.
    real.configure(migrations={"parallelMigrationsPerCluster": 20, "parallelOutboundMigrationsPerNode": 20})
    wanted = [
        ("filler", FILLER),
        *((f"vm-{at}", each) for at, each in enumerate([*CERTAIN, *dice.choices(RANDOM, k=4)])),
    ]
    for name, spec in wanted:
        place.make(_vm(name, spec))
        # virt-controller has seen the image of its launcher then.
        seen = lambda name=name: place.running(name)["status"].get("launcherContainerImageVersion")
        eventually(seen, what=f"{name} to run")
    methods = number % len(METHODS)
    real.update_by(METHODS[methods])
    planned = update.plan(asyncio.run(from_cluster(place.kubeconfig())))
    mine = [vm for vm in planned.vms if vm.namespace == place.namespace]
    said, tag = {vm.name: vm.outcome for vm in mine}, f"update-{number}"
    real.update(tag)

    def happened() -> bool:
        return {vm.name: _outcome(place, vm, tag) for vm in mine} == said

    eventually(happened, what=f"{said} to happen")
    # A pod that has no node now gets none: the scheduler has evaluated it.
    waiting = [vm.name for vm in mine if vm.code in report.PENDING]
    for name in waiting:
        eventually(partial(place.unschedulable, name), what=f"a pod of {name} without a node")
    assert happened()
    assert waiting, "migrations fail for lack of a node"
    assert len({vm.outcome for vm in mine}) == (2 if methods == 1 else 3)
    for name, _ in wanted:
        place.admin.delete(VMS, name, place.namespace)
    real.update_by(None)
    real.configure(migrations=None)
