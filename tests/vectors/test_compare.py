from __future__ import annotations

from typing import Any

import pytest

from tests.vectors.compare import differences


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
