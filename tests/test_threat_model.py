"""A test shows each claim of the threat model and of the pages beside it; this module checks that it exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "THREAT_MODEL.md"
# A module of the tests, and a function in it, or in a class of it: ``server/test_app::test_old_tls_is_refused``.
REFERENCE = re.compile(r"(?P<module>(?:\w+/)*test_\w+)(?P<names>(?:::\w+)+)(?P<more>…?)")
# Controls that no test can show, since the admin is responsible for them; the control must say so too.
ELSEWHERE = "*left to the admin*"
LETTERS = frozenset("STRIDE")


class ThreatRow(NamedTuple):
    """One line of a table of threats: its number, and its cells, which are a letter, the threat, controls and tests."""

    number: int
    cells: list[str]


def rows(text: str) -> Iterator[ThreatRow]:
    """The rows of all tables whose first cell is a letter of STRIDE."""
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" |")]
        if line.startswith("| ") and cells[0].strip() in LETTERS:
            yield ThreatRow(number, [cell.strip("| ") for cell in cells])


def tables_with_tests(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """The rows of all tables whose last column is ``tests``: line, first heading and cells."""
    heading: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" |")]
        if not line.startswith("|"):
            heading = []
        elif not heading:
            heading = cells
        elif heading[-1] == "tests" and not line.startswith("|--"):
            yield number, heading[0], cells


@cache
def functions(module: str) -> frozenset[str]:
    """The tests in a module, those of classes with the class's name and without; empty where there is no module."""
    file = ROOT / "tests" / f"{module}.py"
    if not file.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {name for each in inner for name in (each.name, f"{node.name}::{each.name}")}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def missing(reference: re.Match[str]) -> str:
    """Why a reference leads nowhere; empty where it leads to a test."""
    name = reference["names"].removeprefix("::")
    there = functions(reference["module"])
    if not there:
        return f"there is no module tests/{reference['module']}.py with tests"
    if reference["more"]:
        return "" if any(each.startswith(name) for each in there) else f"no test begins with {reference[0]}"
    return "" if name in there else f"there is no test {reference[0]}"


def problem(row: ThreatRow) -> str:
    """The errors in a row; empty for a correct one."""
    if len(row.cells) != 4:
        return f"it has {len(row.cells)} cells, not 4: letter, threat, controls, tests"
    _, _, controls, tests = row.cells
    if tests == ELSEWHERE:
        said = ELSEWHERE.strip("*") in controls.replace("*", "").lower()
        return "" if said else f"its controls do not say what is {ELSEWHERE}"
    return unshown(tests)


def unshown(tests: str) -> str:
    """The errors in a cell that names tests; empty for a correct one."""
    references = list(REFERENCE.finditer(tests))
    rest = REFERENCE.sub("", tests).replace("`", "").replace(",", "").strip()
    if rest:
        return f"its tests hold {rest!r}, which is no reference"
    if not references:
        return f"it names no test, nor {ELSEWHERE}"
    return "; ".join(filter(None, map(missing, references)))


def test_every_row_names_tests_that_exist() -> None:
    found = list(rows(MODEL.read_text()))
    assert len(found) > 40
    assert {f"THREAT_MODEL.md:{row.number}: {why}" for row in found if (why := problem(row))} == set()


def test_no_row_of_a_table_with_tests_goes_without() -> None:
    """Among them those of what an answer reveals, and rows that would be no threats for want of one letter."""
    found = list(tables_with_tests(MODEL.read_text()))
    threats = {row.number for row in rows(MODEL.read_text())}
    assert len({heading for _, heading, _ in found}) == 2
    assert {number for number, heading, _ in found if not heading} == threats
    others = [(number, cells) for number, heading, cells in found if heading]
    assert len(others) > 15
    assert {f"THREAT_MODEL.md:{number}: {why}" for number, cells in others if (why := unshown(cells[-1]))} == set()


def test_no_threat_is_told_twice() -> None:
    threats = [row.cells[1] for row in rows(MODEL.read_text())]
    assert len(set(threats)) == len(threats)


def test_tests_that_a_page_names_exist() -> None:
    for page in (MODEL, ROOT / "SECURITY.md", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        references = REFERENCE.finditer(page.read_text())
        assert {why for reference in references if (why := missing(reference))} == set(), page


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("| S | x | y | `test_threat_model::test_no_threat_is_told_twice` |", ""),
        ("| S | x | y | `cluster/test_live::TestLists::test_that_fail`, `k8s/test_json_tree::test_lookup` |", ""),
        ("| S | x | y. *Left to the admin*: z. | *left to the admin* |", ""),
        ("| S | x | y | *left to the admin* |", "controls do not say"),
        ("| S | x | y |", "has 3 cells"),
        ("| S | x | y | |", "names no test"),
        ("| S | x | y | `k8s/test_json_tree::test_gone` |", "there is no test"),
        ("| S | x | y | `test_gone::test_gone` |", "there is no module"),
        ("| S | x | y | `cluster/test_live::test_a_get_ends_by_itself` |", ""),
        ("| S | x | y | `cluster/test_live::TestLists::test_a_get_ends_by_itself` |", "there is no test"),
        ("| S | x | y | by review |", "is no reference"),
        ("| S | x | y | `k8s/test_json_tree::test_look…` |", ""),
        ("| S | x | y | `k8s/test_json_tree::test_gone…` |", "no test begins"),
    ],
)
def test_what_a_row_must_be(row: str, why: str) -> None:
    (found,) = rows(row)
    assert why in problem(found)
    assert bool(why) == bool(problem(found))
