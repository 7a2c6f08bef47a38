"""The texts for users, held in one place: ``tests/golden/``, one file for each screen or catalog of texts.

Tests assert codes, fields, patches and statuses; a text stands in a golden file alone, so that rewording is one
command, ``make golden``, and one diff to read. `GoldenPlugin` collects the texts of a run. At its end it writes them,
where ``REWRITE_GOLDEN`` is set: any choice of tests replaces what these tests make, and nothing else. Elsewhere a run
of all golden tests fails if ``make golden`` would change anything, as where a text is left that no test makes any more.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

TESTS: Final = Path(__file__).parent
GOLDEN: Final = TESTS / "golden"
# The fixture `golden`, which holds a text to the golden file of its module.
Golden = Callable[[str], None]
_REWRITE: Final = "REWRITE_GOLDEN"
_HEAD: Final = "=== "
_PARAMETERS: Final = re.compile(r"(?P<test>\w+)\[.*\](?P<number> \(\d+\))?", re.DOTALL)
_NUMBER: Final = re.compile(r"(?P<test>.+) \((?P<number>\d+)\)", re.DOTALL)

# What the tests of this run made: of files of sections, by title, of catalogs, and which files of one text.
_sections: Final[defaultdict[str, dict[str, str]]] = defaultdict(dict)
_entries: Final[defaultdict[str, set[str]]] = defaultdict(set)
_texts: Final[set[str]] = set()


def is_rewriting() -> bool:
    """Whether texts are written, and not compared."""
    return bool(os.environ.get(_REWRITE))


def file_of(module: Path) -> str:
    """The golden file of a module of tests: of sections, which that module alone makes."""
    path = module.relative_to(TESTS)
    return path.with_name(f"{path.stem.removeprefix('test_')}.txt").as_posix()


def hold(request: pytest.FixtureRequest) -> Golden:
    """The fixture `golden` of a test: each call is a section, by the name of the test and the number of the call."""
    file = file_of(request.path)
    count = 0
    # The directory of a test's files does not matter to the test, nor does that of the repository.
    here = str(request.getfixturevalue("tmp_path")) if "tmp_path" in request.fixturenames else ""

    def check(text: str) -> None:
        nonlocal count
        count += 1
        text = (text.replace(here, "DIR") if here else text).replace(f"{TESTS.parent}/", "")
        check_section(file, request.node.name if count == 1 else f"{request.node.name} ({count})", text)

    return check


def check(name: str, text: str) -> None:
    """Compare a text with the golden file of that name; rewrite the file instead where ``REWRITE_GOLDEN`` is set.

    Args:
        name: the file's, below ``tests/golden/``, for example ``doctor-spread.txt``.

    Raises:
        AssertionError: the texts differ, or the file is not there.
    """
    path = GOLDEN / name
    _texts.add(name)
    if is_rewriting():
        _write(name, text)
        return
    assert path.exists(), f"there is no tests/golden/{name}; write it with `make golden`, and read it"
    assert text.rstrip("\n") == path.read_text().rstrip("\n"), f"tests/golden/{name} differs; `make golden` rewrites it"


def check_section(name: str, section: str, text: str) -> None:
    """As `check`, of a part of a file that has one for each situation.

    Parameters of a test that make the same text as the first ones have no section of their own: each text is there
    once.

    Args:
        name: the file's, below ``tests/golden/``.
        section: one line, for example the name of a test and its parameters.

    Raises:
        AssertionError: the texts differ, or the section is not there.
    """
    section, text = _title(section), text.rstrip("\n")
    _sections[name][section] = text
    if is_rewriting():
        return
    sections = _read_sections(name)
    if section in sections:
        assert text == sections[section], f'"{section}" of tests/golden/{name} differs; `make golden` rewrites it'
        return
    # Where its text would stand once, if it is the same.
    alike = _first_alike(sections, section)
    if alike is None or text != sections[alike]:
        other = f', and "{alike}" has another text' if alike else ""
        raise AssertionError(f'tests/golden/{name} has no "{section}"{other}; write it with `make golden`, and read it')


def check_entry(name: str, entry: str) -> None:
    """As `check`, of an entry in a catalog, which has each text once, sorted.

    Args:
        name: the file's, below ``tests/golden/``.
        entry: lines, none of them empty.

    Raises:
        AssertionError: the catalog has no such entry.
    """
    _entries[name].add(entry)
    if is_rewriting():
        return
    assert entry in _read_entries(name), f"tests/golden/{name} has not this entry; `make golden` rewrites it:\n{entry}"


def merge(
    present: Mapping[str, str], made: Mapping[str, str], order: Collection[str], *, is_whole: bool
) -> dict[str, str]:
    """The sections of a file after a run, in the order of the tests that make them.

    Args:
        present: the sections that are there.
        made: those that the run made.
        order: the names of all tests of the module, in their order.
        is_whole: whether all of them ran: then what none of them made goes.
    """
    places = {name: index for index, name in enumerate(order)}

    def place(title: str) -> tuple[int, int] | None:
        if title in places:
            return places[title], 1
        numbered = _NUMBER.fullmatch(title)
        if numbered and numbered["test"] in places:
            return places[numbered["test"]], int(numbered["number"])
        return None

    titles = made.keys() if is_whole else present.keys() | made.keys()
    known = {title: found for title in titles if (found := place(title))}
    ordered = sorted(known, key=known.__getitem__)
    before: str | None = None
    for title in (title for title in {**present, **made} if title in titles):
        # Of no test that there is: it stays behind what it is behind.
        if title not in known:
            ordered.insert(ordered.index(before) + 1 if before else 0, title)
        before = title
    texts = {**present, **made}
    merged: dict[str, str] = {}
    for title in ordered:
        first = _first_alike(merged, title)
        if first is None or merged[first] != texts[title]:
            merged[title] = texts[title]
    return merged


def contents(orders: Mapping[str, Collection[str]], whole: Collection[str], *, is_whole_run: bool) -> dict[str, str]:
    """What the golden files contain after a run, by their names; an empty text: the file goes.

    Args:
        orders: by file of sections, the names of all tests of its module, in their order.
        whole: the files of sections of which all tests ran and passed.
        is_whole_run: whether all golden tests ran and passed, so that what none of them made goes.
    """
    texts: dict[str, str] = {}
    for name in {*_sections, *whole}:
        present, made = _read_sections(name), _sections.get(name, {})
        sections = merge(present, made, orders.get(name, ()), is_whole=name in whole)
        # Not of a module whose texts are in files of other names: one of its own name may be a catalog.
        if sections or present:
            texts[name] = "\n".join(f"{_HEAD}{title}\n{content}\n" for title, content in sections.items())
    for name, entries in _entries.items():
        kept = set() if is_whole_run else _read_entries(name)
        texts[name] = "\n\n".join(sorted(kept | entries)) + "\n"
    if is_whole_run:
        files = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()}
        texts |= dict.fromkeys(files - texts.keys() - _texts, "")
    return dict(sorted(texts.items()))


class GoldenPlugin:
    """What a run of tests knows of its choice of golden tests; at the end of the run it writes the files, or compares.

    Workers of xdist give the process that distributes the tests what they made.
    """

    def __init__(self) -> None:
        self._orders: dict[str, list[str]] = {}
        self._passed: set[tuple[str, str]] = set()
        # Tests that were named one by one: the file, and the rest of the name. The whole modules are collected, since
        # a new section stands where its test does.
        self._named: Final[list[tuple[Path, str]]] = []
        self._is_narrowed = False
        # What is said at the end, if anything: a line each.
        self._summary: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        """Collect whole modules, also where tests are named one by one. What distributes tests passes names on."""
        narrowing = ("lf", "ignore", "ignore_glob", "deselect")
        chosen = [arg for arg in config.args if "::" in arg]
        self._is_narrowed = (
            bool(chosen)
            or any(getattr(config.option, name, None) for name in narrowing)
            or any((config.invocation_params.dir / arg).resolve() not in (TESTS, TESTS.parent) for arg in config.args)
        )
        if chosen and is_rewriting() and getattr(config.option, "dist", "no") == "no":
            for arg in chosen:
                path, _, name = arg.partition("::")
                self._named.append(((config.invocation_params.dir / path).resolve(), name))
            config.args[:] = dict.fromkeys(arg.partition("::")[0] for arg in config.args)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Note the order of all golden tests, and take only those that were named."""
        for item in items:
            if is_golden(item):
                self._orders.setdefault(file_of(item.path), []).append(_title(item.name))
        if self._named:
            paths = {path for path, _ in self._named}
            rest = [item for item in items if item.path in paths and not self._is_named(item)]
            gone = set(rest)
            items[:] = [item for item in items if item not in gone]
            config.hook.pytest_deselected(items=rest)

    def _is_named(self, item: pytest.Item) -> bool:
        own = item.nodeid.partition("::")[2]
        return any(
            item.path == path and own.startswith(name) and own[len(name) :][:1] in ("", "[", ":")
            for path, name in self._named
        )

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Note which golden tests have passed."""
        if call.when == "call" and call.excinfo is None and is_golden(item):
            self._passed.add((file_of(item.path), _title(item.name)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of xdist made; of one that crashed there is nothing."""
        made = getattr(node, "workeroutput", {}).get("golden")
        if made:
            self._orders.update(made["orders"])
            self._passed.update(map(tuple, made["passed"]))
            for name, sections in made["sections"].items():
                _sections[name].update(sections)
            for name, entries in made["entries"].items():
                _entries[name].update(entries)
            _texts.update(made["texts"])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the files or compare with them, or give what was made to the process that does."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            entries = {name: sorted(entries) for name, entries in _entries.items()}
            made = {"orders": self._orders, "passed": sorted(map(list, self._passed)), "sections": dict(_sections)}
            output["golden"] = made | {"entries": entries, "texts": sorted(_texts)}
            return
        self._forget_failed()
        whole = {name for name, order in self._orders.items() if {(name, test) for test in order} <= self._passed}
        is_whole_run = not self._is_narrowed and exitstatus == 0 and whole == self._orders.keys()
        if is_rewriting():
            self._write(whole, is_whole_run=is_whole_run)
        elif is_whole_run and (differing := _differing(contents(self._orders, whole, is_whole_run=True))):
            self._summary.append("tests/golden is not what `make golden` writes; run it, and read the difference:")
            self._summary += differing
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _forget_failed(self) -> None:
        """What a test made that failed later, perhaps for that very text, is nobody's text."""
        for name, made in _sections.items():
            tests = {*self._orders.get(name, ())}
            for title in list(made):
                numbered = _NUMBER.fullmatch(title)
                test = numbered["test"] if numbered and title not in tests else title
                if test in tests and (name, test) not in self._passed:
                    del made[title]

    def _write(self, whole: Collection[str], *, is_whole_run: bool) -> None:
        """Write the files, and say which may be out of date."""
        kept = {name for name, entries in _entries.items() if not is_whole_run and _read_entries(name) - entries}
        kept |= {name for name, made in _sections.items() if name not in whole and _read_sections(name).keys() - made}
        for name, text in contents(self._orders, whole, is_whole_run=is_whole_run).items():
            if text:
                _write(name, text)
            else:
                (GOLDEN / name).unlink()
        if kept:
            self._summary.append("not all golden tests ran and passed; these files keep what the others may have made:")
            self._summary += sorted(f"  tests/golden/{name}" for name in kept)
            self._summary.append("once all pass, `make golden` drops what none of them makes")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what is to be done."""
        if self._summary:
            terminalreporter.section("golden files")
            for line in self._summary:
                terminalreporter.line(line)


def is_golden(item: pytest.Item) -> bool:
    """Whether a test holds a text to a golden file."""
    fixtures = {"golden", "golden_catalogue"}.intersection(getattr(item, "fixturenames", ()))
    return bool(fixtures) or item.get_closest_marker("golden") is not None


def _differing(expected: Mapping[str, str]) -> list[str]:
    """A line for each file that differs, and for each of its texts that no test made."""
    lines: list[str] = []
    for name, text in expected.items():
        path = GOLDEN / name
        present = path.read_text() if path.exists() else ""
        if present != text:
            lines.append(f"  tests/golden/{name}" + ("" if text else ": no test makes it"))
            if text:
                parts = _read_entries(name) - _entries[name] if name in _entries else _read_sections(name).keys()
                lines += [f"    no test makes: {part.splitlines()[0]}" for part in sorted(parts) if part not in text]
    return lines


def _title(name: str) -> str:
    return name.replace("\n", " ")


def _first_alike(sections: Iterable[str], section: str) -> str | None:
    """The first section of the same test with other parameters, and the same number where it makes several texts."""
    own = _PARAMETERS.fullmatch(section)
    if own is None:
        return None
    matches = (_PARAMETERS.fullmatch(title) for title in sections)
    return next(
        (match[0] for match in matches if match and match.group("test", "number") == own.group("test", "number")), None
    )


def _read_sections(name: str) -> dict[str, str]:
    sections: dict[str, str] = {}
    path = GOLDEN / name
    for part in f"\n{path.read_text()}".split(f"\n{_HEAD}")[1:] if path.exists() else ():
        title, _, content = part.partition("\n")
        sections[title] = content.rstrip("\n")
    return sections


def _read_entries(name: str) -> set[str]:
    path = GOLDEN / name
    return set(path.read_text().rstrip("\n").split("\n\n")) if path.exists() else set()


def _write(name: str, text: str) -> None:
    path = GOLDEN / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.endswith("\n") else f"{text}\n")
