"""Golden files: differences are found, equal texts are stored once, and a run rewrites what its tests make alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests import golden_files

CONFTEST = """\
import pytest
from tests import golden_files

def pytest_configure(config):
    config.pluginmanager.register(golden_files.GoldenPlugin())

@pytest.fixture
def golden(request):
    return golden_files.hold(request)

@pytest.fixture
def golden_catalogue():
    return golden_files.check_entry
"""
MODULE = """\
import pytest

def test_first(golden, golden_catalogue):
    golden("one{0}")
    golden("two{0}")
    golden_catalogue("catalog.txt", "first{0}")

@pytest.mark.parametrize("word", ["a", "b", "c"])
def test_words(word, golden, golden_catalogue):
    golden("same{0}" if word != "c" else "another{0}")
    golden_catalogue("catalog.txt", "word{0}")

def test_last(golden):
    golden("three{0}")
"""
# Its own name is that of the catalog.
CATALOG = """\
def test_another(golden_catalogue):
    golden_catalogue("catalog.txt", "another{0}")
"""
# What the module makes: that of `b` is the text of `a`.
SECTIONS = ["test_first", "test_first (2)", "test_words[a]", "test_words[c]", "test_last"]


class Project:
    """A project of two modules of tests, and its golden files.

    Attributes:
        output: what the last run printed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.tests = directory / "tests"
        self.output = ""
        self.golden = self.tests / "golden"
        self.golden.mkdir(parents=True)
        (self.tests / "__init__.py").touch()
        shutil.copy(golden_files.__file__, self.tests)
        (self.tests / "conftest.py").write_text(CONFTEST)
        (directory / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
        self.write()
        assert self.run(rewrites=True) == 0

    def write(self, version: str = "", text: str = MODULE) -> None:
        """The modules, whose texts end so."""
        (self.tests / "test_it.py").write_text(text.replace("{0}", version))
        (self.tests / "test_catalog.py").write_text(CATALOG.replace("{0}", version))

    def run(self, *options: str, rewrites: bool = False) -> int:
        """Pytest's exit status."""
        rest = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        rest |= {"PYTHONPATH": str(self._directory), "REWRITE_GOLDEN": "1" if rewrites else ""}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        done = subprocess.run(command, cwd=self._directory, env=rest, check=False, stdout=subprocess.PIPE, text=True)
        self.output = done.stdout
        return done.returncode

    def sections(self) -> dict[str, str]:
        """The module's golden file."""
        parts = f"\n{(self.golden / 'it.txt').read_text()}".split("\n=== ")[1:]
        return {title: content.strip() for title, _, content in (part.partition("\n") for part in parts)}

    def catalog(self) -> list[str]:
        """The entries of the catalog."""
        return (self.golden / "catalog.txt").read_text().split()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_text_that_differs_is_found(project: Project) -> None:
    assert project.run() == 0
    project.write("!")
    assert project.run("-k", "last") == 1
    project.write(text=MODULE.replace("word{0}", "other"))
    assert project.run("-k", "words") == 1


@pytest.mark.parametrize(
    ("section", "text", "said"),
    [
        ("test_one", "another", '"test_one" of tests/golden/here.txt differs'),
        ("test_two", "one", 'has no "test_two"; write it'),
        ("test_words[c]", "another", 'has no "test_words[c]", and "test_words[a]" has another text; write it'),
    ],
)
def test_a_section_that_is_not_there_is_not_called_different(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, section: str, text: str, said: str
) -> None:
    monkeypatch.setattr(golden_files, "GOLDEN", tmp_path)
    # This run's own texts are compared at its end.
    monkeypatch.setattr(golden_files, "_sections", defaultdict(dict))
    monkeypatch.delenv("REWRITE_GOLDEN", raising=False)
    (tmp_path / "here.txt").write_text("=== test_one\none\n\n=== test_words[a]\nsame\n")

    with pytest.raises(AssertionError) as failure:
        golden_files.check_section("here.txt", section, text)

    assert said in str(failure.value)
    golden_files.check_section("here.txt", "test_words[b]", "same")


@pytest.mark.parametrize("options", [(), ("tests/test_it.py",), ("-n", "2"), ("-p", "no:xdist")])
def test_a_whole_run_changes_nothing_where_nothing_has_changed(project: Project, options: tuple[str, ...]) -> None:
    before = project.sections()
    assert list(before) == SECTIONS

    assert project.run(*options, rewrites=True) == 0

    assert list(project.sections().items()) == list(before.items())
    assert project.catalog() == ["another", "first", "word"]


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (("-k", "words"), {"test_words[a]", "test_words[c]"}),
        (("-k", "last", "-n", "2"), {"test_last"}),
        (("tests/test_it.py::test_first",), {"test_first", "test_first (2)"}),
        (("tests/test_it.py::test_words[c]", "tests/test_it.py::test_last"), {"test_words[c]", "test_last"}),
        (("tests/test_it.py::test_first", "-n", "2"), {"test_first", "test_first (2)"}),
        (("--deselect", "tests/test_it.py::test_last"), set(SECTIONS) - {"test_last"}),
        (("--deselect", "tests/test_it.py::test_last", "-n", "2"), set(SECTIONS) - {"test_last"}),
        (("tests/test_it.py",), set(SECTIONS)),
    ],
)
def test_a_part_of_the_tests_rewrites_its_own_texts_alone(
    project: Project, options: tuple[str, ...], changed: set[str]
) -> None:
    before = project.sections()
    project.write("!")

    assert project.run(*options, rewrites=True) == 0

    expected = {title: f"{text}!" if title in changed else text for title, text in before.items()}
    assert list(project.sections().items()) == list(expected.items())
    assert {"another", "first", "word"} <= set(project.catalog())
    assert project.run("tests/test_catalog.py", rewrites=True) == 0
    assert {"another", "another!", "first", "word"} <= set(project.catalog())


