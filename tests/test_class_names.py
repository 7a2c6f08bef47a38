"""One class, one name: a reader who knows a name knows its class, in every module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def repeated_classes(folders: Iterable[Path]) -> dict[str, list[Path]]:
    """The names of several classes below some folders, and the modules that define them."""
    modules = defaultdict(list)
    for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(path)
    return {name: places for name, places in modules.items() if len(places) > 1}


def test_no_two_classes_have_one_name() -> None:
    assert repeated_classes(ROOT / package for package in ("bench", "certs", "hack", "tests", "webhook")) == {}


def test_a_repeated_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    outer, inner = tmp_path / "outer.py", tmp_path / "inner" / "inner.py"
    outer.write_text("class Once: ...\nclass Twice: ...\n")
    inner.write_text("def make():\n    class Twice: ...\n")

    assert repeated_classes([tmp_path]) == {"Twice": [inner, outer]}
