"""That every mutant still is one; whether it is noticed, ``python -m tests.mutants`` tells."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.__main__ import MUTANTS
from tests.mutants.mutant import ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{Path(mutant.file).stem}: {mutant.rule}")
def test_every_mutant_changes_one_place_and_still_compiles(mutant: Mutant) -> None:
    changed = mutant.apply(ROOT)
    assert changed != (ROOT / mutant.file).read_text()
    ast.parse(changed)


def test_a_mutant_that_the_source_has_left_behind() -> None:
    with pytest.raises(ValueError, match="0 times, not once"):
        Mutant("none", "webhook/names.py", "no such text", "").apply(ROOT)
