"""What tolerates what, kube-scheduler's own answers say (tests/vectors); here both ways of asking are compared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.placement.samples import thorough
from webhook.k8s.types.scheduling import Taint, Toleration, is_tolerated
from webhook.placement.nodes import Tolerated

_texts = st.sampled_from([None, "", "a", "b"])
_operators = st.sampled_from([None, "", "Equal", "Exists", "Gt", "equal"])
_effects = st.sampled_from(["NoSchedule", "NoExecute"])
_tolerations = st.builds(Toleration, _texts, _operators, _texts, _effects | st.sampled_from([None, ""]))
_taints = st.builds(Taint, st.sampled_from(["", "a", "b"]), st.sampled_from(["", "a"]), _effects)


@thorough
@given(st.lists(_tolerations, max_size=4), _taints)
def test_found_at_once_is_found_one_by_one(tolerations: list[Toleration], taint: Taint) -> None:
    assert Tolerated(tolerations).covers(taint) is is_tolerated(taint, tolerations)
