from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cli import given
from webhook.errors import InputError


def read(*objects: Any) -> given.GivenObjects:
    return given.objects(given.documents(["-"], yaml.safe_dump_all(objects).encode()))


def obj(kind: str, api: str, name: str = "a", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}}


def test_sorted_by_what_they_are(tmp_path: Path) -> None:
    found = read(
        obj("VirtualMachine", "kubevirt.io/v1"),
        obj("VirtualMachineInstancetype", "instancetype.kubevirt.io/v1beta1", namespace="shop"),
        obj("VirtualMachineClusterPreference", "instancetype.kubevirt.io/v1beta1"),
        obj("Secret", "v1"),
        obj("Secret", "v1", "b"),
        # A kind of another project with the same name.
        obj("VirtualMachine", "vmoperator.vmware.com/v1alpha1"),
        obj("VirtualMachineInstance", "kubevirt.io/v1", namespace="shop"),
    )

    assert [machine.value["kind"] for machine in found.machines] == ["VirtualMachine", "VirtualMachineInstance"]
    assert [machine.value["metadata"]["namespace"] for machine in found.machines] == ["default", "shop"]
    assert set(found.others) == {
        ("VirtualMachineInstancetype", "shop", "a"),
        ("VirtualMachineClusterPreference", "", "a"),
    }
    assert found.skipped == ["Secret", "VirtualMachine"]


def test_what_was_read_stays_as_it_is() -> None:
    (document,) = given.documents(["-"], yaml.safe_dump(obj("VirtualMachine", "kubevirt.io/v1")).encode())
    given.objects([document])

    assert document.value["metadata"] == {"name": "a"}


@pytest.mark.parametrize(
    ("objects", "line"),
    [
        ([{"kind": "VirtualMachine"}], 1),
        ([{"apiVersion": "kubevirt.io/v1", "kind": ["VirtualMachine"]}], 2),
        ([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}], 1),
        ([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": [1]}], 3),
        ([obj("VirtualMachine", "kubevirt.io/v1", name=1)], 4),  # type: ignore[arg-type]
        ([obj("VirtualMachine", "kubevirt.io/v1", namespace=[1])], 5),
        ([obj("VirtualMachine", "kubevirt.io/v1")] * 2, 6),
    ],
    ids=["no version", "list as kind", "no metadata", "list as metadata", "number as name", "list as place", "twice"],
)
def test_what_is_no_object(objects: list[Any], line: int, golden: Callable[[str], None]) -> None:
    with pytest.raises(InputError) as refused:
        given.objects(given.documents(["-"], "---\n".join(yaml.safe_dump(item) for item in objects).encode()))

    assert refused.value.where == f"standard input:{line}"
    golden(str(refused.value))
