"""What is read of nodes, VMIs, migrations and volumes; and what no object is."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from itertools import count, cycle
from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config_of, read_node
from tests.placement import samples
from tests.placement.samples import FOO, KEYS, affinity, expression, expressions, node, reasons_by_node, thorough, vmi
from webhook.errors import InputError
from webhook.k8s.quantity import nanos, parse
from webhook.k8s.types.scheduling import Placed, Taint, Toleration
from webhook.k8s.types.selectors import Expression, Term
from webhook.placement import nodes as module
from webhook.placement.index import NodeIndex
from webhook.placement.machines import Claim, Migration, PersistentVolume, SourceState, Vmi
from webhook.placement.nodes import CORDON, KVM_DEVICE, Labels, Node, Tolerated, parse_allocatable, plain_labels
from webhook.placement.requirements import contradictions
from webhook.placement.target_pods import own_requirements

SUFFIXES = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000), "Ki": Fraction(1024), "Gi": Fraction(2**30)}
RESOURCES = st.sampled_from(["cpu", "memory", "hugepages-1Gi", FOO])


@pytest.mark.parametrize(
    ("resource", "value", "amount"),
    [
        ("cpu", "1500m", 1500),
        ("cpu", 2, 2000),
        ("cpu", "100u", 1),
        ("memory", "2299Mi", 2299 * 2**20),
        ("memory", "100m", 1),
        ("memory", 1.5, 2),
        ("hugepages-2Mi", "1Gi", 2**30),
        (FOO, "1k", 1000),
        (FOO, "0", 0),
        ("ephemeral-storage", "50M", 50_000_000),
    ],
)
def test_amounts_are_counted_as_the_scheduler_counts_them(resource: str, value: Any, amount: int) -> None:
    known = nanos(value)
    assert known is not None
    assert module.to_scheduler_units(resource, known) == amount
    assert parse_allocatable({resource: value}) == {resource: amount}


@given(number=st.decimals(min_value=0, max_value=10**6, places=3), suffix=st.sampled_from([*SUFFIXES]), name=RESOURCES)
def test_fractions_of_a_unit_are_rounded_up(number: Any, suffix: str, name: str) -> None:
    exact = Fraction(number) * SUFFIXES[suffix] * (1000 if name == "cpu" else 1)
    assert parse_allocatable({name: f"{number}{suffix}"}) == {name: ceil(exact)}


@given(asked=st.integers(0, 2**62), short=st.integers(1, 2**32), resource=RESOURCES)
def test_less_than_is_requested_shows_as_less(asked: int, short: int, resource: str) -> None:
    has = max(0, asked - short)
    shown_asked = parse(module.format_amount(resource, asked))
    shown_has = parse(module.format_amount(resource, has, is_offer=True))
    assert module.to_scheduler_units(resource, shown_has.nanos) <= has
    assert module.to_scheduler_units(resource, shown_asked.nanos) >= asked
    assert shown_has < shown_asked or not asked


@pytest.mark.parametrize(
    ("resource", "amount", "request_", "offer"),
    [
        ("cpu", 1500, "1500m", "1500m"),
        ("cpu", 16000, "16", "16"),
        ("memory", 2299 * 2**20, "2299Mi", "2299Mi"),
        ("memory", 2299 * 2**20 + 1, "2300Mi", "2299Mi"),
        ("ephemeral-storage", 2299 * 2**20 + 1, "2300Mi", "2299Mi"),
        ("memory", 1000, "1k", "1k"),
        ("hugepages-2Mi", 2**30, "1Gi", "1Gi"),
        (FOO, 4, "4", "4"),
    ],
)
def test_amounts_are_written_as_kubernetes_writes_them(resource: str, amount: int, request_: str, offer: str) -> None:
    assert module.format_amount(resource, amount) == request_
    assert module.format_amount(resource, amount, is_offer=True) == offer


@pytest.mark.parametrize(
    ("resources", "is_counted", "is_extended"),
    [
        (("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "attachable-volumes-csi"), True, False),
        ((FOO,), True, True),
        (("kubernetes.io/foo",), True, False),
        (("foo",), False, False),
        (("requests.example.com/foo",), False, True),
    ],
)
def test_what_the_scheduler_compares(resources: tuple[str, ...], is_counted: bool, is_extended: bool) -> None:
    for resource in resources:
        assert module.is_counted_resource(resource) is is_counted
        assert (resource in parse_allocatable({resource: "1"})) is is_counted
        assert module.is_extended_resource(resource) is is_extended, "a device plugin provides it"


def test_what_is_not_a_quantity_or_has_yet_to_be_reported_is_no_reason_against_a_node() -> None:
    assert nanos("much") is None
    assert parse_allocatable({FOO: "much", "memory": None}) == {FOO: 2**63 - 1}
    reported = node(allocatable={KVM_DEVICE: "110"})
    for resource in ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", FOO):
        assert reported.lacks(resource, 1) is (resource in ("hugepages-2Mi", FOO))


# -- labels: as the dictionary that they were; nodes of one kind share the table of their keys -------------------------

TEXTS = st.text("abc", max_size=2)


@given(st.dictionaries(TEXTS, TEXTS), st.dictionaries(TEXTS, TEXTS), TEXTS)
def test_as_a_dictionary(one: dict[str, str], other: dict[str, str], key: str) -> None:
    labels = Labels(one)
    assert dict(labels) == one
    assert list(labels.items()) == list(one.items())
    for asked in (len, lambda each: key in each, lambda each: each.get(key), lambda each: each.get(key, "x")):
        assert asked(labels) == asked(one)
    assert labels.keys() == one.keys()
    assert plain_labels(labels) == plain_labels(one) == one
    assert labels == Labels(one) == one
    assert (labels == Labels(other)) == (labels == other) == (one == other)
    assert labels == Labels(dict(reversed(one.items())))
    assert labels != ()
    assert repr(labels) == f"Labels({one!r})"


@given(st.dictionaries(TEXTS, TEXTS), st.lists(TEXTS, max_size=3))
def test_labels_with_a_prefix(one: dict[str, str], prefixes: list[str]) -> None:
    for prefix in prefixes * 2:
        for each in (Labels(one), Labels(dict.fromkeys(one, "x")), one):
            found = module.labels_starting_with(each, prefix, "x/")
            those = sorted(item for item in each.items() if item[0].startswith(prefix))
            assert list(found.items()) == [(f"x/{key[len(prefix) :]}", value) for key, value in those]


def test_nodes_take_a_tenth_of_what_dictionaries_take_or_with_other_values_a_third() -> None:
    def bytes_of(make: Callable[[], object]) -> int:
        gc.collect()
        tracemalloc.start()
        try:
            kept = [make() for _ in range(600)]
            return tracemalloc.get_traced_memory()[0] if kept else 0
        finally:
            tracemalloc.stop()

    keys, hosts = [f"key-{number}" for number in range(120)], map(str, count())
    values = cycle([dict.fromkeys(keys, value) for value in "abcd"])

    def written() -> dict[str, str]:
        return dict.fromkeys(keys, "value") | {"key-7": next(hosts)}

    assert bytes_of(lambda: Labels(written())) * 10 < bytes_of(written)
    assert bytes_of(lambda: Labels(next(values))) * 3 < bytes_of(lambda: dict(next(values)))


def test_keys_are_in_memory_once_however_many_sets_of_them_nodes_have() -> None:
    """Each node that an informer brings has texts of its own, and in a mixed cluster keys of its own."""
    features = [f"cpu-feature.node.kubevirt.io/{name}" for name in range(200)]
    sets = [[key for key in features if key != left_out] for left_out in features]
    gc.collect()
    tracemalloc.start()
    try:
        kept = [Labels(msgspec.json.decode(msgspec.json.encode(dict.fromkeys(keys, "true")))) for keys in sets]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # 200 x 200 texts would be 3.4 MB, each set's table of pointers and indexes is 12 KB.
    assert taken < 13_000 * len(kept)


def test_values_are_those_of_each_node() -> None:
    usual = {f"key-{number}": "value" for number in range(20)}
    many = dict.fromkeys([*usual][:9], "y")
    first, second, third = (Labels(usual | own) for own in ({}, {"key-3": "x"}, many))
    assert [each["key-3"] for each in (first, second, third)] == ["value", "x", "y"]
    assert [each.get("key-9") for each in (first, second, third)] == ["value"] * 3
    assert (first == second, second == third, second == Labels(usual | {"key-3": "x"})) == (False, False, True)
    assert dict(third) == third.as_dict() == usual | many


def test_what_is_kept_of_a_node() -> None:
    taints = [
        {"key": "b", "effect": "NoSchedule"},
        {"key": "a", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "b", "value": "", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "other", "effect": None},
    ]
    kept = node("n1", {"zone": "a"}, taints=taints)

    labels = {"kubernetes.io/hostname": "n1", "zone": "a"}
    assert kept == Node("n1", labels, (Taint("a", "x", "NoExecute"), Taint("b", "", "NoSchedule")))
    assert [str(taint) for taint in kept.taints] == ["a=x:NoExecute", "b:NoSchedule"]
    assert read_node({"metadata": {"name": "n"}}) == Node("n", {})
    assert read_node({"metadata": {"name": "n", "labels": None}, "spec": None, "status": {}}) == Node("n", {})
    # A cordoned node has no second reason in its taint.
    taint = {"key": CORDON.key, "effect": CORDON.effect}
    assert node("n1", taints=[taint], cordoned=True).taints == ()
    assert node("n1", taints=[taint]).taints == (CORDON,)
    assert node("n1", taints=[{**taint, "value": "x"}], cordoned=True).taints != ()


def maintained(message: str) -> dict[str, str]:
    return {"type": "MaintenancePlanned", "status": "True", "message": message}


MAINTENANCE = "will be emptied for maintenance"
LATER, PAST = "at 1970-01-01T02:00:01Z", "since 1970-01-01T00:30:00Z"
UPGRADED = {"type": "DrainInProgress", "status": "True", "reason": "Upgrade"}


@pytest.mark.parametrize(
    ("conditions", "taint_effect", "clause"),
    [
        ([{"type": "Ready", "status": "True"}], None, None),
        ([{"type": "Drained", "status": "Unknown"}], None, None),
        ([], "PreferNoSchedule", None),
        ([maintained(""), {"type": "Drained", "status": "True"}], None, "is being emptied (Drained)"),
        ([UPGRADED], None, "is being emptied (DrainInProgress: Upgrade)"),
        ([], "NoSchedule", "is being emptied (taint medik8s.io/drain:NoSchedule)"),
        ([maintained("new disks")], None, f"{MAINTENANCE} (MaintenancePlanned: new disks)"),
        ([maintained(LATER)], None, f"{MAINTENANCE} in 1h 21m (MaintenancePlanned: {LATER})"),
        ([maintained(PAST)], None, f"{MAINTENANCE} (MaintenancePlanned: {PAST})"),
    ],
)
def test_why_vms_leave_a_node(conditions: Any, taint_effect: str | None, clause: str | None) -> None:
    spec = {"taints": [{"key": "medik8s.io/drain", "effect": taint_effect}]} if taint_effect else {}
    found = read_node({"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}})
    assert (found.departure and found.departure.clause(now=2400.0)) == clause
    assert found.is_being_emptied is bool(clause and clause.startswith("is"))


@pytest.mark.parametrize("metadata", [{}, {"name": ""}])
def test_a_node_without_a_name_is_none(metadata: Any) -> None:
    with pytest.raises(InputError, match="a node's metadata: has no name"):
        read_node({"metadata": metadata})


def test_what_is_absent_or_null_reads_as_nothing() -> None:
    assert msgspec.convert({"spec": None}, Vmi) == msgspec.convert({}, Vmi) == Vmi()
    assert msgspec.convert({"tolerations": None, "unknown": {"a": [1]}}, Placed) == Placed()


NAMES = [
    *("nodeSelector", "affinity", "tolerations", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    *("nodeSelectorTerms", "matchExpressions", "matchFields", "key", "operator", "values", "effect", "value"),
]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.sampled_from(["In", "Gt", "1", *KEYS])
)
garbage = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
terms: Any = st.lists(st.dictionaries(st.sampled_from(NAMES[5:]), garbage, max_size=3) | garbage, max_size=3)
NODES = [Node("n1", {"zone": "a", "rank": "5"}), Node("n2", {})]


@given(near=garbage | terms.map(lambda them: affinity(*them)), tolerations=garbage, selector=garbage)
def test_garbage_ends_with_an_answer_or_a_sentence(near: Any, tolerations: Any, selector: Any) -> None:
    spec = {"nodeSelector": selector, "affinity": near, "tolerations": tolerations}
    try:
        requirements = tuple(own_requirements(msgspec.convert(spec, Placed)))
    except msgspec.ValidationError:
        return
    answer = samples.reasons_node_by_node(requirements, NODES)
    assert reasons_by_node(NodeIndex(NODES).review(requirements), NODES) == answer
    assert all(str(reason) for reasons in answer.values() for reason in reasons)
    assert all(str(each) for each in contradictions(requirements))


@given(taints=garbage)
def test_garbage_in_taints_is_a_node_or_a_sentence(taints: Any) -> None:
    try:
        found = read_node({"metadata": {"name": "n"}, "spec": {"taints": taints}})
    except msgspec.ValidationError:
        return
    assert all(taint.effect in ("NoSchedule", "NoExecute") for taint in found.taints)


@given(st.sets(st.integers(0, 200)))
def test_the_items_of_the_set_are_chosen_in_order(members: set[int]) -> None:
    bits = sum(1 << member for member in members)
    assert list(module.bitset_items(bits, range(201))) == list(module.bitset_positions(bits)) == sorted(members)


_texts = st.sampled_from([None, "", "a", "b"])
_operators = st.sampled_from([None, "", "Equal", "Exists", "Gt", "equal"])
_effects = st.sampled_from(["NoSchedule", "NoExecute"])
_tolerations = st.builds(Toleration, _texts, _operators, _texts, _effects | st.sampled_from([None, ""]))
_taints = st.builds(Taint, st.sampled_from(["", "a", "b"]), st.sampled_from(["", "a"]), _effects)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    fits = toleration.effect in (None, "", taint.effect) and toleration.key in (None, "", taint.key)
    equal = toleration.operator in (None, "", "Equal") and (toleration.value or "") == taint.value
    return fits and (equal or toleration.operator == "Exists")


@thorough
@given(st.lists(_tolerations, max_size=4), _taints)
def test_found_at_once_is_found_one_by_one(tolerations: list[Toleration], taint: Taint) -> None:
    assert Tolerated(tolerations).covers(taint) is any(_covers(each, taint) for each in tolerations)


FROM_FAR = {"migrationState": {"sourceState": {"node": "far"}}}


@pytest.mark.parametrize(
    ("spec", "receives", "sends"),
    [
        ({"receive": {"migrationID": "x"}}, True, False),
        ({"sendTo": {"migrationID": "x"}}, False, True),
        # KubeVirt takes both together for a migration within the cluster.
        *(({"sendTo": {}, "receive": {}}, False, False), ({"sendTo": None}, False, False)),
        *(({}, False, False), (None, False, False)),
    ],
)
def test_migrations_between_clusters(spec: Any, receives: bool, sends: bool) -> None:
    migration = msgspec.convert({"spec": spec}, Migration)
    assert (migration.receives, migration.sends) == (receives, sends)


@pytest.mark.parametrize(("spec", "added"), [({"addedNodeSelector": {"a": "b"}}, {"a": "b"}), ({}, {}), (None, {})])
def test_what_a_migration_adds(spec: Any, added: dict[str, str]) -> None:
    assert msgspec.convert({"spec": spec}, Migration).added_selector == added
    assert Migration.adding(added).added_selector == added
    assert (Migration.adding(added, receives=True).receives, Migration.adding(added).receives) == (True, False)


def test_the_receiving_half() -> None:
    waiting: list[Any] = [{"phase": "WaitingForSync"}, {"phase": "Scheduling", **FROM_FAR}]
    others: list[Any] = [{"phase": "Scheduling"}, {"phase": "Running", "nodeName": "n1", **FROM_FAR}, None]
    found = [msgspec.convert({"status": each}, Vmi).waits_for_source for each in waiting + others]
    assert found == [True] * 2 + [False] * 3


def test_terms_keep_their_places() -> None:
    near = affinity({}, None, expressions(expression("zone", "In", "a"), None))
    placed = msgspec.convert({"affinity": near}, Placed)
    assert placed.required_affinity
    empty, null, spoiled = placed.required_affinity.terms()
    assert empty == null == Term()
    assert spoiled.expressions == (Expression.equals("zone", "a"), Expression("", ""))
    assert {problem.partition(": ")[0] for problem in spoiled.problems} == {"nodeSelectorTerms[2].matchExpressions[1]"}


@pytest.mark.parametrize(
    "affinity", [{"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}, {}, None]
)
def test_only_required_affinity_counts(affinity: Any) -> None:
    assert msgspec.convert({"affinity": affinity}, Placed).required_affinity is None


def test_what_is_read_of_a_vmi_and_its_claims() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "b", "dataVolume": {"name": "data"}},
        {"name": "c", "containerDisk": {"image": "x"}},
        {"persistentVolumeClaim": {}},
        {"dataVolume": {}},
        None,
    ]
    spec = vmi({"volumes": volumes}).spec
    assert spec
    assert [volume.claim if volume else None for volume in spec.volumes or ()] == ["claim", "data", "", "", "", None]
    assert msgspec.convert({"spec": {"volumeName": "pv"}}, Claim).volume == "pv"
    assert Claim().volume == msgspec.convert({"spec": {}}, Claim).volume == ""
    in_a = {"required": {"nodeSelectorTerms": [expressions(expression("zone", "In", "a"))]}}
    for near, terms in ((in_a, ["zone=a"]), ({}, [])):
        volume = msgspec.convert({"spec": {"nodeAffinity": near}}, PersistentVolume)
        assert [str(term) for term in volume.terms] == terms
    assert (vmi(nodeName="n1").node_name, Vmi().node_name, vmi().node_name) == ("n1", "", "")
    ended = [phase for phase in ("Running", "Succeeded", "Failed", None) if vmi(phase=phase).has_ended]
    assert (ended, Vmi().has_ended) == (["Succeeded", "Failed"], False)
    far = vmi(migrationState={"sourceState": {"node": "far", "nodeSelectors": {"a": "b"}}})
    assert far.source_state == SourceState("far", {"a": "b"})
    assert vmi().source_state == vmi(migrationState={}).source_state == SourceState()
    found = vmi(conditions=[None, {"type": "Ready"}, {"type": "LiveMigratable", "status": "False"}])
    assert (found.condition("LiveMigratable") or found).status == "False"
    assert found.condition("Paused") is vmi().condition("Ready") is Vmi().condition("Ready") is None


GATE = {"developerConfiguration": {"featureGates": ["ConfigurableHypervisor"]}}
DIRECT = {"hypervisors": [{"name": "hyperv-direct"}]}
NEEDING: list[Any] = [{}, None, {"hypervisors": []}, DIRECT, GATE]


@pytest.mark.parametrize(
    ("version", "configuration", "needed"),
    [
        *(("1.9", each, True) for each in NEEDING),
        ("1.9", {"hypervisors": [{"name": "kvm"}], **GATE}, True),
        ("1.9", DIRECT | GATE, False),
        ("1.9", {"developerConfiguration": {"useEmulation": True}}, False),
        # Since 1.8 they are configured.
        *(("1.7", DIRECT | GATE, True), ("1.8", DIRECT | GATE, False)),
    ],
)
def test_kvm_is_not_the_only_hypervisor(version: str, configuration: Any, needed: bool) -> None:
    assert config_of(version, configuration).needs_kvm is needed


def test_backups() -> None:
    statuses: list[Any] = [None, {}, {"backupName": "b", "completed": True}, {"backupName": "b"}]
    backed_up = [vmi(changedBlockTracking={"backupStatus": status}).is_backed_up for status in statuses]
    assert backed_up == [False, False, False, True]
