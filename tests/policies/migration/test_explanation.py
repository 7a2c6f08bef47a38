from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json, config_of, installed, read_node
from tests.golden_files import Golden
from tests.placement.samples import affinity, expression, expressions
from tests.policies.decisions import answered
from tests.policies.migration import world as migrations
from tests.policies.migration.world import (
    AMD,
    CLAIMED,
    FOO,
    INTEL,
    NODES,
    PODS,
    VM,
    VMI,
    explained,
    facts,
    launcher,
    node,
    stored,
    vmi,
)
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey, Unreadable, from_memory
from webhook.k8s.types.meta import Unstructured
from webhook.k8s.types.selectors import Expression
from webhook.placement.index import NodeIndex
from webhook.placement.machines import CLAIMS, MIGRATIONS, PLACED_VMIS, VOLUMES, Claim, Migration, Vmi
from webhook.placement.quota import LIMIT_RANGES, QUOTAS, ResourceQuota
from webhook.placement.requirements import Label, Origin
from webhook.policies.common import migration_targets, volumes
from webhook.policies.migration import explanation
from webhook.policies.migration.explanation import Question


def test_where_a_vm_may_go(golden: Golden) -> None:
    answer = explained({"zone": "a"})

    assert (answer.schema, answer.namespace, answer.name) == (explanation.SCHEMA, "demo", "web01")
    assert (answer.running_on, answer.added_node_selector) == ("node-a1", {"zone": "a"})
    assert (answer.summary, answer.total) == ("1 of 4 nodes is eligible: node-a2", 4)
    assert (answer.eligible.count, answer.eligible.names, answer.favorable) == (1, ["node-a2"], True)
    assert (answer.contradictions, answer.obstacles, answer.gaps, answer.notes) == ((), (), (), ())
    golden(answer.kubevirt.text)
    assert [(reason.origin, reason.nodes.names, reason.alone) for reason in answer.reasons] == [
        ("added", ["node-b1", "node-b2"], 1),
        ("vendor", ["node-b2"], 0),
        ("source node", ["node-a1"], 1),
    ]
    assert answer.node is None


def test_every_node_is_in_one_place() -> None:
    answer = explained({"zone": "a"})
    groups = [name for group in answer.groups for name in group.nodes.names]
    assert sorted(groups + answer.eligible.names) == ["node-a1", "node-a2", "node-b1", "node-b2"]
    both = next(group for group in answer.groups if group.nodes.names == ["node-b2"])
    assert both.fails == (
        Label(Origin.ADDED, Expression.equals("zone", "a")).lacking,
        Label(Origin.VENDOR, Expression.equals(INTEL, "true")).lacking,
    )
    # However many there are.
    answer = explained({"zone": "a"}, nodes=[node(f"n{number:04}", "ab"[number % 2]) for number in range(3000)])
    assert answer.summary == "1500 of 3000 nodes are eligible: n0000, n0002, n0004, n0006, n0008 and 1495 more"
    assert len(answer.groups) == 1


def test_a_key_that_kubevirt_drops() -> None:
    answer = explained({"zone": "b"}, vmi({"zone": "a"}))
    (found,) = answer.contradictions
    assert answer.summary.endswith(f": {found.text}")
    assert "zone=b" in found.text
    assert "zone=a" in found.text
    assert (found.dropped, [why.origin for why in found.requirements]) == (True, ["added", "vm"])
    assert (answer.kubevirt.drops, answer.kubevirt.nodes.names) == (("zone=b",), ["node-a2"])
    assert "node-a2" in answer.kubevirt.text
    assert not answer.favorable


def test_a_key_that_takes_the_guards_place() -> None:
    answer = explained({AMD: "true"})
    assert answer.eligible.count == 0
    assert f"{INTEL}=true" in answer.kubevirt.text
    assert "node-b2" in answer.kubevirt.text
    assert answer.kubevirt.drops == ()
    (note,) = answer.notes
    assert AMD in note
    (of_both,) = explained({AMD: "true", "kubevirt.io/schedulable": "true"}).notes
    assert AMD in of_both
    assert "kubevirt.io/schedulable" in of_both


