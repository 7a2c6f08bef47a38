"""Random fleets beside a real KubeVirt do what `explain drain` and `explain migration` predict of them.

A fleet has two groups of nodes, and on the nodes that are drained VMs of many kinds: handed to another controller, with
dedicated CPUs, with hotplugged volumes, that cannot migrate, that shut down, for which there is no room, in a namespace
with a quota or a PodDisruptionBudget, with or without post-copy; and importers, which the drain cuts off.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.objects import has_condition, is_unschedulable, obj, owner_reference
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS
from webhook.cli.explain import answer_of, from_cluster
from webhook.cluster.selection import open_cluster
from webhook.forecast import report
from webhook.forecast.drain import plan
from webhook.forecast.report import DrainPlan, VmPlan
from webhook.policies.migration.explanation import MigrationExplanation, Question, explain

from .control_plane import ZONES, RunningKubeVirt
from .fleets import BUDGETS, make_pod, make_quota, starts
from .nodes import LOCAL
from .place import HOSTNAME, Place, attachments, cordoned, evict_all, hotplugged, vm_run_once

pytestmark = pytest.mark.kubevirt

NODES = sorted(ZONES)
GROUP = [name for name in NODES if ZONES[name] == ZONES[NODES[0]]]
GI = 2**30
CPU_MANAGER = ("cpumanager", "kubevirt.io/cpumanager")
IMPORTER = {"app": "containerized-data-importer", "cdi.kubevirt.io": "importer"}
REJECTED = "migrationRejectedByResourceQuota"
# Of these, more than one outcome is in agreement with what the plan says: that it is not known.
UNDECIDED = {report.MIGRATES_IF_PACKED, report.MAY_NOT_FIT, report.MAY_NOT_ATTACH, report.WAITS_FOR_QUOTA}


def _seeds() -> range:
    """``KUBEVIRT_FLEETS=200`` takes so many, and ``KUBEVIRT_FLEETS=60:80`` those."""
    first, _, last = os.environ.get("KUBEVIRT_FLEETS", "4").rpartition(":")
    return range(int(first or 0), int(last))


class Fleet(NamedTuple):
    drained: Sequence[str]
    vms: Sequence[Json]
    migrations: Json
    quota: Json | None
    budget: bool
    importers: int
    fillers: Mapping[str, str]
    volumes: Mapping[str, tuple[str, str]]


def _template(dice: random.Random) -> Json:
    spec: Json = {"domain": {"devices": {}, "memory": {"guest": dice.choice(["512Mi", "1Gi", "3Gi"])}}}
    kinds = ["free", "free", "external", "dedicated", "stops", "group", "here", "large", "apart"]
    match dice.choice(kinds):
        case "external":
            spec["evictionStrategy"] = "External"
        case "dedicated":
            spec["domain"]["cpu"] = {"cores": dice.choice([1, 2]), "dedicatedCpuPlacement": True}
        case "stops":
            spec["evictionStrategy"] = "None"
        case "group":
            spec |= {"nodeSelector": {"zone": ZONES[NODES[0]]}, "evictionStrategy": "LiveMigrateIfPossible"}
        case "here":
            spec["nodeSelector"] = {HOSTNAME: NODES[0]}
        case "large":
            spec["domain"]["memory"]["guest"] = dice.choice(["24Gi", "40Gi"])
        case "apart":
            term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "mover"}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return spec


def _fleet(seed: int) -> Fleet:
    dice = random.Random(seed)
    limits: Json = {"parallelMigrationsPerCluster": 20, "parallelOutboundMigrationsPerNode": 20}
    limits |= dice.choice([{}, {"allowPostCopy": True}, {"allowWorkloadDisruption": True}])
    vms, volumes = [], {}
    for number in range(dice.randint(3, 6)):
        labels = {"app": dice.choice(["mover", "other"])}
        template: Json = {"metadata": {"labels": labels}, "spec": _template(dice)}
        match dice.choice(["attached", "local", *"......"]):
            case "attached":
                # From its own node alone, or from a group.
                here = dice.choice([(HOSTNAME, NODES[0]), ("zone", ZONES[NODES[0]]), ("kubernetes.io/os", "linux")])
                volumes[f"vm-{number}"] = here
            case "local":
                template["metadata"]["annotations"] = {LOCAL: ""}
        vms.append(vm_run_once(f"vm-{number}", template))
    spare = dice.choice([None, None, 0.4 * GI, 1.5 * GI, 4 * GI])
    quota = None if spare is None else {"requests.memory": int(spare)}
    if dice.random() < 0.2:
        quota = {"count/pods": dice.choice([0, 1, 3])}
    drained = dice.choice([GROUP[:1], GROUP[:1], GROUP])
    if drained == GROUP:
        # A VM may start on either node, and has to where its volume can be attached.
        zone = ("zone", ZONES[NODES[0]])
        volumes = {name: zone if reach[0] == HOSTNAME else reach for name, reach in volumes.items()}
    fillers = {name: dice.choice(["1Gi", "40Gi", "61Gi"]) for name in NODES if name not in drained}
    return Fleet(drained, vms, limits, quota, dice.random() < 0.5, dice.choice([0, 0, 1, 2]), fillers, volumes)


@pytest.fixture(scope="module", autouse=True)
def _dedicated(real: RunningKubeVirt) -> Iterator[None]:
    labels = {name: dict.fromkeys(CPU_MANAGER, "true") for name in NODES}
    before = {name: real.plane.admin.get("v1/nodes", name)["metadata"]["labels"] for name in NODES}
    _label(real, labels)
    yield
    _label(real, {name: {key: before[name].get(key) for key in CPU_MANAGER} for name in NODES})


def _label(real: RunningKubeVirt, labels: Mapping[str, Mapping[str, str | None]]) -> None:
    for name, own in labels.items():
        real.plane.admin.patch("v1/nodes", name, {"metadata": {"labels": dict(own)}})


def _populate(place: Place, fleet: Fleet) -> set[str]:
    """Has a fleet run, all of it on the drained nodes; returns its VMs, without those for which they have no room."""
    place.real.configure(migrations=fleet.migrations)
    others = [name for name in NODES if name not in fleet.drained]
    with cordoned(place, others):
        for vm in fleet.vms:
            if reach := fleet.volumes.get(_name(vm)):
                attached, spec = hotplugged(place, _name(vm), *reach), vm["spec"]["template"]["spec"]
                spec["volumes"] = attached["volumes"]
                spec["domain"]["devices"] = attached["domain"]["devices"]
            place.make(vm)
        names = {name for name in map(_name, fleet.vms) if starts(place, name)}
        for name in names:
            assert place.running(name)["status"]["nodeName"] in fleet.drained
        count = len(names & fleet.volumes.keys())
        are_attached = lambda: sum(len(attachments(place, node)) for node in fleet.drained) >= count
        eventually(are_attached, what=f"{count} volumes to be attached")
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = place.make(obj("PersistentVolumeClaim", "disk", spec=size))
    for node, memory in fleet.fillers.items():
        make_pod(place, f"filler-{node}", node, resources={"requests": {"memory": memory}})
    for number in range(fleet.importers):
        owners = [owner_reference(claim)]
        make_pod(place, f"importer-{number}", fleet.drained[-1], labels=IMPORTER, ownerReferences=owners)
    if fleet.budget:
        spec = {"minAvailable": 1000, "selector": {"matchLabels": {"app": "mover"}}}
        place.make(obj("PodDisruptionBudget", "movers", "policy/v1", spec=spec))
        counted = lambda found: "disruptionsAllowed" in found.get("status", {}) and found["status"].get("expectedPods")
        labels = [vm["spec"]["template"]["metadata"]["labels"] for vm in fleet.vms if _name(vm) in names]
        if {"app": "mover"} in labels:
            place.admin.wait(BUDGETS, "movers", place.namespace, until=counted, what="the budget to be counted")
    if fleet.quota is not None:
        make_quota(place, fleet.quota)
    return names


def _name(found: Mapping[str, Any]) -> str:
    return str(found["metadata"]["name"])


def _predict(place: Place, fleet: Fleet) -> tuple[DrainPlan, dict[str, MigrationExplanation]]:
    """What the commands say, of the VMs of this namespace."""
    kubeconfig = place.kubeconfig()

    async def read() -> tuple[DrainPlan, dict[str, MigrationExplanation]]:
        found = plan(await from_cluster(kubeconfig), fleet.drained)
        names = [vm.name for vm in found.steps[0].vms if vm.namespace == place.namespace]
        answers = {}
        for name in names:
            explainer = partial(explain, Question(place.namespace, name, {}))
            async with open_cluster(None, kubeconfig) as cluster:
                answers[name] = await answer_of(explainer, "explain migration", cluster)
        return found, answers

    return asyncio.run(read())


class Drain:
    """A drain of nodes, as `kubectl drain` does it: eviction after eviction, until a node is empty or it gives up."""

    def __init__(self, place: Place, fleet: Fleet) -> None:
        self._place = place
        self._drained = fleet.drained
        self.answers: dict[str, str] = {}

    def round(self) -> None:
        self.answers |= evict_all(self._place, self._drained)

    def outcome(self, vm: VmPlan) -> str:
        if (status := self._place.status(vm.name)) is None:
            return report.SHUTS_DOWN
        if status.get("nodeName") != vm.node:
            return report.MOVES
        is_external = self._place.get(VMIS, vm.name)["spec"].get("evictionStrategy") == "External"
        return report.HANDED_OVER if is_external and status.get("evacuationNodeName") == vm.node else report.BLOCKS


@pytest.mark.parametrize("seed", _seeds())
def test_a_fleet_does_what_is_predicted(fleet_place: Place, seed: int) -> None:
    place, fleet = fleet_place, _fleet(seed)
    names = _populate(place, fleet)
    found, answers = _predict(place, fleet)
    (step,) = found.steps
    mine = [vm for vm in step.vms if vm.namespace == place.namespace]
    assert {vm.name for vm in mine} == names
    drain = Drain(place, fleet)
    certain = _decided(mine, found, place)

    def happened() -> bool:
        drain.round()
        return all(drain.outcome(vm) == vm.outcome for vm in certain)

    with cordoned(place, fleet.drained):
        try:
            eventually(
                happened,
                what=f"the fleet {seed} to do what is predicted",
                timeout=float(os.environ.get("FLEET_PATIENCE", "300")),
            )
        except AssertionError as error:
            wrong = [(vm.name, vm.code, vm.reason, drain.outcome(vm)) for vm in certain]
            raise AssertionError(f"{error}: {[each for each in wrong if each[3] != report.MOVES]}") from None
        _look_at_those_that_stay(place, drain, [vm for vm in certain if vm.outcome == report.BLOCKS])
        # What is decided stays so.
        time.sleep(1)
        drain.round()
        assert {vm.name: drain.outcome(vm) for vm in certain} == {vm.name: vm.outcome for vm in certain}

    for vm in mine:
        _compare(place, fleet, vm, answers[vm.name], drain)
    transfers = [each for each in step.transfers if each.namespace == place.namespace]
    assert sorted(each.name for each in transfers) == [f"importer-{number}" for number in range(fleet.importers)]
    assert not [pod for pod in place.admin.list(PODS, place.namespace) if _name(pod).startswith("importer-")]


def _decided(vms: Sequence[VmPlan], found: DrainPlan, place: Place) -> list[VmPlan]:
    """Those of which the plan says what becomes of them; of the others it says that this is not known."""
    undecided = set(UNDECIDED)
    if any(place.namespace in note and "which is not known" in note for note in found.notes):
        undecided |= {report.MIGRATES, report.QUOTA, *report.PENDING}
    if any(vm.code == report.QUOTA and "is not known" in vm.reason for vm in vms):
        undecided.add(report.QUOTA)
    return [vm for vm in vms if vm.code not in undecided]


def _look_at_those_that_stay(place: Place, drain: Drain, vms: Sequence[VmPlan]) -> None:
    """They stay for the reason that the plan gives."""
    for vm in vms:
        if vm.code in report.PENDING:
            # While another VM's target pod without a node takes the quota, none is made of it.
            held = lambda vm=vm: bool(place.unschedulable(vm.name)) or _is_rejected(place, vm.name)
            eventually(held, what=f"a pod of {vm.name} without a node")
        elif vm.code == report.QUOTA:
            eventually(partial(_is_rejected, place, vm.name), what=f"a quota to deny the target pod of {vm.name}")
        elif vm.code == report.NO_ATTACHMENT:
            # Where its target pod has no room, no pod is made that would attach the volume.
            waits = lambda vm=vm: (
                any(map(is_unschedulable, attachments(place, "")))
                or ("with room" not in vm.reason and place.unschedulable(vm.name))
            )
            eventually(waits, what=f"no node to attach the volume of {vm.name}")
        elif vm.code == report.NOT_MIGRATABLE:
            drain.round()
            assert "is not live-migratable" in drain.answers[_name(place.launcher(vm.name))]
        else:
            assert vm.code == report.DISRUPTION_BUDGET, vm
            pod = _name(place.launcher(vm.name))
            eventually(partial(_is_kept, drain, pod), what=f"the budget to keep {vm.name}")


def _is_rejected(place: Place, name: str) -> bool:
    found = (each for each in place.admin.list(MIGRATIONS, place.namespace) if each["spec"]["vmiName"] == name)
    return any(has_condition(each, REJECTED) for each in found)


def _is_kept(drain: Drain, pod: str) -> bool:
    drain.round()
    return "disruption budget" in drain.answers.get(pod, "")


def _compare(place: Place, fleet: Fleet, vm: VmPlan, answer: MigrationExplanation, drain: Drain) -> None:
    """What is said of one VM by both commands, and what became of it."""
    outcome = drain.outcome(vm)
    if outcome == report.MOVES:
        vmi = place.get(VMIS, vm.name)
        assert vmi["status"]["nodeName"] in answer.eligible.names, vm
        # `explain migration` looks at one VM now, when others have not shut down yet, and pods are not evicted.
        waits = vm.code == report.WAITS_FOR_QUOTA or (vm.code == report.QUOTA and "is not known" in vm.reason)
        assert answer.favorable or waits, vm
        state = vmi["status"]["migrationState"]["migrationConfiguration"]
        assert state["allowPostCopy"] is bool(fleet.migrations.get("allowPostCopy"))
    if outcome == report.HANDED_OVER:
        made = [each for each in place.admin.list(MIGRATIONS, place.namespace) if each["spec"]["vmiName"] == vm.name]
        assert made == []
    # Cordons of a drain are not in what `explain migration` looks at.
    if vm.code == report.NO_ELIGIBLE_NODE:
        assert not set(answer.eligible.names) - set(fleet.drained), vm
    # What all of them take together is not, either.
    if vm.code == report.QUOTA and "requests.memory" in vm.reason:
        assert not answer.favorable, vm
