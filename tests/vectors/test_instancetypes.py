from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.vectors.__main__ import failures
from tests.vectors.cases import DATA, FILE, VERSIONS, Json, read
from tests.vectors.stages import STAGES, differences
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.go_json.structs import Struct, decode
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, Version


class Result(NamedTuple):
    """What is kept of a case: its name, the release that has answered if it names one, the stages, and failures."""

    id: str
    release: Version | None
    stages: frozenset[str]
    failures: dict[str, list[str]]


@cache
def evaluated() -> tuple[list[Result], dict[tuple[Struct, bytes], Json]]:
    """All cases, and what their reviews shared, by its shape and content."""
    shared: dict[tuple[Struct, bytes], Json] = {}
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structs, "_kept", shared)
        patch.setattr(structs, "MAX_OBJECTS", 10_000)
        for case in (case for file in (FILE, DATA / "corners.jsonl.gz", *VERSIONS) for case in read(file)):
            release = case.rules.release.version if "kubevirtVersion" in case.given else None
            results.append(Result(case.id, release, frozenset(case.expected), failures(case)))
    return results, shared


@pytest.mark.parametrize("stage", STAGES)
def test_kubevirts_own_answers(stage: str) -> None:
    results, _ = evaluated()
    assert any(stage in result.stages for result in results)
    assert not {result.id: result.failures[stage] for result in results if stage in result.failures}


def test_every_known_release_has_answered() -> None:
    assert {result.release for result in evaluated()[0]} == {*SUPPORTED_VERSIONS, None}


def test_what_reviews_share_stays_as_it_was_decoded() -> None:
    _, shared = evaluated()
    assert len(shared) > 100
    for (shape, content), value in shared.items():
        assert value == decode(shape, msgspec.msgpack.decode(content))


def mutated(template: dict[str, Any], **metadata: str) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"template": {"spec": template}}}


CAUSES = [{"field": f"annotations.{key}", "message": key} for key in "ab"]
OTHERS = [{"field": f"spec.{number}", "message": "x"} for number in range(9)]


@pytest.mark.parametrize(
    ("stage", "expected", "ours", "agree"),
    [
        ("admit", {"panic": "nil"}, {"allowed": False, "error": "would crash"}, True),
        ("admit", {"panic": "nil"}, {"allowed": True}, False),
        ("admit", {"allowed": True}, {"allowed": True, "error": "x"}, False),
        ("admit", {"causes": CAUSES}, {"causes": CAUSES[::-1]}, True),
        ("admit", {"causes": CAUSES}, {"causes": CAUSES[:1]}, False),
        ("admit", {"causes": [*OTHERS, CAUSES[0]]}, {"causes": [*OTHERS, CAUSES[1]]}, True),
        ("admit", {"causes": [*OTHERS, CAUSES[0]]}, {"causes": [OTHERS[0], *OTHERS]}, False),
        ("admit", {"causes": [{"message": "x"}]}, {"causes": [{"message": "y"}]}, False),
        ("admit", {"allowed": False}, {"allowed": False, "message": "why"}, True),
        ("expand", {"error": "annotations.a, annotations.b"}, {"error": "annotations.b, annotations.a"}, True),
        ("expand", {"error": "sync: x"}, {"error": "x"}, False),
        ("controller", {"error": "sync: x"}, {"error": "x"}, True),
        ("controller", {"vmi": {"spec": {"a": 1}}}, {"vmi": {"spec": {}}}, False),
        ("controller", {"vmi": {"spec": {}}}, {"vmi": {"spec": {"a": 1}}}, False),
        ("controller", {"vmi": []}, {"vmi": {}}, False),
        ("mutate", {"vm": mutated({"a": 1})}, {"vm": mutated({"a": 1}, uid="2")}, True),
        ("mutate", {"vm": mutated({"a": 1})}, {"vm": mutated({"a": 2})}, False),
        (
            "controller",
            {"controllerRevisions": [{"metadata": {"name": "b"}}, {"metadata": {"name": "a"}}]},
            {"controllerRevisions": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b", "uid": "1"}}]},
            True,
        ),
    ],
)
def test_comparing(stage: str, expected: dict[str, Any], ours: dict[str, Any], agree: bool) -> None:
    assert (differences(stage, expected, ours) == []) is agree
