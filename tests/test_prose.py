"""Tests hold codes, fields and statuses; sentences that users read are in golden files and in the catalogues' tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
# This many words in a row, with a letter in nearly all of them, are a sentence rather than a name or a value.
WORDS = 5
# KubeVirt's own sentences: tests compare the port of its rules with them word for word.
KUBEVIRT = ROOT / "webhook" / "kubevirt"
# Tests of the catalogues: arguments that stand for parts of sentences, and titles of sections.
CATALOGUES = frozenset({"test_messages.py", "placement/test_wording.py", "test_prose.py"})
# They quote the program's source in order to break it.
QUOTING = TESTS / "mutants"

Run = tuple[str, ...]


def runs(text: str, length: int = WORDS) -> frozenset[Run]:
    """Every so many words in a row of a text, without what surrounds them."""
    words = [word.strip(".,;:!?()[]{}\"'`^$\\").lower() for word in text.split()]
    rows = (tuple(words[start : start + length]) for start in range(len(words) - length + 1))
    return frozenset(row for row in rows if sum(any(map(str.isalpha, word)) for word in row) >= length - 1)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The string literals of a module with their lines, without docstrings; of an f-string its parts."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def sentences(folder: Path, length: int = WORDS) -> frozenset[Run]:
    """The strings of the modules below a folder."""
    return frozenset().union(
        *(runs(text, length) for path in folder.rglob("*.py") for _, text in texts(path.read_text()))
    )


@cache
def said() -> frozenset[Run]:
    """The program's own sentences, as its source and the golden files have them."""
    golden = (path for path in (TESTS / "golden").rglob("*") if path.is_file())
    lines = (line for path in golden for line in path.read_text().splitlines() if not line.startswith("=== "))
    ours = sentences(ROOT / "webhook") | sentences(ROOT / "certs")
    # A golden file has values where KubeVirt's sentence has gaps: three words in a row tell it.
    theirs = sentences(KUBEVIRT, 3)
    rows = ours.union(*map(runs, lines))
    return frozenset(row for row in rows if theirs.isdisjoint(row[at : at + 3] for at in range(WORDS - 2)))


def prose(source: str) -> list[str]:
    """The literals of a test module that repeat a sentence of the program, with their lines."""
    return [f"{line}: {text}" for line, text in texts(source) if not runs(text).isdisjoint(said())]


MODULES = sorted(
    path
    for path in TESTS.rglob("*.py")
    if str(path.relative_to(TESTS)) not in CATALOGUES and not path.is_relative_to(QUOTING)
)


@pytest.mark.parametrize("package", sorted({path.relative_to(TESTS).parts[0] for path in MODULES}))
def test_no_test_repeats_a_sentence_of_the_program(package: str) -> None:
    found = {
        str(path.relative_to(TESTS)): prose(path.read_text())
        for path in MODULES
        if path.relative_to(TESTS).parts[0] == package
    }

    assert {path: literals for path, literals in found.items() if literals} == {}, "use `golden`, or assert a code"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('assert why == "expired CAs are removed from the caBundles"', 1),
        ('assert why == f"the {x} of which expired CAs are removed from the caBundles {y}"', 1),
        ('raises(E, match="^expired CAs are removed from")', 1),
        ('"""expired CAs are removed from the caBundles"""', 0),
        ('assert why == "expired CAs are removed"', 0),
        ('assert path == "one two three four five"', 0),
    ],
)
def test_a_repeated_sentence_is_found(source: str, count: int) -> None:
    assert len(prose(source)) == count