def test_what_kubevirt_alone_would_let_hang() -> None:
    answer = explained({"zone": "c"})
    lacking = Label(Origin.ADDED, Expression.equals("zone", "c")).lacking
    assert answer.summary.endswith(f"4 of 4 {lacking}")
    assert "Pending" in answer.kubevirt.text
    dropped = explained({"zone": "b", "disk": "x"}, vmi({"zone": "a"})).kubevirt
    assert dropped.drops == ("zone=b",)
    assert "Pending" in dropped.text


def test_several_nodes(golden: Golden) -> None:
    answer = explained()
    assert answer.summary == "2 of 4 nodes are eligible: node-a2, node-b1"
    golden(answer.kubevirt.text)
    many = explained(nodes=[node(f"n{number:02}", "a") for number in range(9)])
    assert many.summary == "9 of 9 nodes are eligible: n00, n01, n02, n03, n04 and 4 more"
    widened = explained({"zone": "b"}, vmi({"zone": "a"}), [node("node-a1", "a"), node("n2", "a"), node("n3", "a")])
    assert widened.kubevirt.text.endswith("migrate to one of 2 nodes: n2, n3")
    assert explained(nodes=[node("n1", "a")]).summary == "1 of 1 node is eligible: n1"


def test_an_empty_cluster(golden: Golden) -> None:
    answer = explained(nodes=[])
    golden(answer.summary)
    assert (answer.total, answer.reasons, answer.openings, answer.groups) == (0, (), (), ())


def reasons_of(answer: explanation.MigrationExplanation, origin: str) -> list[tuple[list[str], int]]:
    return [(reason.nodes.names, reason.alone) for reason in answer.reasons if reason.origin == origin]


def openings(answer: explanation.MigrationExplanation) -> list[tuple[str, list[str]]]:
    return [(opening.change, opening.nodes.names) for opening in answer.openings]


