"""That every mutant still is one; whether it is noticed, ``python -m hack.mutants`` tells."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.mutant import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_every_mutant_changes_one_place_and_still_compiles(file: str) -> None:
    before = set((ROOT / file).read_text().split("\n\n\n"))
    for mutant in (mutant for mutant in MUTANTS if mutant.file == file):
        (changed,) = set(mutant.apply(ROOT).split("\n\n\n")) - before
        ast.parse(changed)


def test_a_mutant_that_the_source_has_left_behind() -> None:
    with pytest.raises(ValueError, match="0 times, not once"):
        Mutant("none", "webhook/names.py", "no such text", "").apply(ROOT)
