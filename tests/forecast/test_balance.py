from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.forecast.clusters import NAMES, Json, apart, budget, node, quota, random_clusters, snapshot, together, vm
from tests.forecast.oracle import Simulated, thorough
from webhook.errors import InputError
from webhook.forecast import balance
from webhook.forecast.balance import Course, Wanted
from webhook.forecast.balance_report import BalancePlan, Move
from webhook.forecast.node_loads import measured
from webhook.forecast.snapshot import ClusterObjects
from webhook.forecast.usage import NodeMetrics, PodMetrics, Usage
from webhook.k8s.quantity import parse

TWO = [node(name, cpu="80") for name in "ab"]


def plan(vms: Sequence[Any], nodes: Sequence[Json] = TWO, *, target: float = 10, **options: Any) -> BalancePlan:
    wanted = Wanted(target, options.pop("named", ()), options.pop("most", 20))
    return balance.plan(snapshot(nodes, vms, **options), wanted)


def moved(found: BalancePlan) -> list[tuple[str, str]]:
    return [(each.name, each.to) for each in found.moves]


FOUR = [vm(f"vm-{number}", "a") for number in range(4)]


def test_nodes_get_equal() -> None:
    """Of 8 GiB each, one has 4 requested and the other none."""
    found = plan(FOUR)
    assert moved(found) == [("vm-0", "b"), ("vm-1", "b")]
    assert (found.deviation, found.deviation_after, found.is_reached) == (25.0, 0.0, True)
    assert [(each.gain, each.deviation) for each in found.moves] == [(12.5, 12.5), (12.5, 0.0)]
    assert (found.memory, found.seconds) == (2 * 2**30, 2 * 19)
    assert [(each.name, each.memory, each.memory_after) for each in found.loads] == [
        ("a", 50.0, 25.0),
        ("b", 0.0, 25.0),
    ]
    assert found.staying == ()


def test_no_more_than_has_to_be_moved() -> None:
    assert moved(plan(FOUR, target=12.5)) == [("vm-0", "b")]
    assert moved(plan(FOUR, target=25)) == []
    few = plan(FOUR, most=1)
    assert (len(few.moves), few.is_reached) == (1, False)
    # One large one goes rather than two small ones.
    assert moved(plan([vm("large", "a", "2Gi"), *FOUR[:2]])) == [("large", "b")]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"evictionStrategy": "None"}, "owner-says-no"),
        ({"evictionStrategy": "External"}, "owner-says-no"),
        ({"condition": {"type": "LiveMigratable", "status": "False", "reason": "X"}}, "not-migratable"),
        ({"nodeSelector": {"kubernetes.io/hostname": "a"}}, "no-room"),
    ],
)
def test_what_stays(options: Json, code: str) -> None:
    found = plan([vm("web", "a", "6Gi", **options)])
    (staying,) = found.staying
    assert (staying.code, staying.vms, found.moves, found.is_reached) == (code, ("shop/web",), (), False)


def test_the_annotation_of_the_descheduler() -> None:
    for at in (0, 1):
        web = vm("web", "a", "6Gi")
        web[at]["metadata"]["annotations"] = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}
        assert [each.code for each in plan([web]).staying] == ["owner-says-no"]


def test_quotas_leave_room_for_a_second_pod_or_not() -> None:
    assert [each.code for each in plan(FOUR, quotas=[quota(pods=("4", "4"))]).staying] == ["quota"]
    assert len(plan(FOUR, quotas=[quota(pods=("5", "4"))]).moves) == 2


def test_each_migration_needs_room_in_its_quota_when_its_turn_comes() -> None:
    """``count/pods`` counts the pods that earlier migrations have left, though they have ended."""
    six = [vm(f"v{number}", "a") for number in range(6)]
    found = plan(six, target=1, quotas=[quota(count__pods=("7", "6"))])
    assert len(found.moves) == 1
    assert {each.code for each in found.staying} == {"quota"}


def test_a_vm_that_would_only_change_places_with_the_load_stays() -> None:
    found = plan([vm("web", "a", "6Gi")])
    assert [each.code for each in found.staying] == ["no-better-node"]


def test_rules_between_pods_hold_on_the_way() -> None:
    group = [
        vm(name, on, "2Gi", labels={"app": "x"}, affinity=apart(app="x")) for name, on in (("one", "a"), ("two", "b"))
    ]
    found = plan([*group, vm("free", "a", "2Gi")])
    assert "one" not in [each.name for each in found.moves]


