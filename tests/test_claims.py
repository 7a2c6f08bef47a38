"""docs/claims.md: what the README says, each sentence with the tests or the figures that show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.test_threat_model import REFERENCE, unshown

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "claims.md").read_text()
FIGURES = (ROOT / "docs" / "spread-figures.md").read_text()
# Tables of links, and figures that a run writes (tests/bench/test_smoke.py).
LEFT_OUT = re.compile(r"^## Documentation\n.*?(?=^## )|<!--.*?-->(?:.*?<!-- to here -->)?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
A_FEW_WORDS = 3


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, and the longer cells of its tables, without links and emphasis."""
    text = re.sub(r"^ *```.*?^ *```", "", LEFT_OUT.sub("", text), flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\n+|\n(?=[*|] )", text):
        if block.startswith("| "):
            cells = plain(block).strip("| ").split(" | ")[1:]
            yield from (cell for cell in cells if len(cell.split()) > A_FEW_WORDS and not re.match(r"[\d-]", cell))
        elif not block.startswith(("#", "![")):
            yield from filter(
                None, re.split(r"(?<=[.!?:]) (?=[A-Z`])", plain(" ".join(block.removeprefix("* ").split())))
            )


def plain(text: str) -> str:
    return LINK.sub(r"\1", text).replace("**", "").strip()


def claims() -> Iterator[tuple[str, str]]:
    """The rows of the page: a sentence, and what shows it."""
    for row in re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE):
        sentence, _, evidence = row.rpartition(" | ")
        if sentence not in ("README says", "") and not sentence.startswith("---"):
            yield sentence, evidence


def problem(evidence: str) -> str:
    """Why a cell shows nothing: it names neither a test nor a page of figures, or one that does not exist."""
    pages = re.findall(r"\]\(([\w./-]+\.md)#?[^)]*\)", evidence)
    missing = [page for page in pages if not (ROOT / "docs" / page).is_file()]
    references = ", ".join(found[0] for found in REFERENCE.finditer(evidence))
    return ", ".join(missing) or ("" if pages and not references else unshown(references))


def test_each_sentence_of_the_readme_is_shown_by_a_test_or_claims_nothing() -> None:
    told = [sentence for sentence, _ in claims()]
    assert sorted(told + re.findall(r"^\* (.+)$", PAGE, re.MULTILINE)) == sorted(sentences(README))
    assert {(sentence, why) for sentence, evidence in claims() if (why := problem(evidence))} == set()


def test_the_figures_of_the_readme_are_measured() -> None:
    table = README.partition("standard deviation per node |")[2].partition("\n\n")[0]
    figures = re.findall(r"\d+\.\d", table)
    assert (len(figures), {figure for figure in figures if figure not in FIGURES}) == (16, set())


def test_what_shows_nothing_is_found() -> None:
    assert problem("by review")
    assert problem("`test_claims::test_gone`")
    assert problem("[figures](gone.md)")
    assert not problem("`test_claims::test_what_shows_nothing_is_found`, [figures](spread-figures.md#all-rows)")