def test_changes_that_would_help(golden: Golden) -> None:
    taint = {"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}}
    dead: dict[str, Any] = {"kubevirt.io/schedulable": "false"}
    nodes = [
        node("node-a1", "a"),
        node("cordoned", "b", cordoned=True),
        node("tainted", "b") | taint,
        *(node(name, "b", **dead) for name in ("dead-1", "dead-2")),
        node("no-kvm", "b") | {"status": {"allocatable": {"devices.kubevirt.io/kvm": "0"}}},
        *(node(f"far-{number}", "c") for number in range(3)),
        node("amd", "b", AMD),
    ]
    found = openings(explained({"zone": "b"}, nodes=nodes))

    far = ["far-0", "far-1", "far-2"]
    assert [names for _, names in found] == [["dead-1", "dead-2"], ["tainted"], ["cordoned"], ["no-kvm"], far]
    golden("\n".join(change for change, _ in found))


def test_a_device_that_other_nodes_lack() -> None:
    answer = explained(nodes=migrations.ONE_DEVICE, more=migrations.requesting())
    assert (answer.eligible.count, answer.favorable) == (0, False)
    assert reasons_of(answer, "resources") == [(["node-a2", "node-b1"], 2)]
    assert openings(answer) == [(f"offer 1 {FOO} on more nodes", ["node-a2", "node-b1"])]
    one = explained(nodes=migrations.ONE_DEVICE, more=migrations.requesting(), node="node-b1").node
    assert one
    assert [why.text for why in one.reasons] == [f"the VM's pod requests 1 {FOO}; the node has 0 allocatable"]
    # One that the present node lacks as well is not taken into account.
    nodes = [migrations.offering(name) for name in ("node-a1", "node-a2")]
    lacking = explained(nodes=nodes, more=migrations.requesting())
    assert (lacking.eligible.names, [FOO in gap for gap in lacking.gaps]) == (["node-a2"], [True])


def test_changes_of_the_vm_itself(golden: Golden) -> None:
    spec = {"affinity": affinity(expressions(expression("disk", "In", "ssd")))}
    nodes = [node("node-a1", "a"), node("n2", "b", disk="ssd"), node("n3", "a", disk="hdd")]
    found = openings(explained(found=vmi({"zone": "a"}, **spec), nodes=nodes))
    assert [names for _, names in found] == [["n2"], ["n3"]]
    golden("\n".join(change for change, _ in found))


def test_one_node_with_all_reasons() -> None:
    answer = explained({"zone": "a"}, node="node-b2")
    assert answer.node
    assert not answer.favorable, "the question is whether it can go there"
    assert [why.origin for why in answer.node.reasons] == ["added", "vendor"]
    clause = Label(Origin.ADDED, Expression.equals("zone", "a")).clause
    assert answer.node.reasons[0].text == f"{clause}; the node has zone=b"
    fitting = explained({"zone": "a"}, node="node-a2")
    assert fitting.node
    assert (fitting.node.eligible, fitting.node.reasons, fitting.favorable) == (True, (), True)
    with pytest.raises(explanation.NotThere, match="n9 does not exist"):
        explained(node="n9")


def test_a_vm_that_kubevirt_will_not_migrate() -> None:
    def migratable(status: str, **more: str) -> explanation.MigrationExplanation:
        conditions = [{"type": "LiveMigratable", "status": status} | more]
        return explained(found=vmi() | {"status": {"nodeName": "node-a1", "conditions": conditions}})

    answer = migratable("False", reason="DisksNotLiveMigratable", message="not shared")

    (obstacle,) = answer.obstacles
    assert obstacle.endswith(": DisksNotLiveMigratable: not shared")
    assert (answer.eligible.count, answer.favorable) == (2, False)
    (unexplained,) = migratable("False").obstacles
    assert obstacle.startswith(unexplained)
    assert migratable("True").obstacles == migratable("Unknown").obstacles == ()


def test_a_vm_whose_name_is_longer_than_a_label_or_that_is_nowhere_yet() -> None:
    long = "v" * 64
    world = facts() | {ObjectKey(PLACED_VMIS, "demo", long): msgspec.convert(vmi(), Vmi)}
    answer = from_memory(explanation.explain(Question("demo", long, {}), Facts.of(world)))
    assert (answer.eligible.count, answer.favorable) == (2, False)
    assert answer.obstacles == (migration_targets.name_problem(long),)
    answer = explained(found=vmi() | {"status": {"phase": "Scheduling"}})
    assert (answer.running_on, len(answer.obstacles), len(answer.gaps)) == ("", 1, 2)


@pytest.mark.parametrize("version", ["1.8.1", "1.8.2"])
def test_a_vm_whose_persistent_state_kubevirt_does_not_find(version: str) -> None:
    found = vmi()
    found["status"] |= {"volumeStatus": [{"name": "persistent-state-for-a-name-that-was-cut-off"}]}
    answer = explained(found=found, more={KubeVirtKey(): installed(config_of(version))})
    problem = migration_targets.state_problem(msgspec.convert(found, Vmi), config_of(version).release)
    assert answer.obstacles == ((problem,) if version == "1.8.1" else ())
    assert answer.favorable is (version == "1.8.2")


def own_migration(phase: str, **status: Any) -> dict[Key[Any], object]:
    metadata = {"name": "m", "namespace": "demo", "uid": "uid-m"}
    found = {"metadata": metadata, "spec": {"vmiName": "web01"}, "status": {"phase": phase} | status}
    key = ListKey(MIGRATIONS, "demo", "kubevirt.io/vmi-name=web01")
    return {key: (msgspec.convert(found, Migration),)}


def test_a_migration_in_flight_excludes_another_one() -> None:
    assert (
        explained(more=own_migration("Succeeded")).obstacles == explained(more=own_migration("Failed")).obstacles == ()
    )
    answer = explained(more=own_migration("Running"))
    (obstacle,) = answer.obstacles
    assert "in-flight migration detected. Active migration job (uid-m)" in obstacle
    assert (answer.eligible.count, answer.favorable) == (2, False)
    condition = {"type": "migrationRejectedByResourceQuota", "status": "True"}
    (obstacle,) = explained(more=own_migration("Pending", conditions=[condition])).obstacles
    assert "in-flight" not in obstacle
    # The server does not read migrations for its users.
    assert explained(more=own_migration("Running"), reader=explanation.SERVER).obstacles == ()


@pytest.mark.parametrize(("minutes", "label", "is_gone"), [(1, "false", False), (6, "false", True), (6, "true", False)])
def test_virt_handler_of_the_source_has_to_send_the_guest(minutes: int, label: str, is_gone: bool) -> None:
    now = 1_795_867_200.0
    source = node("node-a1", "a")
    source["metadata"]["labels"]["kubevirt.io/schedulable"] = label
    seen = datetime.fromtimestamp(now - 60 * minutes, UTC).isoformat()
    source["metadata"]["annotations"] = {"kubevirt.io/heartbeat": seen}
    world = facts(nodes=[source, *NODES[1:]])
    answer = from_memory(explanation.explain(Question("demo", "web01", {}), Facts.of(world, now)))
    assert (bool(answer.obstacles), answer.favorable) == (is_gone, not is_gone)
    assert answer.eligible.count == 2


def test_a_node_that_does_not_exist_any_more_sends_no_guest() -> None:
    assert len(explained(nodes=NODES[1:]).obstacles) == 1


def test_a_vm_that_comes_from_another_cluster() -> None:
    waiting = explained(found=vmi() | {"status": {"phase": "WaitingForSync"}})
    state = {"sourceState": {"node": "node-a1", "nodeSelectors": {AMD: "true"}}}
    known = explained({"zone": "b"}, found=vmi() | {"status": {"phase": "WaitingForSync", "migrationState": state}})
    assert (waiting.obstacles, len(waiting.gaps)) == ((), 1)
    assert (known.eligible.names, known.obstacles, known.gaps, known.favorable) == (["node-b2"], (), (), True)
    assert "source node" in [reason.origin for reason in known.reasons]


@pytest.mark.parametrize(
    ("known", "options"),
    [
        ({VMI: None, VM: None}, {}),
        ({VMI: None, VM: Unavailable("403")}, {}),
        ({VMI: None, VM: Unstructured()}, {}),
        ({VMI: None, VM: Unstructured(status={"printableStatus": "Stopped"})}, {}),
        ({VMI: msgspec.convert({"status": {"phase": "Succeeded"}}, Vmi), VM: None}, {}),
        # The server does not read the VM either.
        ({VMI: None}, {"reader": explanation.SERVER}),
    ],
    ids=["no VM", "VM unreadable", "no VMI", "stopped", "ended", "by the server"],
)
def test_nothing_to_migrate(known: dict[Key[Any], object], options: dict[str, Any], golden: Golden) -> None:
    with pytest.raises(explanation.NotThere) as refused:
        explained(more=known, **options)
    golden(str(refused.value))


@pytest.mark.parametrize("key", [VMI, NodesKey(), PODS])
def test_not_knowing_is_no_answer(key: Key[Any]) -> None:
    with pytest.raises(Unreadable, match=": 403"):
        explained(more={key: Unavailable("403")})


def test_facts_are_asked_for_together() -> None:
    """In each batch, which is a round trip, all that the ones before have shown to be needed."""
    world = facts(vmi(volumes=CLAIMED)) | stored("a")
    _, batches = answered(explanation.explain(Question("demo", "web01", {"zone": "a"}), Facts()), world)
    quotas, migrations = ListKey(QUOTAS, "demo"), ListKey(MIGRATIONS, "demo", "kubevirt.io/vmi-name=web01")
    claims = tuple(ObjectKey(CLAIMS, "demo", name) for name in ("web01-data", "web01-root", "gone"))
    assert batches == [
        (VMI,),
        (NodesKey(), KubeVirtKey(), PODS, quotas, migrations),
        claims,
        (ObjectKey(VOLUMES, "", "pv-1"),),
    ]


@pytest.mark.parametrize("gone", ["node-a1", "node-a2"])
@pytest.mark.parametrize("batch", range(4))
def test_it_rests_on_the_nodes_of_one_moment(gone: str, batch: int) -> None:
    """Their index changes while volumes and migrations are read: the last state counts, for every part of it."""
    asked: list[object] = []
    nodes = NodeIndex(map(read_node, NODES))

    def meanwhile(keys: object) -> None:
        if len(asked) == batch:
            nodes.remove(gone)
        asked.append(keys)

    known = facts(vmi(volumes=CLAIMED)) | stored("a")
    question = Question("demo", "web01", {"zone": "a"}, node="node-b1")
    found, batches = answered(explanation.explain(question, Facts()), {**known, NodesKey(): nodes}, meanwhile)
    left = NodeIndex(read_node(each) for each in NODES if each["metadata"]["name"] != gone)
    then, _ = answered(explanation.explain(question, Facts()), {**known, NodesKey(): left})
    assert (found, len(batches)) == (then, 4)


names = st.sampled_from(["node-a1", "node-a2", "node-b1", "x"])
zones = st.sampled_from(["a", "b", "c"])


@given(
    st.dictionaries(names, zones),
    st.dictionaries(st.sampled_from(["zone", "disk", INTEL, AMD, "kubevirt.io/schedulable"]), zones),
    st.dictionaries(st.just("zone"), zones),
)
def test_it_adds_up(places: dict[str, str], added: dict[str, str], own: dict[str, str]) -> None:
    nodes = [node(name, zone) for name, zone in places.items()]
    answer = explained(added, vmi(own), nodes)
    outside = [name for group in answer.groups for name in group.nodes.names]

    assert (answer.total, sorted([*answer.eligible.names, *outside])) == (len(places), sorted(places))
    assert {name for reason in answer.reasons for name in reason.nodes.names} == set(outside)
    assert sum(reason.alone for reason in answer.reasons) <= len(outside)
    # KubeVirt alone requires less: it can only reach more nodes.
    assert set(answer.eligible.names) <= set(answer.kubevirt.nodes.names)
    assert all(set(opening.nodes.names) <= set(outside) for opening in answer.openings)
    if answer.contradictions:
        assert not answer.eligible.count
    for name in places:
        one = explained(added, vmi(own), nodes, node=name).node
        assert one and one.eligible == (name in answer.eligible.names)
    assert msgspec.json.decode(msgspec.json.encode(answer), type=explanation.MigrationExplanation) == answer


def test_volumes_that_only_some_nodes_reach() -> None:
    found = vmi(volumes=CLAIMED)
    answer = explained(found=found, more=stored("a"))
    assert (answer.eligible.names, answer.notes) == (["node-a2"], ())
    assert reasons_of(answer, "volumes") == [(["node-b1", "node-b2"], 1)]
    assert explained(found=found, more=stored("a") | {ObjectKey(VOLUMES, "", "pv-1"): None}).notes == ()
    unread = explained(found=found, more=stored("a") | {ObjectKey(VOLUMES, "", "pv-1"): Unavailable("403")})
    (gap,) = [gap for gap in unread.gaps if gap not in answer.gaps]
    assert "PersistentVolume pv-1" in gap
    assert gap.endswith("403")
    # They count where no node is eligible, too.
    answer = explained({"zone": "c"}, vmi(volumes=CLAIMED), more=stored("a"))
    assert [names for names, _ in reasons_of(answer, "volumes")] == [["node-b1", "node-b2"]]
    # Without the selector, the volumes still keep the VM in its zone.
    assert ([opening.nodes.names for opening in answer.openings], answer.notes) == ([["node-a2"]], ())


@pytest.mark.parametrize("by_status", [False, True])
def test_hotplugged_volumes_need_a_node_that_attaches_them(by_status: bool) -> None:
    """kube-scheduler does not know of them; KubeVirt's status shows those that the spec does not."""
    source = {"claimName": "web01-data"} | ({} if by_status else {"hotpluggable": True})
    found = vmi(volumes=[{"name": "data", "persistentVolumeClaim": source}])
    if by_status:
        found["status"]["volumeStatus"] = [{"name": "data", "hotplugVolume": {}}]
    answer = explained(found=found, more=stored("a"))
    assert answer.eligible.names == ["node-a2"]
    slot, strays = answer.notes
    assert "(data)" in slot
    assert "1 more node" in strays


@pytest.mark.control("nodes-of-a-volume")
def test_volumes_are_left_alone_where_the_reader_may_not_see_them() -> None:
    answer = explained(found=vmi(volumes=CLAIMED), reader=explanation.FactPermissions(without_volumes="alice may not"))
    (gap,) = answer.gaps
    assert gap.endswith("alice may not")


@pytest.mark.control("thousands-of-volumes")
def test_a_vm_with_thousands_of_volumes_has_some_read_and_the_rest_reported() -> None:
    claims = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(3000)]
    given: dict[Key[Any], object] = {ObjectKey(CLAIMS, "demo", f"c{n}"): Claim() for n in range(volumes.MAX_CLAIMS)}
    answer = explained(found=vmi(volumes=claims), more=given)
    limit, unbound = answer.gaps
    assert f"{3000 - volumes.MAX_CLAIMS} more volumes" in limit
    assert f"{volumes.MAX_CLAIMS - 5} more" in unbound


