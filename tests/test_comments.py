"""Comments and docstrings are in plain English: they name who acts, and use the words of Kubernetes."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import wording


def test_comments_use_the_words_of_kubernetes() -> None:
    assert [
        f"{path}:{number}: {word}"
        for path in files()
        if wording.dialect((ROOT / path).read_text())
        for number, line in comments(path)
        for word in wording.dialect(line)
    ] == []


@pytest.mark.parametrize(
    "comment", ["We wrote it.", "nobody reads it", "it refuses", "Somebody's copy", "What is judged", "kept for ever"]
)
def test_a_comment_in_dialect_is_found(comment: str) -> None:
    assert wording.dialect(comment)
    source = f'"""A module."""\n\n\ndef f() -> None:\n    """{comment}"""\n    # {comment}\n'
    assert sum(bool(wording.dialect(line)) for _, line in of_python(source)) == 2


def test_names_are_not_words() -> None:
    assert wording.dialect("the connection refused by a firewall; trusts the status of VMs") == []


ROOT: Final = Path(__file__).parents[1]

# A quotation is a name, or the text of another project.
_QUOTED: Final = re.compile(r"``[^`]*``|`[^`]*`|\"[^\"]*\"")
_HASHED: Final = (".yaml", ".yml", ".toml", ".sh", ".tf", "Makefile", "Dockerfile")
_SLASHED: Final = (".go",)


def files() -> list[str]:
    """The paths of all files with comments that this can read, below `ROOT`."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    return [path for path in listed if path.endswith((".py", *_HASHED, *_SLASHED)) and (ROOT / path).exists()]


def comments(path: str) -> list[tuple[int, str]]:
    """The comments and docstrings of a file: line numbers and texts, without their quotations."""
    text = (ROOT / path).read_text()
    found = of_python(text) if path.endswith(".py") else _after(text, "//" if path.endswith(_SLASHED) else "#")
    return [(number, _QUOTED.sub("", line)) for number, line in found]


def of_python(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings of a module, line by line, and its comments where any is in dialect."""
    # To read the tokens takes long, and in most files no line has such a word behind a number sign.
    if any(map(wording.dialect, re.findall("#.*", source))):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            yield from enumerate(docstring.split("\n"), node.body[0].lineno) if docstring else ()


def _after(text: str, sign: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        # In YAML and shell, a sign within a word does not start a comment.
        before, found, after = f" {line}".partition(f" {sign}")
        if found and before.count('"') % 2 == 0:
            yield number, after