@pytest.mark.parametrize("options", [(), ("-k", "new"), ("-n", "2"), ("tests/test_it.py::test_new",)])
def test_a_new_section_stands_where_its_test_does(project: Project, options: tuple[str, ...]) -> None:
    new = "def test_new(golden):\n    golden('four')\n\n"
    project.write(text=MODULE.replace("def test_last", f"{new}def test_last"))

    assert project.run(*options, rewrites=True) == 0

    assert list(project.sections()) == [*SECTIONS[:-1], "test_new", "test_last"]


def test_only_a_whole_run_drops_what_no_test_makes(project: Project) -> None:
    project.write(text=MODULE.replace("test_first", "test_one").replace("word{0}", "other"))
    assert project.run("-k", "one or last", rewrites=True) == 0
    assert list(project.sections()) == ["test_first", "test_first (2)", "test_one", "test_one (2)", *SECTIONS[2:]]

    # A test that is skipped makes nothing, and what it made stays.
    kept = MODULE.replace("test_first", "test_one").replace("def test_last", "@pytest.mark.skip\ndef test_last")
    project.write(text=kept)
    assert project.run(rewrites=True) == 0
    assert list(project.sections())[-1] == "test_last"
    assert project.catalog() == ["another", "first", "word"]

    project.write(text=MODULE.replace("test_first", "test_one").replace("word{0}", "other"))
    assert project.run(rewrites=True) == 0
    assert list(project.sections()) == ["test_one", "test_one (2)", *SECTIONS[2:]]
    assert project.catalog() == ["another", "first", "other"]


def age(project: Project) -> None:
    """Leave texts in the golden files that no test makes any more."""
    with (project.golden / "catalog.txt").open("a") as file:
        file.write("\nold entry\nits second line\n")
    with (project.golden / "it.txt").open("a") as file:
        file.write("\n=== test_removed\nold\n")
    (project.golden / "old").mkdir()
    (project.golden / "old" / "screen.txt").write_text("old\n")


@pytest.mark.parametrize("options", [(), ("-n", "2"), ("tests",), ("-m", "golden or not golden")])
def test_a_run_of_all_tests_finds_what_no_test_makes(project: Project, options: tuple[str, ...]) -> None:
    age(project)

    assert project.run(*options) == 1

    said = [line.strip() for line in project.output.partition("= golden files =")[2].splitlines()]
    assert "make golden" in said[1]
    assert said[2:7] == [
        *("tests/golden/catalog.txt", "no test makes: old entry"),
        *("tests/golden/it.txt", "no test makes: test_removed"),
        "tests/golden/old/screen.txt: no test makes it",
    ]
    assert project.run(rewrites=True) == 0
    assert project.run(*options) == 0
    assert not (project.golden / "old" / "screen.txt").exists()


@pytest.mark.parametrize(
    "options", [("-k", "words"), ("tests/test_it.py",), ("tests/test_it.py::test_last",), ("--deselect", "tests/x")]
)
def test_a_run_of_some_tests_does_not_know_what_others_make(project: Project, options: tuple[str, ...]) -> None:
    age(project)

    assert project.run(*options) == 0


def test_sections_in_another_order_than_their_tests_are_found(project: Project) -> None:
    sections = list(project.sections().items())
    (project.golden / "it.txt").write_text("\n".join(f"=== {title}\n{text}\n" for title, text in reversed(sections)))

    assert project.run() == 1

    assert "tests/golden/it.txt" in project.output


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_run_that_fails_says_which_files_may_keep_old_texts(project: Project, options: tuple[str, ...]) -> None:
    project.write("!", MODULE.replace('golden("three{0}")', "assert False"))

    assert project.run(*options, rewrites=True) == 1

    assert set(project.catalog()) == {"another", "another!", "first", "first!", "word", "word!"}
    said = [line.strip() for line in project.output.partition("= golden files =")[2].splitlines()]
    assert said[2:4] == ["tests/golden/catalog.txt", "tests/golden/it.txt"]
    project.write("!")
    assert project.run(*options, rewrites=True) == 0
    assert set(project.catalog()) == {"another!", "first!", "word!"}
    assert "golden files" not in project.output


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_what_a_test_made_that_fails_is_not_written(project: Project, options: tuple[str, ...]) -> None:
    before = project.sections()
    project.write("!", MODULE.replace('golden("two{0}")', 'golden("two{0}"); assert False'))

    assert project.run(*options, rewrites=True) == 1

    after = project.sections()
    assert {title for title in before if after[title] != before[title]} == {
        "test_words[a]",
        "test_words[c]",
        "test_last",
    }


def test_sections_keep_the_order_of_the_tests() -> None:
    present = {"gone": "1", "test_b": "2", "lost": "3", "test_a": "4"}
    order = ["test_a", "test_b"]

    merged = golden_files.merge(present, {"test_a (2)": "5"}, order, is_whole=False)
    assert list(merged.items()) == [("gone", "1"), ("test_a", "4"), ("test_a (2)", "5"), ("test_b", "2"), ("lost", "3")]
    whole = golden_files.merge(present, {"test_b": "6", "test_a": "4"}, order, is_whole=True)
    assert list(whole.items()) == [("test_a", "4"), ("test_b", "6")]