def shown(
    added: dict[str, str] | None = None, first: int = 0, count: int = 50, name: str = ""
) -> explanation.PlacementMatrix:
    question = Question("demo", "web01", added or {}, name, explanation.SERVER)
    return from_memory(explanation.matrix(question, Facts.of(facts()), first=first, count=count))


def test_eligible_nodes_come_first_and_cells_say_what_a_node_has() -> None:
    found = shown({"zone": "b"})
    unmet = [(row.node, row.unmet) for row in found.rows]
    assert unmet == [("node-b1", 0), ("node-a2", 1), ("node-b2", 1), ("node-a1", 2)]
    assert [column.origin for column in found.columns] == ["added", "vendor", "source node"]
    assert [bool(cell) for cell in found.rows[-1].cells] == [True, False, True]
    assert not any(found.rows[0].cells)
    assert shown({"zone": "nowhere"}).selectors == shown().selectors != ()
    with pytest.raises(explanation.NotThere):
        shown(name="nobody")


@pytest.mark.parametrize("added", [{}, {"zone": "b"}, {"zone": "nowhere"}, {"kubernetes.io/arch": "arm64"}])
def test_the_matrix_and_the_explanation_agree(added: dict[str, str]) -> None:
    found = shown(added)
    question = Question("demo", "web01", added, reader=explanation.SERVER)
    answer = from_memory(explanation.explain(question, Facts.of(facts())))
    assert found.explanation == answer
    assert sorted(row.node for row in found.rows if not row.unmet) == answer.eligible.names
    lacking = {reason.text: set(reason.nodes.names) for reason in answer.reasons}
    for place, column in enumerate(found.columns):
        assert {row.node for row in found.rows if row.cells[place]} in lacking.values()
        assert column.count == sum(bool(row.cells[place]) for row in found.rows)


