from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.samples import instancetype, preference, revision, vm
from webhook.k8s.types.meta import ObjectMeta, OwnerReference
from webhook.kubevirt.go_json.structs import decode
from webhook.kubevirt.instancetype.revisions import KINDS, capture, holds, is_captured, label, payload
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.rules import NEWEST
from webhook.kubevirt.types.core import INSTANCETYPE, PREFERENCE, VM

ALPHA, SCHEME = "instancetype.kubevirt.io/v1alpha1", 'in scheme "pkg/runtime/scheme.go:110"'
UNREADABLE = "failed to decode object in ControllerRevision: "


def test_what_was_captured_can_be_read_again() -> None:
    wanted = instancetype()
    wanted["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}, "resourceVersion": "7"}
    stored = capture(decode(VM, vm()), {**decode(INSTANCETYPE, wanted), "kind": wanted["kind"]})
    assert stored["metadata"]["name"] == "vm-u1-v1beta1-u-1"
    assert stored["metadata"]["labels"]["instancetype.kubevirt.io/object-kind"] == wanted["kind"]
    assert stored["data"]["metadata"] == {"name": "u1", "uid": "u", "generation": 1, "resourceVersion": "7"}
    assert payload(stored, INSTANCETYPE)["spec"]["cpu"]["guest"] == 2
    assert payload(revision("r", preference(preferredSubdomain="s")), PREFERENCE)["spec"] == {"preferredSubdomain": "s"}
    assert label(stored) == "u1"
    assert label(revision("r", wanted)) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "unexpected type in ControllerRevision: <nil>"),
        (preference(), "unexpected type in ControllerRevision: *v1beta1.VirtualMachineClusterPreference"),
        (
            {**instancetype(), "apiVersion": ALPHA},
            f'{UNREADABLE}no kind "VirtualMachineClusterInstancetype" is registered for version "{ALPHA}" {SCHEME}',
        ),
        ({"a": "ü"}, f"{UNREADABLE}Object 'Kind' is missing"),
        ({"kind": "K", "apiVersion": ""}, f"{UNREADABLE}Object 'apiVersion' is missing"),
        ({"kind": "Pod", "apiVersion": "v1"}, f"{UNREADABLE}it is not an instancetype or preference"),
    ],
    ids=["nothing", "preference", "version", "no kind", "no version", "pod"],
)
def test_what_is_no_instancetype(data: object, said: str) -> None:
    with pytest.raises(Rejection) as refused:
        payload(revision("r", data), INSTANCETYPE)
    assert refused.value.what == said
    with pytest.raises(Rejection, match=r"^unexpected type: <nil>$"):
        holds(revision("r", None), {})


KIND = "VirtualMachineInstancetype"
VERSION = "instancetype.kubevirt.io/v1beta1"
LABELS = {"instancetype.kubevirt.io/object-name": "u1", "instancetype.kubevirt.io/object-kind": KIND}
OWNER = OwnerReference("kubevirt.io/v1", "VirtualMachine", "vm", "u", True)
SNAPSHOT = OwnerReference("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot", "s", "u", True)


def meta(labels: dict[str, str] | None, owner: OwnerReference | None) -> ObjectMeta:
    return ObjectMeta(labels=labels, owner_references=[owner] if owner else None)


@pytest.mark.parametrize(
    ("labels", "owner", "ours"),
    [
        (LABELS, OWNER, True),
        (LABELS, SNAPSHOT, True),
        # A revision of a restore whose OWNER does not exist yet, or of a backup tool.
        (LABELS, None, True),
        # KubeVirt 1.0.
        (None, OWNER, True),
        (None, SNAPSHOT, True),
        (None, None, False),
        ({"instancetype.kubevirt.io/object-name": "u1"}, None, False),
        (LABELS | {"instancetype.kubevirt.io/object-name": ""}, None, False),
        (LABELS | {"instancetype.kubevirt.io/object-kind": "VirtualMachinePreference"}, None, False),
        (LABELS, OwnerReference("apps/v1", "DaemonSet", "d", "u", True), False),
        (LABELS, OwnerReference("example.com/v1", "VirtualMachine", "vm", "u", True), False),
        (None, OwnerReference("kubevirt.io/v1", "VirtualMachine", "vm", "u", False), False),
    ],
)
def test_labels_or_owner_vouch_for_it(labels: dict[str, str] | None, owner: OwnerReference | None, ours: bool) -> None:
    assert is_captured(meta(labels, owner), KIND, VERSION) is ours


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        (None, None),
        # A revision that KubeVirt keeps of a running OWNER, under the same owner.
        ("VirtualMachine", "kubevirt.io/v1"),
        (KIND, "v1beta1"),
        (KIND, "instancetype.kubevirt.io.example.com/v1"),
        ({"a": 1}, VERSION),
        (KIND, 1),
    ],
)
def test_the_data_says_what_it_is(kind: Any, version: Any) -> None:
    assert not is_captured(meta(LABELS, OWNER), kind, version)
    # Those of older versions are captured too.
    assert is_captured(meta(LABELS, OWNER), KIND, "instancetype.kubevirt.io/v1alpha2")
    assert set(NEWEST.by_kind) == KINDS
