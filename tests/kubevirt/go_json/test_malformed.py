"""Whatever an object holds, the answer is an object or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kubevirt.plain import build_vmi, create, mutate_vm, run_round, validate_vm
from tests.kubevirt.samples import WHOLE, among, anything, deep, instancetype, preference, replaced, vm
from webhook.errors import InputError
from webhook.kubevirt import webhooks
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.instancetype.apply import expand
from webhook.kubevirt.vm import creation

PREFERRED = preference(cpu={"preferredCPUTopology": "spread"}, devices={"preferredDiskBus": "b"}, requirements={})


def everything(machine: Any, wanted: Any, preferred: Any) -> None:
    """All that there is to be done with three objects; anything but an answer or a sentence is raised."""

    def get(kind: str, namespace: str, name: str) -> Any:
        return {"VirtualMachineClusterInstancetype": wanted, "VirtualMachineClusterPreference": preferred}.get(kind)

    tasks: list[Callable[[], object]] = [
        lambda: mutate_vm(machine, get, lambda: "u"),
        lambda: validate_vm(machine, get),
        lambda: expand(machine, get),
        lambda: build_vmi(machine, get),
        lambda: run_round(machine, get),
        lambda: creation.from_vm(machine, get, lambda: "u"),
        lambda: creation.from_vmi(machine, lambda: "u"),
        lambda: creation.expand_vm(machine, get),
        lambda: create(machine, DEFAULTS, lambda: "u"),
        lambda: webhooks.admit_instancetype(wanted),
        lambda: webhooks.admit_preference(preferred),
        lambda: ClusterConfig.of(machine),
    ]
    for task in tasks:
        try:
            task()
        except InputError as sentence:
            assert "\n" not in sentence.what


@settings(max_examples=300)
@given(st.data(), anything)
def test_one_part_replaced_by_anything(data: st.DataObject, new: Any) -> None:
    objects = [WHOLE, instancetype(), PREFERRED]
    which = data.draw(st.integers(0, 2))
    objects[which] = replaced(objects[which], data, new)
    everything(*objects)


@settings(max_examples=100)
@given(anything)
def test_anything_at_all(value: Any) -> None:
    everything(value, value, value)
    everything(WHOLE, value, value)


WIDE = {"x": [[0] * 1000] * 1000}


@pytest.mark.control("absurd-sizes")
def test_a_vm_of_absurd_size_is_a_sentence() -> None:
    """Wherever it is read; `test_structs` has the sentences about each size."""
    machine = vm({"affinity": WIDE})
    for reject in (
        lambda: mutate_vm(machine, among([]), lambda: "u"),
        lambda: validate_vm(machine, among([])),
        lambda: expand(machine, among([])),
        lambda: run_round(machine, among([])),
        lambda: creation.from_vm(machine, among([]), lambda: "u"),
        lambda: creation.from_vmi({"spec": {"affinity": WIDE}}, lambda: "u"),
    ):
        with pytest.raises(InputError, match="holds more than 25000 values"):
            reject()


ABSURD = {
    "long list": [{"name": str(n)} for n in range(10_000)],
    "wide": WIDE,
    "deep": {"x": deep()},
    "huge": 10**400,
    "negative": -1,
    "long text": "9" * 1_000_000,
}


@pytest.mark.control("absurd-sizes")
@pytest.mark.parametrize("absurd", ABSURD.values(), ids=ABSURD)
def test_an_instancetype_of_absurd_size_is_a_sentence(absurd: Any) -> None:
    """And a preference."""
    for field, made, admit in (
        ("instancetype", instancetype(cpu={"guest": absurd}), webhooks.admit_instancetype),
        ("instancetype", instancetype(memory={"guest": "1Gi", "maxGuest": [absurd]}), webhooks.admit_instancetype),
        ("preference", preference(requirements={"cpu": {"guest": absurd}}), webhooks.admit_preference),
    ):
        with pytest.raises(InputError) as refused:
            admit(made)
        assert "\n" not in str(refused.value)
        with pytest.raises(InputError):
            expand(vm(**{field: {"name": made["metadata"]["name"]}}), among([made]))