@given(st.integers(0, 10), st.integers(1, 10))
def test_parts_are_parts_of_the_whole(first: int, count: int) -> None:
    assert shown({"zone": "b"}, first, count).rows == shown({"zone": "b"}).rows[first : first + count]


def test_volumes_are_requirements_as_in_the_explanation() -> None:
    """Those of the command: both say of every node the same, and no selector leads away from the disks."""
    world = facts(vmi(volumes=CLAIMED)) | stored("a")
    question = Question("demo", "web01", {"zone": "b"}, reader=explanation.SERVER)
    found = from_memory(explanation.matrix(question, Facts.of(world)))
    assert found.explanation == from_memory(explanation.explain(question, Facts.of(world)))
    place = [column.origin for column in found.columns].index("volumes")
    assert {row.node for row in found.rows if row.cells[place]} == {"node-b1", "node-b2"}
    assert not any(row.unmet == 0 for row in found.rows)
    assert not any((each.key, each.value) == ("zone", "b") for each in found.selectors)


@pytest.mark.control("page-takes-the-processor")
def test_the_work_of_one_part_does_not_grow_with_the_cluster() -> None:
    steps = []
    for count in (100, 5000):
        known = Facts.of(facts(nodes=[node(f"n{number:05}", "abc"[number % 3]) for number in range(count)]))
        question = Question("demo", "web01", {"zone": "b"}, reader=explanation.SERVER)
        assert len(known.budget.run(from_memory, explanation.matrix(question, known, first=50)).rows) == 50
        steps.append(known.budget.spent)
    assert steps[0] == steps[1] < 1000


