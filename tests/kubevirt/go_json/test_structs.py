"""Plain JSON as Go decodes and encodes it, and who changed which leaf of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import ValidationError

from tests.drawn import one_of_each
from tests.golden_files import Golden
from tests.kubevirt.samples import WHOLE, anything, deep, instancetype, replaced
from tests.vectors.cases import FILE, Json, read
from webhook.admission.step_budget import StepBudget
from webhook.errors import InputError
from webhook.k8s import quantity
from webhook.k8s.quantity import Computed
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.go_json.origins import FieldOrigin, Origins, leaves
from webhook.kubevirt.go_json.structs import MAX_KEYS, MAX_VALUES, STRING, Struct, Value, decode, replace_fields, share
from webhook.kubevirt.rules import NEWEST
from webhook.kubevirt.types.core import AFFINITY, DEVICES, METADATA, VM, VMI, VMI_SPEC


@pytest.mark.control("absurd-sizes")
@pytest.mark.parametrize(
    ("given", "where"),
    [
        ([], "spec"),
        ({"domain": "x"}, "spec.domain"),
        ({"schedulerName": 1}, "spec.schedulerName"),
        ({"volumes": {}}, "spec.volumes"),
        ({"volumes": [{"name": True}]}, "spec.volumes[0].name"),
        ({"domain": {"cpu": {"cores": -1}}}, "spec.domain.cpu.cores"),
        ({"domain": {"cpu": {"cores": 1.5}}}, "spec.domain.cpu.cores"),
        ({"domain": {"cpu": {"cores": "2"}}}, "spec.domain.cpu.cores"),
        ({"domain": {"cpu": {"dedicatedCpuPlacement": 1}}}, "spec.domain.cpu.dedicatedCpuPlacement"),
        ({"domain": {"memory": {"guest": "much"}}}, "spec.domain.memory.guest"),
        ({"nodeSelector": {"a": []}}, "spec.nodeSelector['a']"),
        ({"nodeSelector": {1: "a"}}, "spec.nodeSelector"),
        ({"nodeSelector": 5}, "spec.nodeSelector"),
        ({"nodeSelector": dict.fromkeys(map(str, range(MAX_KEYS + 1)), "")}, "spec.nodeSelector"),
        ({"domain": {"devices": {"disks": [{}] * 10_000}}}, "spec.domain.devices.disks"),
        ({"tolerations": [None, 1]}, "spec.tolerations[1]"),
        ({"dnsConfig": {"searches": [None]}}, "spec.dnsConfig.searches[0]"),
    ],
    ids=range(17),
)
def test_malformed(given: Any, where: str, golden: Golden) -> None:
    with pytest.raises(InputError) as refused:
        decode(VMI_SPEC, given, "spec")
    assert refused.value.where == where
    golden(refused.value.what)


def test_deep_nesting() -> None:
    with pytest.raises(InputError, match="status: is nested more than 50 levels deep"):
        decode(VM, {"status": {"x": deep()}})
    assert decode(VM, {"spec": {"unknown": deep()}})["spec"] == {}
    with pytest.raises(InputError, match="status: has 5001 items"):
        decode(VM, {"status": {"x": [0] * (MAX_KEYS + 1)}})


@pytest.mark.parametrize("make", [structs.copy_json, structs.copy_written])
@pytest.mark.parametrize("text", ["c", Computed("c")])
def test_copies_share_nothing(make: Callable[[Any], Any], text: str) -> None:
    given = {"a": [{"b": 1, "c": text}]}
    copy = make(given)
    copy["a"][0]["b"] = 2
    assert given == {"a": [{"b": 1, "c": text}]}
    assert copy["a"][0]["c"] is text


DISKS: list[Json] = [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1}, {"name": "data", "lun": {}}]


def written(shape: Struct, value: Any) -> Json | str:
    """A value as both ways write it, or the sentence of both about it."""
    before = copy.deepcopy(value)
    shared = _answer(share, shape, value)
    assert shared == _answer(lambda *given: structs.encode(shape, decode(*given)), shape, value)
    assert value == before
    return shared


def _answer(write: Callable[[Struct, Any], Json], shape: Struct, value: Any) -> Json | str:
    try:
        return write(shape, value)
    except InputError as error:
        return str(error)


def test_a_part_that_stays_as_it_is_is_shared() -> None:
    given = {"disks": DISKS, "rng": {}, "autoattachInputDevice": False}
    assert share(DEVICES, given) is given
    # A spec without resources shares all else.
    whole: Json = {"domain": {"devices": {"disks": DISKS}}, "networks": [{"name": "a", "pod": {}}]}
    answer = share(VMI_SPEC, whole)
    assert answer == {**whole, "domain": {**whole["domain"], "resources": {}}}
    assert answer["domain"]["devices"] is whole["domain"]["devices"]


@pytest.mark.parametrize("more", [{"serial": ""}, {"bootOrder": 2**63}, {"disk": {"readonly": False}}, {"unknown": 1}])
def test_what_is_written_otherwise_is_copied_as_ever(more: Json) -> None:
    disks = [DISKS[0], {**DISKS[1], **more}]
    answer = written(DEVICES, {"disks": disks, "rng": {}})
    assert isinstance(answer, dict)
    assert (answer["disks"][1] == disks[1]) is ("bootOrder" in more)
    # The disk that stays is shared all the same.
    assert share(DEVICES, {"disks": disks})["disks"][0] is disks[0]


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        (DEVICES, {"disks": DISKS * 129}),
        (METADATA, {"annotations": {1: "a"}}),
        (METADATA, {"annotations": dict.fromkeys(map(str, range(MAX_KEYS + 1)), "a")}),
        (AFFINITY, {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}),
        (VMI_SPEC, {"readinessProbe": {"tcpSocket": {"port": 2**31}}}),
        (VMI_SPEC, {"domain": {"resources": {"requests": {"memory": "1000m", "cpu": "1"}}}}),
        (VM, {"status": {"conditions": [{"type": "Ready", "status": ""}], "x": None}}),
    ],
)
def test_both_ways_write_the_same(shape: Struct, value: Any) -> None:
    written(shape, value)


def test_what_was_left_out_is_written() -> None:
    inner = Struct(name=STRING, rest=Value(Struct(size=STRING), left_out=True))
    shape = Struct(one=inner, many=structs.List(inner), always=Value(inner))
    given: Json = {"one": {"name": "a"}, "many": [{"name": "b"}], "always": {"rest": {}}}
    assert written(shape, given) == {
        "one": {"name": "a", "rest": {}},
        "many": [{"name": "b", "rest": {}}],
        "always": {"rest": {}},
    }
    assert share(shape, given)["always"] is given["always"]


def test_what_was_made_of_a_written_object_is_written_where_it_changed() -> None:
    before = share(VMI_SPEC, {"domain": {"devices": {}}, "hostname": "a", "nodeSelector": {"a": "b"}, "dnsPolicy": "c"})
    changes = {"hostname": "", "nodeSelector": {}, "subdomain": "d", "domain": {**before["domain"], "cpu": {}}}
    changed = before | changes
    assert structs.share_changes(VMI_SPEC, changed, before) == structs.encode(VMI_SPEC, changed)
    assert structs.share_changes(VMI_SPEC, before, before) == before
    with pytest.raises(InputError, match=r"^spec\.domain\.cpu: "):
        structs.share_changes(VMI_SPEC, {**before, "domain": {"cpu": 1}}, before, "spec")


def test_what_was_computed_becomes_plain_text() -> None:
    """Where KubeVirt's steps compute an amount it is written, however short it is."""
    amount = Computed("3Gi")
    domain = {"resources": {"requests": {"memory": amount}}, "memory": {"guest": amount, "maxGuest": amount}}
    result = share(VMI_SPEC, {"domain": {**domain, "devices": {}}})["domain"]
    amounts = [result["resources"]["requests"]["memory"], result["memory"]["guest"], result["memory"]["maxGuest"]]
    assert [type(amount) for amount in amounts] == [str, str, str]


