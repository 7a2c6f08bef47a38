"""Each control has tests that hold it, each marked test names a control, and pages name tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from hack.reference import controls
from hack.reference.controls import catalog, marked

ROOT = Path(__file__).parents[1]
# A module of the tests, and a function in it, or in a class of it: ``server/test_app::test_old_tls_is_refused``.
REFERENCE = re.compile(r"(?P<module>(?:\w+/)*test_\w+)(?P<names>(?:::\w+)+)(?P<more>…?)")
# No test can show a control for which the admin is responsible.
ELSEWHERE = "*left to the admin*"
GENERATED = ROOT / "docs/reference/controls.md"


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


def test_every_control_has_tests_and_every_marked_test_names_a_control() -> None:
    known = {each.name: each for each in catalog(controls.FILE.read_text())}
    tested = marked()

    assert tested.keys() - known.keys() == set(), "tests/controls.yaml does not have these"
    left = {name for name, each in known.items() if ELSEWHERE in f"{each.control} {each.remains}".lower()}
    assert known.keys() - tested.keys() - left == set(), "no test is marked with these"


def test_no_attack_is_told_twice_and_each_has_a_letter_and_an_answer() -> None:
    found = catalog(controls.FILE.read_text())

    assert len({each.attack for each in found}) == len(found)
    assert [each.name for each in found if each.kind not in set("STRIDE") or not (each.control or each.remains)] == []


def test_marks_are_found_wherever_tests_are(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "test_a.py").write_text(
        '@pytest.mark.control("one", "two")\ndef test_a(): ...\n\n\n'
        '@other\n@pytest.mark.control("two")\nclass TestB:\n'
        '    @pytest.mark.control("one")\n    async def test_b(self): ...\n'
        "\n\n@pytest.mark.other('three')\ndef test_c(): ...\n"
    )

    assert marked(tmp_path) == {
        "one": ["here/test_a::test_a", "here/test_a::TestB::test_b"],
        "two": ["here/test_a::test_a", "here/test_a::TestB"],
    }


def test_tests_that_a_page_names_exist() -> None:
    for page in {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {GENERATED, ROOT / "CHANGELOG.md"}:
        references = REFERENCE.finditer(page.read_text())
        assert {why for reference in references if (why := missing(reference))} == set(), page


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("cluster/test_live::TestLists::test_that_fail", ""),
        ("k8s/test_json_tree::test_lookup", ""),
        ("k8s/test_json_tree::test_gone", "there is no test"),
        ("test_gone::test_gone", "there is no module"),
        ("cluster/test_live::test_a_get_ends_by_itself", ""),
        ("cluster/test_live::TestLists::test_a_get_ends_by_itself", "there is no test"),
        ("k8s/test_json_tree::test_look…", ""),
        ("k8s/test_json_tree::test_gone…", "no test begins"),
    ],
)
def test_what_leads_to_no_test_is_found(reference: str, why: str) -> None:
    found = REFERENCE.fullmatch(reference)
    assert found
    assert why in missing(found)
    assert bool(why) == bool(missing(found))