def test_five_thousand_nodes_with_a_taint_each_have_a_few_columns() -> None:
    taints = [{"taints": [{"key": f"t{number}", "effect": "NoSchedule"}]} for number in range(5000)]
    nodes = [node(f"n{number:05}", "a") | {"spec": spec} for number, spec in enumerate(taints)]
    question = Question("demo", "web01", {}, reader=explanation.SERVER)
    found = from_memory(explanation.matrix(question, Facts.of(facts(nodes=nodes))))
    assert (len(found.columns), len(found.rows), found.more_columns) == (
        explanation.MAX_COLUMNS,
        50,
        5000 - explanation.MAX_COLUMNS,
    )
    assert all(row.unmet == 1 for row in found.rows)


MIGRATIONS_OF_VM = ListKey(MIGRATIONS, "demo", "kubevirt.io/vmi-name=web01")
QUOTAS_OF = ListKey(QUOTAS, "demo")
DENYING: Json = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}


def in_flight(phase: str) -> tuple[Migration, ...]:
    metadata = {"name": "m", "namespace": "demo", "uid": "u"}
    made = {"metadata": metadata, "spec": {"vmiName": "web01"}, "status": {"phase": phase}}
    return (msgspec.convert(made, Migration),)


def silent_source() -> list[Json]:
    first, *others = migrations.NODES
    metadata = first["metadata"]
    labels, annotations = metadata["labels"] | {"kubevirt.io/schedulable": "false"}, {"kubevirt.io/heartbeat": "2026"}
    return [first | {"metadata": metadata | {"labels": labels, "annotations": annotations}}, *others]