def test_a_move_that_alone_makes_nothing_better() -> None:
    """One node stands out by CPU, and the other by memory: what each gives the other makes it stand out as much."""
    nodes = [node(name) for name in "ab"]
    cpus = [vm(f"cpu-{number}", "a", "100Mi", cpu="3") for number in range(2)]
    memory = [vm(f"memory-{number}", "b", "3Gi") for number in range(2)]
    found = plan([*cpus, *memory], nodes, target=5)
    assert (len(found.moves), found.is_reached) == (2, True)
    assert {each.name.partition("-")[0] for each in found.moves} == {"cpu", "memory"}
    assert plan([*cpus, *memory], nodes, target=5, most=1).moves == ()


def test_a_node_from_which_nothing_can_go_keeps_no_other_from_getting_lower() -> None:
    stuck = vm("stuck", "c", "7Gi", evictionStrategy="None")
    found = plan([*FOUR, vm("more", "a", "1Gi"), stuck], [*TWO, node("c", cpu="80")], target=5)
    assert (found.is_reached, found.deviation, found.deviation_after) == (False, 37.5, 37.5)
    assert {each.to for each in found.moves} == {"b"}
    assert [each.code for each in found.staying] == ["owner-says-no"]


def test_many_nodes_that_stand_out_alike_get_lower() -> None:
    """No single move lowers the highest of them."""
    full = [node(f"full-{number}", cpu="80") for number in range(8)]
    empty = [node(f"empty-{number}", cpu="80") for number in range(8)]
    vms = [vm(f"vm-{number}", f"full-{number // 2}", "2Gi") for number in range(16)]
    found = plan(vms, [*full, *empty])
    assert (len(found.moves), found.is_reached, found.deviation_after) == (8, True, 0.0)


def test_moves_that_keep_each_other_from_where_they_would_go() -> None:
    """Each of two that keep apart finds the node free; not both."""
    two = [vm(name, "a", "2Gi", labels={"app": "x"}, affinity=apart(app="x")) for name in ("one", "two")]
    found = plan(two, [*TWO, node("c", cpu="80")], target=1)
    assert sorted(each.to for each in found.moves) in (["b"], ["b", "c"])
    assert len({each.to for each in found.moves}) == len(found.moves)


def test_a_plan_that_is_being_carried_out_stays_the_plan() -> None:
    objects = snapshot(TWO, FOUR)
    other = [replace(each, name=name) for each, name in zip(plan(FOUR).moves, ("vm-2", "vm-3"), strict=True)]
    before = replace(plan(FOUR), moves=tuple(other))
    assert moved(balance.plan(objects, Wanted(10), Course(before))) == [("vm-2", "b"), ("vm-3", "b")]
    then = snapshot(TWO, [*FOUR[:2], vm("vm-2", "b"), FOUR[3]])
    assert moved(balance.plan(then, Wanted(10), Course(before, before.moves[:1]))) == [("vm-3", "b")]
    # Not where one of its VMs is elsewhere by itself, or its moves are not enough any more.
    assert moved(balance.plan(then, Wanted(10), Course(before))) == [("vm-0", "b")]
    more = [*FOUR, vm("vm-4", "a", "2Gi")]
    assert moved(balance.plan(snapshot(TWO, more), Wanted(10), Course(before)))[0] == ("vm-4", "b")


BUSY = [*(vm(f"idle-{number}", "a") for number in range(3)), *(vm(f"busy-{number}", "b") for number in range(2))]
CALM, FULL = {"cpu": "412489145n", "memory": "1048576Ki"}, {"cpu": "2101834554n", "memory": "6291456Ki"}
IDLE, ALL = {"cpu": "3n", "memory": "102400Ki"}, {"cpu": "1050000000n", "memory": "2969600Ki"}


def metrics(view: Any, **usage: Json) -> tuple[Any, ...]:
    """As metrics-server answers; a pod has a container that uses nothing, too."""
    if view is NodeMetrics:
        found: list[Json] = [{"metadata": {"name": name}, "usage": used} for name, used in usage.items()]
    else:
        found = [
            {
                "metadata": {"name": f"virt-launcher-{name.replace('_', '-')}", "namespace": "shop"},
                "containers": [
                    {"name": "compute", "usage": used},
                    {"name": "guest-console-log", "usage": {"cpu": "0", "memory": "0"}},
                ],
            }
            for name, used in usage.items()
        ]
    return tuple(msgspec.convert([{"window": "15.2s"} | each for each in found], list[view]))