def test_quantities_that_are_canonical_at_a_glance_are() -> None:
    check = structs.check_of(structs.CANONICAL_QUANTITY)
    assert check is not None
    assert structs.check_of(structs.NEVER) is None
    suffixes = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "\n", "i")
    exact = 0
    for text in (f"{number}{suffix}" for number in (*range(2000), "01", "+1", "-1", "1.0", "") for suffix in suffixes):
        try:
            check(text)
        except ValidationError:
            continue
        assert quantity.canonical(text) == text
        exact += 1
    assert exact == 999 * 10


def test_both_ways_write_what_kubevirt_was_given() -> None:
    shared = 0
    for case in read(FILE):
        for key, shape in (("vm", NEWEST.vm), ("vmi", NEWEST.vmi)):
            if key in case.given:
                written(shape, case.given[key])
                shared += 1
    assert shared > 500


@settings(max_examples=300)
@given(st.data(), anything)
def test_both_ways_write_whatever_is_in_it(data: st.DataObject, new: Any) -> None:
    written(NEWEST.vm, replaced(WHOLE, data, new))


HALF = MAX_VALUES // 2


@pytest.mark.parametrize(
    ("value", "large"),
    [
        ({}, False),
        ([0] * MAX_VALUES, False),
        ([0] * (MAX_VALUES + 1), True),
        ([[]] * MAX_VALUES, False),
        ([[]] * (MAX_VALUES + 1), True),
        ([[0]] * HALF, False),
        ([[0]] * (HALF + 1), True),
        ([{"": 0}] * HALF, False),
        ([{"": 0}] * (HALF + 1), True),
        (dict.fromkeys(map(str, range(MAX_VALUES)), ""), False),
        (dict.fromkeys(map(str, range(MAX_VALUES + 1)), ""), True),
        # A text may be long, and hold whatever it likes.
        ({"a": "[{," * MAX_VALUES}, False),
        ({"a": "[{," * MAX_VALUES, "b": [0] * MAX_VALUES}, True),
        # What cannot be written as JSON is counted all the same.
        ({"a": 2**70, "b": [0] * MAX_VALUES}, True),
        ({"a": "\ud800", "b": [0] * 10}, False),
        ({"a": object(), "b": [0] * MAX_VALUES}, True),
    ],
    ids=range(16),
)
def test_so_many_values_and_no_more(value: Any, large: bool) -> None:
    assert structs.is_too_large(value) is large


