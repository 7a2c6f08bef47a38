from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.samples import instancetype
from webhook.admission.step_budget import StepBudget
from webhook.errors import InputError
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.go_json.structs import MAX_BYTES, MAX_OBJECTS, decode, decode_remembered
from webhook.kubevirt.rules import NEWEST

SHAPE = NEWEST.types.instancetype


def read(value: Any) -> Any:
    return decode_remembered(SHAPE, value, "here")


def test_an_equal_object_is_not_decoded_again() -> None:
    first = read(instancetype(cpu={"guest": 3}))

    assert first == decode(SHAPE, instancetype(cpu={"guest": 3}))
    assert read(instancetype(cpu={"guest": 3})) is first


@pytest.mark.parametrize("guest", [True, 3.0, "3"])
def test_what_python_takes_for_equal_is_not(guest: Any) -> None:
    read(instancetype(cpu={"guest": 3}))

    with pytest.raises(InputError, match=r"^here\.spec\.cpu\.guest: "):
        read(instancetype(cpu={"guest": guest}))


def test_a_key_that_is_no_string_is_not_taken_for_its_text() -> None:
    read(instancetype(annotations={"1": "a"}))

    with pytest.raises(InputError, match=r"annotations"):
        read(instancetype(annotations={1: "a"}))


def test_messages_show_no_keys() -> None:
    with pytest.raises(InputError, match=r"^here\.spec\.nodeSelector\[\.\.\.\]: "):
        read(instancetype(nodeSelector={"hidden": 1}))


@pytest.mark.parametrize("odd", ["\ud800", 2**70, object(), "x" * MAX_BYTES])
def test_what_is_odd_or_large_is_decoded_each_time(odd: Any) -> None:
    given = {**instancetype(), "unknown": odd}

    assert read(given) == decode(SHAPE, given)
    assert read(given) is not read(given)


def test_what_is_nested_deeply_is_decoded_each_time() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]

    assert read({**instancetype(), "unknown": deep}) == decode(SHAPE, instancetype())


def test_a_review_takes_the_same_steps_whatever_was_read_before() -> None:
    spent = []
    for _ in range(2):
        budget = StepBudget()
        budget.run(read, instancetype(annotations={"steps": "counted"}))
        spent.append(budget.spent)

    assert spent[0] == spent[1]


def test_so_many_are_remembered_and_no_more() -> None:
    for number in range(1, MAX_OBJECTS + 20):
        read(instancetype(cpu={"guest": number}))

    assert len(structs._kept) == MAX_OBJECTS
