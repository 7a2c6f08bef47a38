"""The texts for users, held in one place: ``tests/golden/``, one file for each screen or catalog of texts.

Tests assert codes, fields, patches and statuses; a text stands in a golden file alone, so that rewording is one
command, ``make golden``, and one diff to read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parent / "golden"
# The fixture `golden`, which holds a text to the golden file of its module.
Golden = Callable[[str], None]
_REWRITE: Final = "REWRITE_GOLDEN"
_HEAD: Final = "=== "
_PARAMETERS: Final = re.compile(r"(?P<test>\w+)\[.*\](?P<number> \(\d+\))?", re.DOTALL)

# Files of sections and catalogs that this run has begun to rewrite: the first part replaces what was there.
_begun: Final[set[str]] = set()


def _is_rewriting() -> bool:
    rewrite = bool(os.environ.get(_REWRITE))
    assert not (rewrite and os.environ.get("PYTEST_XDIST_WORKER")), (
        "rewrite golden files without -n: it follows the order"
    )
    return rewrite


def check(name: str, text: str) -> None:
    """Compare a text with the golden file of that name; rewrite the file instead where ``REWRITE_GOLDEN`` is set.

    Args:
        name: the file's, below ``tests/golden/``, for example ``doctor-spread.txt``.

    Raises:
        AssertionError: the texts differ, or the file is not there.
    """
    path = GOLDEN / name
    if _is_rewriting():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.endswith("\n") else f"{text}\n")
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
    path = GOLDEN / name
    section, text = section.replace("\n", " "), text.rstrip("\n")
    if _is_rewriting():
        sections = _read_sections(path) if name in _begun else {}
        _begun.add(name)
        first = _first_alike(sections, section)
        if first is None or sections[first] != text:
            sections[section] = text
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(f"{_HEAD}{title}\n{content}\n" for title, content in sections.items()))
        return
    sections = _read_sections(path)
    expected = sections.get(section if section in sections else _first_alike(sections, section) or section)
    assert expected is not None, f'tests/golden/{name} has no "{section}"; write it with `make golden`, and read it'
    assert text == expected, f"tests/golden/{name} differs; `make golden` rewrites it"


def check_entry(name: str, entry: str) -> None:
    """As `check`, of an entry in a catalog, which has each text once, sorted.

    Args:
        name: the file's, below ``tests/golden/``.
        entry: lines, none of them empty.

    Raises:
        AssertionError: the catalog has no such entry.
    """
    path = GOLDEN / name
    entries = set(path.read_text().rstrip("\n").split("\n\n")) if path.exists() else set()
    if _is_rewriting():
        entries = {*(entries if name in _begun else ()), entry}
        _begun.add(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(sorted(entries)) + "\n")
        return
    assert entry in entries, f"tests/golden/{name} has not this entry; `make golden` rewrites it:\n{entry}"


def _first_alike(sections: Iterable[str], section: str) -> str | None:
    """The first section of the same test with other parameters, and the same number where it makes several texts."""
    own = _PARAMETERS.fullmatch(section)
    if own is None:
        return None
    matches = (_PARAMETERS.fullmatch(title) for title in sections)
    return next(
        (match[0] for match in matches if match and match.group("test", "number") == own.group("test", "number")), None
    )


def _read_sections(path: Path) -> dict[str, str]:
    sections: dict[str, str] = {}
    for part in f"\n{path.read_text()}".split(f"\n{_HEAD}")[1:] if path.exists() else ():
        title, _, content = part.partition("\n")
        sections[title] = content.rstrip("\n")
    return sections