def used(nodes: Sequence[Json] = TWO, vms: Sequence[Any] = BUSY, **changed: Any) -> ClusterObjects:
    """A cluster in which one node uses little of much that is requested, and the other one much of little."""
    pods = metrics(PodMetrics, idle_0=IDLE, idle_1=IDLE, idle_2=IDLE, busy_0=ALL, busy_1=ALL)
    own = {"node_metrics": metrics(NodeMetrics, a=CALM, b=FULL), "pod_metrics": pods} | changed
    return replace(snapshot(nodes, vms), **own)


def by_usage(objects: ClusterObjects, course: Course | None = None) -> BalancePlan:
    return balance.plan(objects, Wanted(10, usage=measured(objects)), course)


class TestByUsage:
    def test_the_vm_that_uses_much_moves(self) -> None:
        assert plan(BUSY).moves == ()
        found = by_usage(used())
        assert (moved(found), found.by, found.notes) == ([("busy-0", "a")], "usage", ())
        # Of 8 GiB one uses 1 and the other 6; the VM uses 2.83.
        assert (found.deviation, found.deviation_after) == (31.25, 4.15)
        assert [(each.name, each.memory, each.memory_after) for each in found.loads] == [
            ("b", 75.0, 39.6),
            ("a", 12.5, 47.9),
        ]

    def test_room_is_by_requests(self) -> None:
        full = [*BUSY, vm("large", "a", "4608Mi", evictionStrategy="None")]
        found = by_usage(used(vms=full))
        assert (found.moves, {each.code for each in found.staying}) == ((), {"no-room"})

    def test_requests_stand_where_usage_is_missing(self) -> None:
        nothing = by_usage(used(node_metrics=(), pod_metrics=()))
        assert (nothing.moves, nothing.deviation) == ((), plan(BUSY).deviation)
        assert "2 nodes" in nothing.notes[0]
        assert "(a, b)" in nothing.notes[0]
        some = by_usage(used(pod_metrics=metrics(PodMetrics, busy_1=ALL)))
        assert moved(some) == [("busy-1", "a")]
        assert any("1 VM " in note and "shop/busy-0" in note for note in some.notes)
        # One of the numbers is no number for both.
        assert "1 node " in by_usage(used(node_metrics=metrics(NodeMetrics, a={"cpu": "1"}, b=FULL))).notes[0]

    def test_nodes_without_metrics_of_their_own_use_what_their_pods_do(self) -> None:
        usage = measured(used(node_metrics=()), "Prometheus")
        assert (usage.source, usage.nodes) == ("Prometheus", {"a": (3, 300 * 2**20), "b": (2100, 5800 * 2**20)})

    @pytest.mark.parametrize("unknown", ["nothing", "the VMs", "the nodes", "the node it goes to"])
    def test_what_was_used_before_a_plan_was_begun_counts_until_its_end(self, unknown: str) -> None:
        """Metrics are those of some minutes ago: the node that a VM has left seems as full as before."""
        known: Json = {
            "nothing": {},
            "the VMs": {"pod_metrics": ()},
            "the nodes": {"node_metrics": metrics(NodeMetrics, other=CALM)},
            "the node it goes to": {"node_metrics": metrics(NodeMetrics, b=FULL)},
        }[unknown]
        usage = measured(used(**known))
        found = balance.plan(used(), Wanted(1, most=1, usage=usage))
        (move,) = found.moves
        then = used(
            vms=[
                vm(one["metadata"]["name"], move.to) if one["metadata"]["name"] == move.name else (one, pod)
                for one, pod in BUSY
            ]
        )
        left = balance.plan(then, Wanted(1, most=0, usage=usage), Course(found, found.moves))
        assert left.deviation == found.deviation_after
        assert any(f"shop/{move.name}" in note for note in left.notes) == (unknown == "the VMs")
        assert {each.name: (each.cpu, each.memory) for each in left.loads} == {
            each.name: (each.cpu_after, each.memory_after) for each in found.loads
        }

    def test_what_is_not_known_of_vms_empties_no_node(self) -> None:
        """Each VM that moves takes with it what it requests, in the next plan too."""
        course, on = Course(), dict.fromkeys((f"vm-{number}" for number in range(6)), "a")
        nodes = metrics(NodeMetrics, a={"cpu": "6400m", "memory": "1Gi"}, b={"cpu": "1800m", "memory": "1Gi"})

        def now() -> ClusterObjects:
            vms = [vm(name, node, cpu="1") for name, node in on.items()]
            return replace(snapshot([node("a"), node("b")], vms), node_metrics=nodes)

        usage = measured(now())
        planned = balance.plan(now(), Wanted(10, usage=usage))
        found = planned
        while found.moves:
            on[found.moves[0].name] = found.moves[0].to
            course = Course(found, (*course.made, found.moves[0]))
            found = balance.plan(now(), Wanted(10, most=20 - len(course.made), usage=usage), course)
        assert moved(replace(planned, moves=course.made)) == moved(planned)
        assert found.deviation == planned.deviation_after