def test_what_is_nested_deeply_is_counted() -> None:
    assert not structs.is_too_large(deep(MAX_VALUES))
    assert structs.is_too_large(deep(MAX_VALUES + 1))


SHAPE = NEWEST.instancetype


def remembered(value: Any) -> Any:
    return structs.decode_remembered(SHAPE, value, "here")


def test_an_equal_object_is_not_decoded_again() -> None:
    first = remembered(instancetype(cpu={"guest": 3}))
    assert first == decode(SHAPE, instancetype(cpu={"guest": 3}))
    assert remembered(instancetype(cpu={"guest": 3})) is first
    # A key that is no string is not taken for its text, and messages show no keys.
    remembered(instancetype(annotations={"1": "a"}))
    with pytest.raises(InputError, match=r"annotations"):
        remembered(instancetype(annotations={1: "a"}))
    with pytest.raises(InputError, match=r"^here\.spec\.nodeSelector\[\.\.\.\]: "):
        remembered(instancetype(nodeSelector={"hidden": 1}))


@pytest.mark.control("changed-instancetypes")
@pytest.mark.parametrize("guest", [True, 3.0, "3"])
def test_what_python_takes_for_equal_is_not(guest: Any) -> None:
    remembered(instancetype(cpu={"guest": 3}))
    with pytest.raises(InputError, match=r"^here\.spec\.cpu\.guest: "):
        remembered(instancetype(cpu={"guest": guest}))


@pytest.mark.control("remembered-instancetypes")
@pytest.mark.parametrize("odd", ["\ud800", 2**70, object(), "x" * structs.MAX_BYTES, deep()], ids=range(5))
def test_what_is_odd_or_large_is_decoded_each_time(odd: Any) -> None:
    given = {**instancetype(), "unknown": odd}
    assert remembered(given) == decode(SHAPE, given)
    assert remembered(given) is not remembered(given)


def test_a_review_takes_the_same_steps_whatever_was_read_before() -> None:
    spent = []
    for _ in range(2):
        budget = StepBudget()
        budget.run(remembered, instancetype(annotations={"steps": "counted"}))
        spent.append(budget.spent)
    assert spent[0] == spent[1]


@pytest.mark.control("remembered-instancetypes")
def test_so_many_are_remembered_and_no_more() -> None:
    for number in range(1, structs.MAX_OBJECTS + 20):
        remembered(instancetype(cpu={"guest": number}))
    assert len(structs._kept) == structs.MAX_OBJECTS


