from __future__ import annotations

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
        (Toleration("dedicated", "Equal", "x", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "x"), True),
        (Toleration("dedicated", None, "x"), True),
        (Toleration("dedicated", "", "x", ""), True),
        (Toleration("dedicated", "Equal", "y"), False),
        (Toleration("dedicated"), False),
        (Toleration("dedicated", "Exists"), True),
        (Toleration("dedicated", "Exists", "y"), True),
        (Toleration("dedicated", "Exists", None, "NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration(None, "Exists"), True),
        (Toleration("", "Exists", None, "NoSchedule"), True),
        (Toleration("", "Equal", "x"), True),
        (Toleration(), False),
        (Toleration("dedicated", "Is", "x"), False),
    ],
)
def test_tolerations(toleration: Toleration, covers: bool) -> None:
    assert tolerates(toleration, TAINT) is covers
    assert Tolerated([toleration]).covers(TAINT) is covers


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_numbers_are_not_compared(operator: str) -> None:
    assert not tolerates(Toleration("level", operator, "5"), Taint("level", "7", "NoSchedule"))
    assert not tolerates(Toleration("level", operator, "5"), Taint("level", "3", "NoSchedule"))


def test_a_taint_without_value_equals_an_empty_one() -> None:
    assert tolerates(Toleration("maint", "Equal"), Taint("maint", "", "NoExecute"))


def test_any_toleration_will_do() -> None:
    assert is_tolerated(TAINT, [Toleration("other"), Toleration("dedicated", "Exists")])
    assert not is_tolerated(TAINT, [Toleration("other")])
    assert not is_tolerated(TAINT, [])


_texts = st.sampled_from([None, "", "a", "b"])
_tolerations = st.builds(
    Toleration,
    _texts,
    st.sampled_from([None, "", "Equal", "Exists", "Gt", "equal"]),
    _texts,
    st.sampled_from([None, "", "NoSchedule", "NoExecute"]),
)
_taints = st.builds(
    Taint, st.sampled_from(["", "a", "b"]), st.sampled_from(["", "a"]), st.sampled_from(["NoSchedule", "NoExecute"])
)


@thorough
@given(st.lists(_tolerations, max_size=4), _taints)
def test_found_at_once_is_found_one_by_one(tolerations: list[Toleration], taint: Taint) -> None:
    assert Tolerated(tolerations).covers(taint) is is_tolerated(taint, tolerations)
