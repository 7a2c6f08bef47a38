from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.vectors.cases import VectorCase, read
from tests.vectors.nodes import answers, failures
from webhook.placement.affinity import Placed
from webhook.placement.constraints import own
from webhook.placement.node import Node
from webhook.placement.reading import read as view

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
        requirements = tuple(own(view(Placed, case.given["pod"], "pod")))
        nodes = [Node.read(node) for node in case.given["nodes"]]
        assert set(map(tuple, answers(stage, requirements, nodes).values())) == {tuple(case.expected[stage])}