class TestCoolDown:
    NOW = 1_790_000_000.0

    def staying(self, **status: Any) -> list[str]:
        migration = {
            "metadata": {"name": "m", "namespace": "shop"},
            "spec": {"vmiName": "web"},
            "status": {"phase": "Succeeded", **status},
        }
        two = [vm("web", "a", "2Gi"), vm("db", "a", "2Gi", evictionStrategy="None")]
        objects = replace(snapshot(TWO, two, migrations=[migration]), now=self.NOW)
        found = balance.plan(objects, Wanted(5, cool_down=600))
        assert found.is_reached == (moved(found) == [("web", "b")])
        return [each.code for each in found.staying if each.vms == ("shop/web",)]

    def test_a_vm_whose_migration_has_just_ended_stays(self) -> None:
        for minutes, codes in ((9, ["just-moved"]), (11, [])):
            end = dt.datetime.fromtimestamp(self.NOW - 60 * minutes, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            assert self.staying(migrationState={"endTimestamp": end}) == codes
            failed = [{"phase": "Failed", "phaseTransitionTimestamp": end}]
            assert self.staying(phase="Failed", phaseTransitionTimestamps=failed) == codes

    def test_the_status_of_the_vmi_says_it_where_the_migration_is_gone(self) -> None:
        web = vm("web", "a", "3Gi")
        end = dt.datetime.fromtimestamp(self.NOW - 60, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        web[0]["status"]["migrationState"] = {"completed": True, "endTimestamp": end}
        objects = replace(snapshot(TWO, [web]), now=self.NOW)
        assert [each.code for each in balance.plan(objects, Wanted(5, cool_down=600)).staying] == ["just-moved"]
        assert [each.code for each in balance.plan(objects, Wanted(5, cool_down=30)).staying] == ["no-better-node"]

    def test_a_vm_that_is_being_evacuated_is_not_moved_as_well(self) -> None:
        web = vm("web", "a", "3Gi")
        web[0]["status"]["evacuationNodeName"] = "a"
        assert [each.code for each in plan([web, vm("db", "a", "512Mi")], target=5).staying] == ["already-migrating"]


def test_budgets_hold_no_migration_back() -> None:
    """They are about evictions, and no pod of a VM that migrates is evicted."""
    labels = {"app": "x"}
    four = [vm(f"vm-{number}", "a", labels=labels) for number in range(4)]
    assert len(plan(four, budgets=[budget(0, app="x")]).moves) == 2


ZONES = [node("a", cpu="80", zone="a"), node("b", cpu="80", zone="b")]


def test_a_vm_does_not_leave_one_that_must_be_near_it() -> None:
    """kube-scheduler would let it: it asks about affinity of a pod that needs a node, and of no other."""
    web: Json = {"labels": {"app": "web"}}
    friend = vm("friend", "a", "512Mi", affinity=together("zone", app="web"))
    alone = plan([vm("web", "a", "3Gi", **web), friend], ZONES)
    (staying,) = [each for each in alone.staying if each.vms == ("shop/web",)]
    assert (alone.moves, staying.code) == ((), "pods-apart")
    assert "shop/friend" in staying.reason
    # One of two may leave.
    assert len(plan([vm("web", "a", "2Gi", **web), vm("too", "a", "1Gi", **web), friend], ZONES).moves) == 1


def test_what_is_spread_stays_so() -> None:
    """While it migrates, a VM counts on both nodes; then it does not."""
    spread: Json = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    own: Json = {"topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": {"app": "x"}}}]}
    four = [vm(f"x-{number}", on, "1Gi", labels={"app": "x"}, **own) for number, on in enumerate("aabb")]
    large = vm("large", "a", "3Gi", nodeSelector={"zone": "a"})
    found = plan([*four, large], ZONES)
    assert found.moves == ()
    assert ("pods-apart", ("shop/x-0", "shop/x-1")) in [(each.code, each.vms) for each in found.staying]
    three = plan([*four[:3], large], ZONES)
    assert moved(three) == [("x-0", "b")]


