from __future__ import annotations

from typing import Any

import pytest

from webhook.k8s.types.meta import ObjectMeta, OwnerReference
from webhook.kubevirt.instancetype.revisions import KINDS, is_captured
from webhook.kubevirt.rules import NEWEST

KIND = "VirtualMachineInstancetype"
VERSION = "instancetype.kubevirt.io/v1beta1"
LABELS = {"instancetype.kubevirt.io/object-name": "u1", "instancetype.kubevirt.io/object-kind": KIND}
VM = OwnerReference("kubevirt.io/v1", "VirtualMachine", "vm", "u", True)
SNAPSHOT = OwnerReference("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot", "s", "u", True)
DAEMONSET = OwnerReference("apps/v1", "DaemonSet", "d", "u", True)


def meta(labels: dict[str, str] | None, owner: OwnerReference | None) -> ObjectMeta:
    return ObjectMeta(labels=labels, owner_references=[owner] if owner else None)


@pytest.mark.parametrize(
    ("labels", "owner", "ours"),
    [
        (LABELS, VM, True),
        (LABELS, SNAPSHOT, True),
        # A revision of a restore whose VM does not exist yet, or of a backup tool.
        (LABELS, None, True),
        # KubeVirt 1.0.
        (None, VM, True),
        (None, SNAPSHOT, True),
        (None, None, False),
        ({"instancetype.kubevirt.io/object-name": "u1"}, None, False),
        (LABELS | {"instancetype.kubevirt.io/object-name": ""}, None, False),
        (LABELS | {"instancetype.kubevirt.io/object-kind": "VirtualMachinePreference"}, None, False),
        (LABELS, DAEMONSET, False),
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
        # A revision that KubeVirt keeps of a running VM, under the same owner.
        ("VirtualMachine", "kubevirt.io/v1"),
        (KIND, "v1beta1"),
        (KIND, "instancetype.kubevirt.io.example.com/v1"),
        ({"a": 1}, VERSION),
        (KIND, 1),
    ],
)
def test_the_data_says_what_it_is(kind: Any, version: Any) -> None:
    assert not is_captured(meta(LABELS, VM), kind, version)


def test_older_versions_are_captured_too() -> None:
    assert is_captured(meta(LABELS, VM), KIND, "instancetype.kubevirt.io/v1alpha2")


def test_kinds_are_those_that_can_be_decoded() -> None:
    assert set(NEWEST.types.by_kind) == KINDS