@pytest.mark.parametrize(
    ("options", "obstacles"),
    [
        ({}, 0),
        ({"more": {MIGRATIONS_OF_VM: in_flight("Failed")}}, 0),
        ({"more": {MIGRATIONS_OF_VM: in_flight("Running")}}, 1),
        ({"more": {QUOTAS_OF: (msgspec.convert(DENYING, ResourceQuota),), ListKey(LIMIT_RANGES, "demo"): ()}}, 1),
        ({"nodes": silent_source()}, 1),
        ({"nodes": migrations.NODES[1:]}, 1),
        ({"found": vmi(domain={"cpu": {"model": "host-model"}})}, 1),
        ({"added": {"zone": "b"}, "more": {MIGRATIONS_OF_VM: in_flight("")}}, 1),
    ],
)
def test_what_kubevirt_would_do_agrees_with_the_verdict(options: dict[str, Any], obstacles: int) -> None:
    """An obstacle stands in KubeVirt's way, too: no sentence names nodes to which it would go."""
    answer = explained(**{"added": {}} | options)
    assert (len(answer.obstacles), answer.favorable) == (obstacles, not obstacles)
    assert any(name in answer.kubevirt.text for name in answer.kubevirt.nodes.names) is False
    assert ("go to" in answer.kubevirt.text) == (not obstacles)


