from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.__main__ import main
from tests.vectors.compare import differences

VM = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "vm", "namespace": "demo"},
    "spec": {"instancetype": {"name": "u1"}, "template": {"spec": {"domain": {}}}},
}
MISSING = 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1" not found'


def write(path: Path, *lines: Any) -> str:
    path.write_bytes(gzip.compress("\n".join(json.dumps(line) for line in lines).encode()))
    return str(path)


def line(name: str, stage: str, **expected: Any) -> dict[str, Any]:
    return {"case": {"id": name, "vm": VM}, "expected": {stage: expected}}


def placed(name: str, selector: Any = None, **expected: Any) -> dict[str, Any]:
    nodes = [{"metadata": {"name": node, "labels": {"zone": zone}}} for node, zone in (("n1", "a"), ("n2", "b"))]
    pod = {"nodeSelector": {"zone": "a"}} | (selector or {})
    return {"case": {"id": name, "pod": pod, "nodes": nodes}, "expected": expected}


RIGHT = line("a", "expand", error=MISSING)
WRONG = [line(f"case-{number}", "expand", error="another") for number in range(12)]
LONG = line("a", "admit", allowed=True, vm={str(number): number for number in range(40)})
PLACED = placed("a", affinity=["n1"], taints=["n1", "n2"], fit=["n1"])
MISPLACED = placed("b", affinity=["n2"], taints=["n1", "n2"], fit=["n1"])
ODD: Any = {"affinity": {"nodeAffinity": 1}}


@pytest.mark.parametrize(
    ("kind", "lines", "status", "shown"),
    [
        (
            "instancetypes",
            [RIGHT, line("b", "controller", error=f"sync: {MISSING}")],
            0,
            "controller: 1 of 1\nexpand: 1 of 1\n2 passed, 0 failed\n",
        ),
        (
            "instancetypes",
            [RIGHT, *WRONG],
            1,
            f'case-0, expand:\n  - error: "another"\n  + error: {json.dumps(MISSING)}\n',
        ),
        ("instancetypes", [RIGHT, *WRONG], 1, "case-9, "),
        ("instancetypes", [RIGHT, *WRONG], 1, "\n1 passed, 12 failed\n"),
        ("instancetypes", [LONG], 1, "more lines"),
        ("placement", [PLACED], 0, "affinity: 1 of 1\ntaints: 1 of 1\nfit: 1 of 1\n1 passed, 0 failed\n"),
        (
            "placement",
            [PLACED, MISPLACED],
            1,
            'b, affinity:\n  node by node:\n  - ["n2"]\n  + ["n1"]\n  over the index:\n',
        ),
        ("placement", [PLACED, MISPLACED], 1, "\n1 passed, 1 failed\n"),
        # A malformed one must be noticed.
        ("placement", [placed("a", affinity=["n2"], error="x")], 1, "a, error:\n  - x\n  + no reason at all\n"),
        ("placement", [placed("a", ODD, affinity=["n1"])], 1, "a, error:\n  + a.pod.affinity.nodeAffinity: expected"),
        ("placement", [placed("a", ODD, error="malformed")], 0, "error: 1 of 1\n1 passed, 0 failed\n"),
    ],
)
def test_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, lines: list[Any], status: int, shown: str
) -> None:
    assert main([kind, write(tmp_path / "v.jsonl.gz", *lines)]) == status
    out = capsys.readouterr().out
    assert shown in out if status else shown == out
    assert "case-10" not in out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", ":1: is no JSON: "),
        (b"[1]", ":1: is no case, which has the objects case and expected"),
        (b'{"case": {}, "expected": {"admit": 1}}', ":1: has an answer that is no object"),
        (b'\n{"case": {"id": "x"}, "expected": {"bake": {}}}', "x: names the stage bake, which there is not"),
        (b"\x1f\x8bnonsense", "can't be read: "),
    ],
)
def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, sentence: str) -> None:
    file = tmp_path / "v.jsonl"
    file.write_bytes(content)

    assert main(["instancetypes", str(file)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_placement_without_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["placement", write(tmp_path / "v.jsonl.gz", placed("a", fit={}))]) == 2
    assert "has an answer that is no list" in capsys.readouterr().err


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["instancetypes", str(tmp_path / "missing")]) == 2
    assert "No such file" in capsys.readouterr().err


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
