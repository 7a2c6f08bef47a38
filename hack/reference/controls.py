"""The reference of controls: what `tests/controls.yaml` says of each, and the tests that are marked with its name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from hack.reference.markdown import cell, table

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ROOT / "tests"
FILE: Final = TESTS / "controls.yaml"
MARKER: Final = "control"

# Not what an attacker tries, but what anybody learns; so its columns have other titles.
REVEALS: Final = "What an answer reveals"
_HEADS: Final = {
    REVEALS: ("", "object, and whose review it is read for", "what the answer can reveal, and to whom", "tests")
}
_HEAD: Final = ("", "attack", "what holds, and what remains", "tests")

_HEADER: Final = """\
# Controls

What keeps an attacker from what, and the tests that hold it, by the part of kubevirt-webhook that is attacked. The
letter is that of STRIDE: **S**poofing, **T**ampering, **R**epudiation, **I**nformation disclosure, **D**enial of
service, **E**levation of privilege. [The threat model](../../THREAT_MODEL.md) is what to read first: it says who is
trusted, and which risks remain.

This page is made by `make docs` from `tests/controls.yaml` and the markers of tests (`@pytest.mark.control`).
"""


class Control(NamedTuple):
    """One thing that an attacker is kept from.

    Attributes:
        name: with which tests are marked.
        area: what is attacked.
        kind: a letter of STRIDE.
        attack: what the attacker tries; of what answers reveal, the object, and whose review it is.
        control: what holds; of what answers reveal, what that is. Empty: nothing does.
        remains: what does not hold, or is left to the admin, or who learns it.
    """

    name: str
    area: str
    kind: str
    attack: str
    control: str
    remains: str


def catalog(text: str) -> list[Control]:
    """The controls of the file, in its order."""
    return [
        Control(name, area, *(each.get(key, "") for key in ("kind", "attack", "control", "remains")))
        for area, controls in yaml.safe_load(text).items()
        for name, each in controls.items()
    ]


def marked(root: Path = TESTS) -> dict[str, list[str]]:
    """The tests by the names of the controls with which they are marked."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(root.rglob("test_*.py")):
        module = file.relative_to(root).with_suffix("").as_posix()
        for names, test in _marks(ast.parse(file.read_text())):
            for name in names:
                found[name].append(f"{module}::{test}")
    return found


def _marks(tree: ast.Module | ast.ClassDef, inside: str = "") -> Iterator[tuple[list[str], str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [name for decorator in node.decorator_list for name in _names(decorator)]
            if names:
                yield names, f"{inside}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from _marks(node, f"{inside}{node.name}::")


def _names(decorator: ast.expr) -> Iterator[str]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == f"pytest.mark.{MARKER}":
        yield from (
            each.value for each in decorator.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )


def page() -> str:
    """The whole page, as Markdown."""
    tests, areas = marked(), defaultdict[str, list[Control]](list)
    for control in catalog(FILE.read_text()):
        areas[control.area].append(control)
    return "\n".join([_HEADER, *(_section(area, controls, tests) for area, controls in areas.items())])


def _section(area: str, controls: list[Control], tests: Mapping[str, list[str]]) -> str:
    rows = (
        (
            each.kind,
            cell(each.attack),
            cell(f"{each.control}{'; to: ' if area == REVEALS else ' '}{each.remains}".strip()),
            ", ".join(f"`{test}`" for test in tests.get(each.name, ())),
        )
        for each in controls
    )
    return f"## {area}\n\n{table(_HEADS.get(area, _HEAD), rows)}"
