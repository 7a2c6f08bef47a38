"""What is written as it stands is recognized, shared and never taken for what it is not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import ValidationError

from tests.kubevirt.malformed_objects import WHOLE, anything, replaced
from tests.vectors.cases import Json, read
from webhook.errors import InputError
from webhook.k8s import quantity
from webhook.k8s.quantity import Computed
from webhook.kubevirt.go_json.scalars import MAX_KEYS, NEVER, QUANTITY, check_of
from webhook.kubevirt.go_json.structs import STRING, List, Struct, Value, decode, encode, share, share_changes
from webhook.kubevirt.rules import NEWEST
from webhook.kubevirt.types.core import AFFINITY, DEVICES, METADATA, VM, VMI_SPEC

FILE = Path(__file__).parents[2] / "data" / "instancetypes.jsonl.gz"
DISKS: list[Json] = [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1}, {"name": "data", "lun": {}}]


def written(shape: Struct, value: Any) -> Json | str:
    """A value as both ways write it, or the sentence of both about it."""
    before = copy.deepcopy(value)
    shared, copied = (_answer(write, shape, value) for write in (share, _copy))

    assert shared == copied
    assert value == before
    return shared


def _copy(shape: Struct, value: Any) -> Json:
    return encode(shape, decode(shape, value))


def _answer(write: Callable[[Struct, Any], Json], shape: Struct, value: Any) -> Json | str:
    try:
        return write(shape, value)
    except InputError as error:
        return str(error)


def test_a_part_that_stays_as_it_is_is_shared() -> None:
    given = {"disks": DISKS, "rng": {}, "autoattachInputDevice": False}

    assert share(DEVICES, given) is given


@pytest.mark.parametrize(
    "changed",
    [
        {"serial": ""},
        {"serial": None},
        {"bootOrder": True},
        {"bootOrder": 2**63},
        {"shareable": None},
        {"cdrom": {"readonly": False}},
        {"disk": {"readonly": False}},
        {"disk": {"readonly": True}},
        {"unknown": 1},
        {"name": None},
    ],
)
def test_what_is_written_otherwise_is_copied_as_ever(changed: Json) -> None:
    disks = [DISKS[0], {**DISKS[1], **changed}]
    answer = written(DEVICES, {"disks": disks, "rng": {}})

    if isinstance(answer, dict) and answer["disks"][1] != disks[1]:
        # The disk that stays is shared all the same.
        assert share(DEVICES, {"disks": disks})["disks"][0] is disks[0]


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        (DEVICES, {"disks": []}),
        (DEVICES, {"disks": [None]}),
        (DEVICES, {"disks": DISKS * 129}),
        (DEVICES, {"filesystems": [{"name": "a", "virtiofs": None}]}),
        (METADATA, {"annotations": {}}),
        (METADATA, {"annotations": {"a": None}}),
        (METADATA, {"annotations": {1: "a"}}),
        (METADATA, {"annotations": dict.fromkeys(map(str, range(MAX_KEYS + 1)), "a")}),
        (METADATA, {"managedFields": [{"manager": None}]}),
        (AFFINITY, {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
        (AFFINITY, {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}),
        (VMI_SPEC, {"readinessProbe": {"tcpSocket": {"port": 2**31}}}),
        (VMI_SPEC, {"readinessProbe": {"tcpSocket": {"port": "http"}}}),
        (VMI_SPEC, {"volumes": [{"name": "a", "emptyDisk": {"capacity": "1024Mi"}}]}),
        (VMI_SPEC, {"volumes": [{"name": "a", "emptyDisk": {"capacity": 5}}]}),
        (VMI_SPEC, {"domain": {"resources": {"requests": {"memory": "1000m", "cpu": "1"}}}}),
        (VM, {"status": {"conditions": [{"type": "Ready", "status": ""}], "x": None}}),
        (VM, {"spec": []}),
    ],
)
def test_both_ways_write_the_same(shape: Struct, value: Any) -> None:
    written(shape, value)


def test_what_was_left_out_is_written() -> None:
    inner = Struct(name=STRING, rest=Value(Struct(size=STRING), left_out=True))
    shape = Struct(one=inner, many=List(inner), always=Value(inner))
    given: Json = {"one": {"name": "a"}, "many": [{"name": "b"}], "always": {"rest": {}}}

    assert written(shape, given) == {
        "one": {"name": "a", "rest": {}},
        "many": [{"name": "b", "rest": {}}],
        "always": {"rest": {}},
    }
    assert share(shape, given)["always"] is given["always"]


def test_a_spec_without_resources_shares_all_else() -> None:
    given: Json = {"domain": {"devices": {"disks": DISKS}}, "networks": [{"name": "a", "pod": {}}]}
    answer = share(VMI_SPEC, given)

    assert answer == {**given, "domain": {**given["domain"], "resources": {}}}
    assert answer["domain"]["devices"] is given["domain"]["devices"]


def test_what_was_made_of_a_written_object_is_written_where_it_changed() -> None:
    before = share(VMI_SPEC, {"domain": {"devices": {}}, "hostname": "a", "nodeSelector": {"a": "b"}, "dnsPolicy": "c"})
    changed = {
        **before,
        "hostname": "",
        "nodeSelector": {},
        "subdomain": "d",
        "domain": {**before["domain"], "cpu": {}},
    }

    assert share_changes(VMI_SPEC, changed, before) == encode(VMI_SPEC, changed)
    assert share_changes(VMI_SPEC, before, before) == before
    with pytest.raises(InputError, match=r"^spec\.domain\.cpu: "):
        share_changes(VMI_SPEC, {**before, "domain": {"cpu": 1}}, before, "spec")


def test_what_was_computed_becomes_plain_text() -> None:
    """Where KubeVirt's steps compute an amount it is written, however short it is."""
    amount = Computed("3Gi")
    domain = {"resources": {"requests": {"memory": amount}}, "memory": {"guest": amount, "maxGuest": amount}}

    result = share(VMI_SPEC, {"domain": {**domain, "devices": {}}})["domain"]

    amounts = [result["resources"]["requests"]["memory"], result["memory"]["guest"], result["memory"]["maxGuest"]]
    assert [type(amount) for amount in amounts] == [str, str, str]


def test_quantities_that_are_canonical_at_a_glance_are() -> None:
    check = check_of(QUANTITY)
    assert check is not None
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


def test_nothing_is_recognized_without_a_type() -> None:
    assert check_of(NEVER) is None


def test_both_ways_write_what_kubevirt_was_given() -> None:
    shared = 0
    for case in read(FILE):
        for key, shape in (("vm", NEWEST.types.vm), ("vmi", NEWEST.types.vmi)):
            if key in case.given:
                written(shape, case.given[key])
                shared += 1
    assert shared > 500


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data(), anything)
def test_both_ways_write_whatever_is_in_it(data: st.DataObject, new: Any) -> None:
    written(NEWEST.types.vm, replaced(WHOLE, data, new))