def test_which_nodes_are_compared() -> None:
    silent: Json = {"kubevirt.io/schedulable": "false"}
    closed = [node("c", cpu="80", cordoned=True), node("d", cpu="80", **silent)]
    found = plan(FOUR, [*TWO, *closed])
    assert [each.name for each in found.loads] == ["a", "b"]
    named = plan(FOUR, [*TWO, node("e", cpu="80")], named=("a", "e"))
    assert {each.to for each in named.moves} == {"e"}
    for name, what in (("z", "does not exist"), ("c", "takes no VMs")):
        with pytest.raises(InputError, match=what):
            plan(FOUR, [*TWO, *closed], named=(name,))


def test_what_a_migration_is() -> None:
    first = plan(FOUR).moves[0]
    assert first.migration["spec"] == {"vmiName": "vm-0", "addedNodeSelector": {"kubernetes.io/hostname": "b"}}
    assert first.migration["metadata"] == {"generateName": "balance-", "namespace": "shop"}


@thorough
@given(objects=random_clusters(), target=st.sampled_from([0, 5, 20]))
def test_each_step_fits_when_its_turn_comes_and_the_cluster_ends_where_the_plan_says(
    objects: ClusterObjects, target: int
) -> None:
    found, oracle = balance.plan(objects, Wanted(target)), Simulated(objects, ())
    compared = [each.name for each in found.loads]
    assert compared == [] or found.deviation_after <= found.deviation + 0.01
    for each in found.moves:
        assert oracle.on[each.name] == each.source
        assert each.to in oracle.fitting(each.name)
        before = oracle.broken()
        oracle.move(each.name, each.to)
        # What was broken before may be so still, and by no more.
        assert all(over <= before.get(rule, 0) for rule, over in oracle.broken().items())
    assert len({each.name for each in found.moves}) == len(found.moves)
    used = {name: _requested(oracle, [name]) for name in NAMES}
    for load in found.loads:
        assert (load.cpu_after, load.memory_after) == pytest.approx(used[load.name], abs=0.06)
    means = _requested(oracle, compared)
    highest = max((used[name][at] - means[at] for name in compared for at in (0, 1)), default=0)
    assert highest == pytest.approx(found.deviation_after, abs=0.01)
    assert found.is_reached == (highest <= target + 1e-9)


@thorough
@given(objects=random_clusters(), target=st.sampled_from([0, 5, 20]), unknown=st.sets(st.integers(0, 12)))
def test_what_a_plan_has_counted_the_next_plan_counts(objects: ClusterObjects, target: int, unknown: set[int]) -> None:
    """Whatever is not known of nodes and VMs; the plan that is left after its first move is that without it."""
    amounts = {name: (100 * number, number * 2**28) for number, name in enumerate(NAMES)}
    nodes = {name: each for number, (name, each) in enumerate(amounts.items()) if number not in unknown}
    vms = {
        (each.meta.namespace or "", each.meta.name or ""): (50 * number, number * 2**27)
        for number, each in enumerate(objects.vmis, len(NAMES))
        if number not in unknown
    }
    wanted = Wanted(target, usage=Usage("metrics", nodes, vms))
    found = balance.plan(objects, wanted)
    if found.moves:
        first = found.moves[0]
        left = balance.plan(_moved(objects, first), wanted, Course(found, (first,)))
        assert left.deviation == pytest.approx(first.deviation, abs=0.01)


def _moved(objects: ClusterObjects, move: Move) -> ClusterObjects:
    """The same, after a migration."""
    vmis = tuple(
        replace(each, status=replace(each.status, node_name=move.to))
        if each.status and each.meta.name == move.name
        else each
        for each in objects.vmis
    )
    names = f"virt-launcher-{move.name}", f"hp-volume-virt-launcher-{move.name}"
    pods = tuple(
        replace(each, spec=replace(each.spec, node_name=move.to)) if each.spec and each.meta.name in names else each
        for each in objects.pods
    )
    return replace(objects, vmis=vmis, pods=pods)


def _requested(oracle: Simulated, nodes: Sequence[str]) -> tuple[float, float]:
    """How much of nodes together the pods on them request, in percent."""
    shares = []
    for resource in ("cpu", "memory"):
        whole = sum(parse(oracle.nodes[name]["status"]["allocatable"][resource]).nanos for name in nodes)
        requests = (
            parse(str(each["resources"]["requests"].get(resource) or "0")).nanos
            for pod in oracle.pods
            if pod["spec"]["nodeName"] in nodes
            for each in pod["spec"]["containers"]
        )
        shares.append(100 * sum(requests) / whole if whole else 0.0)
    return shares[0], shares[1]