class TestChangedShapes:
    INNER = Struct(a=STRING, b=STRING)
    LIST = structs.List(INNER)
    SHAPE = Struct(plain=INNER, value=Value(INNER), items=structs.List(INNER, 2), nullable=structs.OrNull(LIST))

    @pytest.mark.parametrize("path", ["plain.b", "value.b", "items.b", "nullable.b"])
    def test_a_field_is_removed_wherever_it_is(self, path: str) -> None:
        one = {"a": "1", "b": "2"}
        given: Json = {"plain": one, "value": one, "items": [one], "nullable": [one]}
        name = path.partition(".")[0]
        taken = decode(replace_fields(self.SHAPE, {path: None}), given)
        assert [part for part in given if taken[part] != given[part]] == [name]
        assert decode(self.SHAPE, given) == given

    def test_a_status_keeps_what_no_shape_knows(self) -> None:
        given = {"status": {"phase": "Running", "runtimeUser": 5, "guestOSInfo": {"id": "fedora"}}}
        taken = decode(replace_fields(VMI, {"status.memory": None, "status.guestOSInfo.name": None}), given)
        assert taken["status"] == given["status"] == decode(VMI, given)["status"]
        shape = Struct(a=Value(self.INNER, left_out=True))
        assert share(replace_fields(shape, {"a.b": None}), {}) == share(shape, {}) == {"a": {}}

    def test_limits_stay(self) -> None:
        with pytest.raises(InputError, match="more than 2"):
            decode(replace_fields(self.SHAPE, {"items.b": None}), {"items": [{}, {}, {}]})

    @pytest.mark.parametrize(
        ("value", "known"),
        [
            ({}, True),
            ({"plain": {"a": 1}}, True),
            ({"plain": {"c": 1}}, False),
            ({"value": {"c": 1}}, False),
            ({"items": [{"a": 1}, {"c": 1}]}, False),
            ({"nullable": [{"c": 1}]}, False),
            ({"items": "text"}, True),
            ({"other": structs.EMPTY}, False),
        ],
    )
    def test_unknown_members(self, value: Any, known: bool) -> None:
        assert structs.is_known(self.SHAPE, value) is known


KEYS = ["a", "b", "c.d"]
leafy = one_of_each(dict.fromkeys(KEYS, (..., 0, 1, 2))) | st.sampled_from([0, 1, [], [0], [1, 2], [[1], {"a": 1}]])
trees = st.dictionaries(st.sampled_from(KEYS), leafy | st.dictionaries(st.sampled_from(KEYS), leafy, max_size=2))


@given(st.lists(st.tuples(st.sampled_from(FieldOrigin), trees), min_size=1, max_size=6))
def test_every_leaf_is_of_the_last_who_changed_it(steps: list[tuple[FieldOrigin, Any]]) -> None:
    watched: dict[str, Any] = {}
    origins, expected = Origins(watched), {"": FieldOrigin.VM}
    before: dict[str, Any] = {"": {}}
    for origin, state in steps:
        watched.clear()
        watched.update(state)
        origins.note(origin)
        now = dict(leaves(watched))
        absent = object()
        expected = {path: expected[path] if before.get(path, absent) == now[path] else origin for path in now}
        before = now
    assert origins.by_path() == expected


def test_what_only_the_encoding_made_is_kubevirts() -> None:
    origins = Origins({"a": {"b": 1}, "l": [1]})
    assert origins.by_path({"a": {}, "l": [1, 2], "e": {}}) == {
        "a": FieldOrigin.KUBEVIRT,
        "l[0]": FieldOrigin.VM,
        "l[1]": FieldOrigin.KUBEVIRT,
        "e": FieldOrigin.KUBEVIRT,
    }


def test_what_only_the_decoding_made_is_kubevirts() -> None:
    decoded = {"a": {"devices": {}, "bus": "x", "memory": "1Gi"}, "l": [{"name": "", "n": 1}]}
    given = {"a": {"bus": "x", "memory": "1024Mi", "devices": None}, "l": [{"n": 1}]}
    assert Origins(decoded, source=given).by_path() == {
        "a.devices": FieldOrigin.KUBEVIRT,
        "a.bus": FieldOrigin.VM,
        "a.memory": FieldOrigin.VM,
        "l[0].name": FieldOrigin.KUBEVIRT,
        "l[0].n": FieldOrigin.VM,
    }


def test_inheritance_goes_back_as_far_as_it_is_known() -> None:
    vm = {"spec": {"x": 1}}
    first = Origins(vm)
    vm["spec"]["y"] = 2
    first.note(FieldOrigin.PREFERENCE)
    second = Origins({"spec": {"x": 1, "y": 2}})
    second.inherit(first)
    built = {"x": 1, "y": 2}
    third = Origins(built)
    built["z"] = 3
    third.note(FieldOrigin.INSTANCETYPE)
    third.inherit(second, "spec.")
    assert third.by_path() == {"x": FieldOrigin.VM, "y": FieldOrigin.PREFERENCE, "z": FieldOrigin.INSTANCETYPE}
