"""That every mutant still is one; whether it is noticed, ``python -m tests.mutants`` tells."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import __main__ as runner
from tests.mutants.__main__ import MUTANTS, chosen, main
from tests.mutants.mutant import ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{Path(mutant.file).stem}: {mutant.rule}")
def test_every_mutant_changes_one_place_and_still_compiles(mutant: Mutant) -> None:
    changed = mutant.apply(ROOT)
    assert changed != (ROOT / mutant.file).read_text()
    ast.parse(changed)


def test_no_two_are_the_same() -> None:
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_that_the_source_has_left_behind() -> None:
    with pytest.raises(ValueError, match="0 times, not once"):
        Mutant("none", "webhook/names.py", "no such text", "").apply(ROOT)


def test_the_copy_has_all_that_its_tests_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What lacks a module fails without any mutant, and nothing is run."""
    monkeypatch.setattr(runner, "STAGES", {name: ["--collect-only", *files] for name, files in runner.STAGES.items()})

    assert runner.MutantCopy(tmp_path / "copy").noticed_by(None) == ""


def test_words_choose() -> None:
    assert {mutant.file for mutant in chosen(["kubevirt/defaults"])} == {"webhook/kubevirt/defaults.py"}
    assert chosen([]) == MUTANTS
    assert main(["no such word"]) == 2


def test_the_runner_tells_who_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One mutant that the vectors notice, one that only unit tests notice, one that no test notices."""
    hotplug = "webhook/kubevirt/defaults.py"
    mutants = [
        Mutant("seen by KubeVirt's answers", hotplug, "_MAX_VCPUS: Final = 512", "_MAX_VCPUS: Final = 2"),
        Mutant("nothing", hotplug, "uint32 in Go, which", "uint32 in Go, that"),
    ]
    monkeypatch.setattr(runner, "MUTANTS", mutants)
    monkeypatch.setattr(runner, "STAGES", {"vectors": ["tests/kubevirt/test_webhooks.py"]})

    assert main([]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"survived: nothing ({hotplug})"
    assert shown[1].startswith("1 of 2 killed: 1 by the vectors; 1 survived; ")
