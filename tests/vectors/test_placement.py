"""Nodes that kube-scheduler's own helpers find for pods, and for the target pods that KubeVirt itself has made."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from tests.builders import read_node
from tests.vectors.cases import DATA, VectorCase, read
from tests.vectors.placement import answers, failures, target_failures
from webhook.k8s.types.scheduling import Placed
from webhook.placement.target_pods import own_requirements


@cache
def cases(name: str) -> list[VectorCase]:
    return list(read(DATA / f"{name}.jsonl.gz", list))


def test_kube_schedulers_own_answers() -> None:
    assert len(cases("placement")) == 400
    assert {case.id: found for case in cases("placement") if (found := failures(case))} == {}


@pytest.mark.parametrize("stage", ["affinity", "taints", "fit"])
def test_malformed_terms_leave_the_others_alone(stage: str) -> None:
    malformed = [case for case in cases("placement") if "error" in case.expected]
    assert malformed
    for case in malformed:
        requirements = tuple(own_requirements(msgspec.convert(case.given["pod"], Placed)))
        found = answers(stage, requirements, [read_node(node) for node in case.given["nodes"]])
        assert set(map(tuple, found.values())) == {tuple(case.expected[stage])}


def test_kubevirts_own_target_pods() -> None:
    """They leave some nodes and not others."""
    assert {case.id: found for case in cases("targets") if (found := target_failures(case))} == {}
    left = [(len(case.expected["kubevirt"]), len(case.given["nodes"])) for case in cases("targets")]
    assert sum(0 < some < every for some, every in left) > len(left) // 2 > 50


@pytest.mark.parametrize("part", ["vmi", "migration", "targetPod"])
def test_a_difference_is_seen(part: str) -> None:
    """The cases notice it if any part of one is taken from another."""
    given = [case.given for case in cases("targets")]
    mixed = [
        VectorCase(case.id, case.given | {part: other[part]}, case.expected)
        for case, other in zip(cases("targets")[::2], given[1::2], strict=False)
        if bool(case.given.get("sourcePods")) == bool(other.get("sourcePods"))
    ]
    assert sum(bool(target_failures(case)) for case in mixed) > len(mixed) // 4
