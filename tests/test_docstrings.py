"""A rule of docstrings that ruff does not check: a class describes the arguments of its constructor (D107 is off)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for package in ("certs", "webhook") for path in (ROOT / package).rglob("*.py"))


def undescribed(source: str) -> list[str]:
    """The arguments of public classes that their docstrings do not describe, as ``CLASS.ARGUMENT``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        docstring = ast.get_docstring(node) or ""
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                own = method.args
                names = [argument.arg for argument in (*own.posonlyargs, *own.args, *own.kwonlyargs)][1:]
                found += [f"{node.name}.{name}" for name in names if not re.search(rf"(?m)^    {name}: ", docstring)]
    return found


def test_a_class_describes_the_arguments_of_its_constructor() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in MODULES}
    found = {path: undescribed(text) for path, text in texts.items() if "def __init__(" in text}
    assert {path: names for path, names in found.items() if names} == {}
    # An argument without a line is found.
    source = 'class A:\n    """A.\n\n    Args:\n        one: the first.\n    """\n'
    constructor = "\n    def __init__(self, one, *, two): ...\n"
    assert undescribed(source + constructor) == ["A.two"]
