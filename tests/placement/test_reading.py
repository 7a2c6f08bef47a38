from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.node_by_node import reasons_by_node, reasons_node_by_node
from tests.placement.samples import KEYS, untimed
from webhook.errors import InputError
from webhook.k8s.types.scheduling import Placed
from webhook.placement.index import NodeIndex
from webhook.placement.machines import Vmi
from webhook.placement.nodes import Node, convert_to_view
from webhook.placement.requirements import contradictions
from webhook.placement.target_pods import own_requirements

NAMES = [
    *("nodeSelector", "affinity", "tolerations", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    *("nodeSelectorTerms", "matchExpressions", "matchFields", "key", "operator", "values", "effect", "value"),
]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.sampled_from(["In", "Gt", "1", *KEYS])
)
garbage = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
terms = st.lists(st.dictionaries(st.sampled_from(NAMES[5:]), garbage, max_size=3) | garbage, max_size=3)
affinities = st.one_of(
    garbage,
    st.builds(
        lambda terms: {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        },
        terms,
    ),
)
NODES = [Node("n1", {"zone": "a", "rank": "5"}), Node("n2", {})]


@untimed
@given(affinity=affinities, tolerations=garbage, selector=garbage)
def test_garbage_ends_with_an_answer_or_a_sentence(affinity: Any, tolerations: Any, selector: Any) -> None:
    spec = {"nodeSelector": selector, "affinity": affinity, "tolerations": tolerations}
    try:
        requirements = tuple(own_requirements(convert_to_view(Placed, spec, "spec")))
    except InputError as rejection:
        assert rejection.where.startswith("spec")
        assert rejection.what
        return
    answer = reasons_node_by_node(requirements, NODES)
    assert reasons_by_node(NodeIndex(NODES).review(requirements), NODES) == answer
    assert all(str(reason) for reasons in answer.values() for reason in reasons)
    assert all(str(each) for each in contradictions(requirements))


@untimed
@given(taints=garbage)
def test_garbage_in_taints_is_a_node_or_a_sentence(taints: Any) -> None:
    try:
        node = Node.read({"metadata": {"name": "n"}, "spec": {"taints": taints}})
    except InputError as rejection:
        assert rejection.where.startswith("node.spec.taints")
        return
    assert all(taint.effect in ("NoSchedule", "NoExecute") for taint in node.taints)


@pytest.mark.parametrize(
    ("json", "sentence"),
    [
        (None, "vmi: expected `object`, got `null`"),
        ({"spec": {"domain": 1}}, "vmi.spec.domain: expected `object | null`, got `int`"),
        ({"spec": {"affinity": {"nodeAffinity": []}}}, "vmi.spec.affinity.nodeAffinity: expected `object | null`"),
    ],
)
def test_no_objects(json: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        convert_to_view(Vmi, json, "vmi")
    assert str(caught.value).startswith(sentence)


def test_what_is_absent_or_null_reads_as_nothing() -> None:
    assert convert_to_view(Vmi, {"spec": None}, "vmi") == convert_to_view(Vmi, {}, "vmi") == Vmi()
    assert convert_to_view(Placed, {"tolerations": None, "unknown": {"a": [1]}}, "spec") == Placed()
