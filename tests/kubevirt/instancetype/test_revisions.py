from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.samples import instancetype, preference, revision, vm
from webhook.kubevirt.go_json.structs import decode
from webhook.kubevirt.instancetype.revisions import capture, holds, label, latest, payload
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.types.core import VM
from webhook.kubevirt.types.instancetypes import INSTANCETYPE, PREFERENCE


def test_what_was_captured_can_be_read_again() -> None:
    wanted = instancetype()
    wanted["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}, "resourceVersion": "7"}
    stored = capture(decode(VM, vm()), {**decode(INSTANCETYPE, wanted), "kind": wanted["kind"]})

    assert stored["metadata"]["name"] == "vm-u1-v1beta1-u-1"
    assert stored["metadata"]["labels"]["instancetype.kubevirt.io/object-kind"] == wanted["kind"]
    assert stored["data"]["metadata"] == {"name": "u1", "uid": "u", "generation": 1, "resourceVersion": "7"}
    assert payload(stored, INSTANCETYPE)["spec"]["cpu"]["guest"] == 2
    assert label(stored) == "u1"
    assert label(revision("r", wanted)) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "unexpected type in ControllerRevision: <nil>"),
        (preference(), "unexpected type in ControllerRevision: *v1beta1.VirtualMachineClusterPreference"),
        (
            {**instancetype(), "apiVersion": "instancetype.kubevirt.io/v1alpha1"},
            (
                "failed to decode object in ControllerRevision: no kind "
                '"VirtualMachineClusterInstancetype" is registered for version "instancetype.kubevirt.io/v1alpha1" '
                'in scheme "pkg/runtime/scheme.go:110"'
            ),
        ),
        ({"a": "ü"}, "failed to decode object in ControllerRevision: Object 'Kind' is missing"),
        (
            {"kind": "K", "apiVersion": ""},
            "failed to decode object in ControllerRevision: Object 'apiVersion' is missing",
        ),
    ],
    ids=["nothing", "preference", "version", "no kind", "no version"],
)
def test_what_is_no_instancetype(data: object, said: str) -> None:
    with pytest.raises(Rejection) as refused:
        payload(revision("r", data), INSTANCETYPE)

    assert refused.value.what == said


def test_a_preference_is_read_as_one() -> None:
    assert payload(revision("r", preference(preferredSubdomain="s")), PREFERENCE)["spec"] == {"preferredSubdomain": "s"}


def test_the_latest_says_so() -> None:
    assert latest(revision("r", instancetype()))
    assert not latest({"metadata": {"name": "r"}})


@pytest.mark.parametrize(
    ("data", "same"),
    [
        (instancetype(memory={"guest": "4096Mi"}), True),
        (instancetype(memory={"guest": "4294967296"}), True),
        (instancetype(memory={"guest": "4Gi", "maxGuest": "8Gi"}), False),
        ({**instancetype(), "kind": "VirtualMachineInstancetype"}, True),
        (preference(), False),
    ],
)
def test_what_is_there_is_compared_by_value(data: Any, same: bool) -> None:
    made = capture(decode(VM, vm()), {**decode(INSTANCETYPE, instancetype()), "kind": instancetype()["kind"]})

    assert holds(revision("r", data), made) is same


def test_what_holds_nothing_cannot_be_compared() -> None:
    with pytest.raises(Rejection, match=r"^unexpected type: <nil>$"):
        holds(revision("r", None), {})
