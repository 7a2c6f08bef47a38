"""What VMs that are alike share is what each of them would get by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forecast import clusters
from tests.forecast.clusters import Json
from webhook.admission.step_budget import StepBudget
from webhook.errors import InputError
from webhook.facts import Facts, from_memory
from webhook.forecast import drain, movers, update
from webhook.forecast.moves import Moves
from webhook.forecast.report import limits_of
from webhook.forecast.snapshot import ClusterObjects, PlannedCluster
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.config import ClusterConfig
from webhook.placement import demand
from webhook.placement.requirements import Allocatable
from webhook.placement.target_pods import NODE_SELECTOR_ANNOTATION, RuntimeClass
from webhook.policies.common import migration_targets

GPU = "vendor.com/gpu"
HOST_MODEL = {f"{each}.node.kubevirt.io/Haswell": "true" for each in ("host-model-cpu", "cpu-model-migration")}
# Each is given to some VMs, nodes and pods: all that `migration_targets.of` looks at.
DOMAINS: list[Json] = [
    {},
    {"cpu": {"model": "host-model"}},
    {"cpu": {"dedicatedCpuPlacement": True, "features": [{"name": "f", "policy": "forbid"}]}},
    {"memory": {"guest": "2Gi", "hugepages": {"pageSize": "2Mi"}}},
    {"devices": {"gpus": [{"deviceName": GPU}]}},
    {"devices": {"disks": [{"lun": {"reservation": True}}]}},
    {"resources": {"requests": {"memory": "3Gi"}, "overcommitGuestOverhead": True}},
    {"launchSecurity": {"tdx": {}}, "cpu": {"features": [{"name": "invtsc", "policy": "require"}]}},
]
SPECS: list[Json] = [
    {},
    {"nodeSelector": {"zone": "a"}},
    {"tolerations": [{"operator": "Exists"}]},
    {"networks": [{"multus": {}}]},
    {"affinity": clusters.apart(app="web")},
    {"utilityVolumes": [{}]},
]
STATUSES: list[Json] = [
    {},
    {"machine": {"type": "q35"}},
    {"topologyHints": {"tscFrequency": 7}},
    {"changedBlockTracking": {"backupStatus": {"backupName": "b"}}},
]
POD_SPECS: list[Json] = [
    {},
    {"nodeSelector": {"odd": "1", "cpu-model-migration.node.kubevirt.io/Haswell": "true"}},
    {"tolerations": [{"key": "k", "operator": "Exists"}]},
    {"overhead": {"memory": "9Mi"}, "resourceClaims": [{}]},
    {
        "containers": [
            {"name": "compute", "resources": {"requests": {"memory": "9Gi", GPU: "3", "hugepages-2Mi": "1Gi"}}}
        ]
    },
    {"nodeName": "elsewhere"},
]
POD_METAS: list[Json] = [
    {},
    {"annotations": {"kubevirt.io/memory-overhead-bytes": "99000000"}},
    {"annotations": {"kubevirt.io/migrationJobName": "gone"}},
    {"annotations": {"kubevirt.io/migrationJobName": "odd"}, "labels": {"kubevirt.io/migrationJobUID": "odd"}},
    {"annotations": {"kubevirt.io/migrationJobName": "plain"}, "labels": {"kubevirt.io/migrationJobUID": "plain"}},
    {"labels": {"pr.kubevirt.io/claim": ""}},
    {"ownerReferences": []},
]
LABELS: list[Json] = [{}, HOST_MODEL, {"cpu-vendor.node.kubevirt.io/Intel": "true"}, {"zone": "a"}]


def _migration(name: str, **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": spec,
        "status": {"phase": "Succeeded"},
    }


@st.composite
def fleets(draw: st.DrawFn) -> ClusterObjects:
    """VMs of few kinds on a few nodes, so that many are alike, or nearly."""

    def one(options: list[Json]) -> Json:
        return draw(st.sampled_from(options))

    nodes = [clusters.node(f"n{number}", **one(LABELS)) for number in range(4)]
    nodes[0]["status"]["allocatable"][GPU] = "9"
    vms = []
    for number in range(draw(st.integers(2, 12))):
        vmi, pod = clusters.vm(f"vm-{number}", f"n{draw(st.integers(0, 4))}", labels={"app": "web"}, **one(SPECS))
        vmi["spec"]["domain"] |= one(DOMAINS)
        vmi["status"] |= one(STATUSES)
        pod["spec"] |= one(POD_SPECS)
        meta = one(POD_METAS)
        pod["metadata"] |= meta | {"labels": pod["metadata"]["labels"] | meta.get("labels", {})}
        vms.append((vmi, pod))
    newer = {"name": "second", "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": []}
    more = [{**pod, "metadata": pod["metadata"] | newer} for _, pod in vms[: draw(st.integers(0, 1))]]
    world = clusters.snapshot(
        nodes, vms, pods=more, migrations=[_migration("odd", addedNodeSelector={"odd": "1"}), _migration("plain")]
    )
    annotations = {NODE_SELECTOR_ANNOTATION: "odd=1"} if draw(st.booleans()) else {}
    metadata = {"name": "shop", "annotations": annotations}
    runtime = {"metadata": {"name": "rc"}, "scheduling": {"nodeSelector": {"zone": "a"}}}
    return msgspec.structs.replace(
        world,
        namespaces=(msgspec.convert({"metadata": metadata}, Namespace),),
        runtime_classes=(msgspec.convert(runtime, RuntimeClass),),
        kubevirt=ClusterConfig.of({"defaultRuntimeClass": "rc"} if draw(st.booleans()) else {}),
    )


@given(world=fleets())
def test_targets_and_reviews_are_those_of_each_vm_by_itself(world: ClusterObjects) -> None:
    cluster = PlannedCluster(world)
    planner = drain.Planner(cluster, limits_of(world.kubevirt, ()))
    for vmi in cluster.vmis.values():
        shared, taken = planner._classes.target_of(vmi)
        assert shared == from_memory(migration_targets.of(vmi, "shop", Facts(peek=cluster.peek)))
        requirements = {each for each in shared.requirements if isinstance(each, Allocatable)}
        assert taken.items() == {(each.resource, each.amount) for each in requirements}
    for cordoned in "n0", "n1":
        index = cluster.index
        node = index.get(cordoned)
        assert node is not None
        index.put(msgspec.structs.replace(node, unschedulable=True))
        vmis = cluster.vmis.values()
        found = (movers.mover_of(vmi, planner._classes, planner._present(vmi)) for vmi in vmis)
        for mover, eligibility in planner._with_eligibility(found):
            expected = index.review(mover.requirements)
            assert (eligibility.bitset, eligibility.failures) == (expected.bitset, expected.failures)
            assert eligibility.names() == expected.names()


plans = pytest.mark.parametrize(
    "plan", [lambda world: drain.plan(world, [], rolling=True), update.plan], ids=["drain", "update"]
)
METHODS = {"workloadUpdateMethods": ["LiveMigrate", "Evict"]}


@plans
def test_too_much_to_plan_is_one_sentence(
    plan: Callable[[ClusterObjects], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "MAX_STEPS", 10)
    world = clusters.snapshot([clusters.node("a"), clusters.node("b")], [clusters.vm("web", "a")], updates=METHODS)
    with pytest.raises(InputError):
        plan(world)


@pytest.mark.parametrize(
    ("plan", "options"),
    [
        (drain._plan, {"nodes": [], "rolling": True, "parallel": 1, "bandwidth": None}),
        (update._plan, {"outdated_only": False, "bandwidth": None}),
    ],
    ids=["drain", "update"],
)
def test_large_clusters_take_few_steps(plan: Callable[..., Any], options: dict[str, Any]) -> None:
    """Steps for each VM do not grow with the nodes, so that 5,000 nodes and 10,000 VMs take seconds."""

    def steps(number: int) -> int:
        work = StepBudget(drain.MAX_STEPS)
        work.run(plan, clusters.large(number, updates=METHODS), **options)
        return work.spent

    assert steps(80) < 5 * steps(20)


@plans
def test_vms_that_are_alike_are_looked_at_once(plan: Callable[[ClusterObjects], Any]) -> None:
    """What they require and request, whatever their number, and of their nodes."""

    def calls(number: int) -> list[int]:
        world = clusters.large(number, updates={"workloadUpdateMethods": ["LiveMigrate"]})
        with (
            patch.object(migration_targets, "of", wraps=migration_targets.of) as targets,
            patch.object(movers, "load_of", wraps=demand.load_of) as requests,
        ):
            assert plan(world).moves >= number
        return [targets.call_count, requests.call_count]

    few = calls(10)
    assert calls(40) == few
    assert max(few) <= 7


def test_an_update_tries_a_second_order_only_where_there_is_one() -> None:
    def rounds(*sizes: str) -> int:
        nodes = [clusters.node(name) for name in "abc"]
        vms = [clusters.vm(f"vm-{number}", "a", size) for number, size in enumerate(sizes)]
        world = clusters.snapshot(nodes, vms, updates={"workloadUpdateMethods": ["LiveMigrate"]})
        with patch.object(Moves, "move_all", autospec=True, side_effect=Moves.move_all) as counting:
            assert update.plan(world).moves == len(sizes)
        return counting.call_count

    assert [rounds("1Gi", "1Gi"), rounds("1Gi", "2Gi"), rounds("2Gi", "1Gi")] == [1, 1, 2]
