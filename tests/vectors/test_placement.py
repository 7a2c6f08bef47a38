from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.vectors.cases import VectorCase, read
from tests.vectors.nodes import answers, failures
from webhook.k8s.types.scheduling import Placed
from webhook.placement.nodes import Node
from webhook.placement.nodes import convert_to_view as view
from webhook.placement.target_pods import own_requirements

FILE = Path(__file__).parents[1] / "data" / "placement.jsonl.gz"


@cache
def cases() -> list[VectorCase]:
    return list(read(FILE, list))


def test_kube_schedulers_own_answers() -> None:
    wrong = {case.id: found for case in cases() if (found := failures(case))}
    assert len(cases()) == 400
    assert not wrong


@pytest.mark.parametrize("stage", ["affinity", "taints", "fit"])
def test_malformed_terms_leave_the_others_alone(stage: str) -> None:
    malformed = [case for case in cases() if "error" in case.expected]
    assert malformed
    for case in malformed:
        requirements = tuple(own_requirements(view(Placed, case.given["pod"], "pod")))
        nodes = [Node.read(node) for node in case.given["nodes"]]
        assert set(map(tuple, answers(stage, requirements, nodes).values())) == {tuple(case.expected[stage])}
