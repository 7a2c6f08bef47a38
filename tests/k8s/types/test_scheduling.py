from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.samples import thorough
from webhook.k8s.types.scheduling import Taint, Toleration, is_tolerated, tolerates
from webhook.placement.nodes import Tolerated

TAINT = Taint("dedicated", "x", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        *((("dedicated", "Equal", "x", "NoSchedule"), True), (("dedicated", "Equal", "x"), True)),
        *((("dedicated", None, "x"), True), (("dedicated", "", "x", ""), True), (("dedicated", "Equal", "y"), False)),
        *((("dedicated",), False), (("dedicated", "Exists"), True), (("dedicated", "Exists", "y"), True)),
        *((("dedicated", "Exists", None, "NoExecute"), False), (("other", "Exists"), False), ((None, "Exists"), True)),
        *((("", "Exists", None, "NoSchedule"), True), (("", "Equal", "x"), True), ((), False)),
        (("dedicated", "Is", "x"), False),
    ],
)
def test_tolerations(toleration: tuple[str, ...], covers: bool) -> None:
    assert tolerates(Toleration(*toleration), TAINT) is covers
    assert Tolerated([Toleration(*toleration)]).covers(TAINT) is covers


def test_numbers_are_not_compared_and_no_value_equals_an_empty_one() -> None:
    for operator, value in itertools.product(("Gt", "Lt"), ("3", "7")):
        assert not tolerates(Toleration("level", operator, "5"), Taint("level", value, "NoSchedule"))
    assert tolerates(Toleration("maint", "Equal"), Taint("maint", "", "NoExecute"))


def test_any_toleration_will_do() -> None:
    assert is_tolerated(TAINT, [Toleration("other"), Toleration("dedicated", "Exists")])
    assert not is_tolerated(TAINT, [Toleration("other")])
    assert not is_tolerated(TAINT, [])


_texts = st.sampled_from([None, "", "a", "b"])
_operators = st.sampled_from([None, "", "Equal", "Exists", "Gt", "equal"])
_effects = st.sampled_from(["NoSchedule", "NoExecute"])
_tolerations = st.builds(Toleration, _texts, _operators, _texts, _effects | st.sampled_from([None, ""]))
_taints = st.builds(Taint, st.sampled_from(["", "a", "b"]), st.sampled_from(["", "a"]), _effects)


@thorough
@given(st.lists(_tolerations, max_size=4), _taints)
def test_found_at_once_is_found_one_by_one(tolerations: list[Toleration], taint: Taint) -> None:
    assert Tolerated(tolerations).covers(taint) is is_tolerated(taint, tolerations)