@pytest.mark.parametrize(
    ("strategy", "migratable", "marked", "says"),
    [
        ("LiveMigrate", "True", None, ""),
        ("LiveMigrate", "True", "node-a1", "still evacuates it from node-a1"),
        ("LiveMigrateIfPossible", "True", "node-a1", "still evacuates it from node-a1"),
        ("LiveMigrate", "False", "node-a1", "is not live-migratable"),
        ("None", "True", "node-a1", "evictionStrategy is None"),
        ("External", "True", "node-a1", "another controller"),
        ("LiveMigrate", "True", "node-b1", "the evacuation of node-b1, where it does not run"),
    ],
)
def test_an_evacuation_that_goes_on_is_said(strategy: str, migratable: str, marked: str | None, says: str) -> None:
    status = {"nodeName": "node-a1", "conditions": [{"type": "LiveMigratable", "status": migratable}]}
    found = vmi(evictionStrategy=strategy) | {"status": status | {"evacuationNodeName": marked}}
    answer = explained(found=found)
    assert says in answer.evacuation
    assert bool(answer.evacuation) == (marked is not None)
    # The node that virt-api compares.
    assert f'{{"evacuationNodeName":"{marked}"}}' in answer.evacuation or not marked


def test_a_hotplug_that_waits_for_a_migration_is_said() -> None:
    conditions = [{"type": "LiveMigratable", "status": "True"}, {"type": "HotMemoryChange", "status": "True"}]
    status = {"nodeName": "node-a1", "phase": "Running", "conditions": conditions}
    answer = explained(found=vmi() | {"status": status})
    assert "HotMemoryChange" in answer.hotplug
    assert "only if its workloadUpdateMethods has LiveMigrate" in answer.hotplug
    assert (explained().hotplug, answer.favorable) == ("", True)


@pytest.mark.parametrize(
    ("conditions", "is_decided"),
    [
        ([], False),
        ([{"type": "LiveMigratable", "status": "Unknown"}], False),
        ([{"type": "LiveMigratable", "status": "True"}], True),
        ([{"type": "LiveMigratable", "status": "False"}], True),
    ],
)
def test_what_kubevirt_has_not_decided_is_told(conditions: Any, is_decided: bool) -> None:
    """Or the same VM is called one that can migrate here, and one that cannot where it is evicted."""
    found = vmi()
    found["status"]["conditions"] = conditions
    assert bool(explained(found=found).undecided) != is_decided


@pytest.mark.parametrize(
    ("terms", "gaps", "count"),
    [
        (None, 0, ""),
        ([expressions(expression("zone", "In", "b"))], 1, "1 of 2 eligible nodes meets it"),
        ([expressions(expression("zone", "In", "a", "b"))], 1, "2 of 2 eligible nodes meet it"),
    ],
)
def test_affinity_that_others_put_into_the_present_pod(terms: Any, gaps: int, count: str) -> None:
    """It rules no node out: what put it there need not put it into the target pod."""
    pod = launcher(nodeSelector={}, **({"affinity": affinity(*terms)} if terms else {}))
    answer = explained(more={PODS: (pod,)})
    assert (answer.eligible.names, len(answer.gaps)) == (["node-a2", "node-b1"], gaps)
    assert all(count in gap for gap in answer.gaps)
    of_vm = {"affinity": affinity(*terms)} if terms else {}
    # The VM's own.
    assert explained(found=vmi(**of_vm), more={PODS: (pod,)}).gaps == ()
