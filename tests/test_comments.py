"""Comments and docstrings are in plain English: they name who acts, and use the words of Kubernetes."""

from __future__ import annotations

import pytest

from tests import comments, wording


def test_comments_use_the_words_of_kubernetes() -> None:
    assert [
        f"{path}:{number}: {word}"
        for path in comments.files()
        # To read a file's tokens takes long, and most files have no such word anywhere.
        if wording.dialect((comments.ROOT / path).read_text())
        for number, line in comments.comments(path)
        for word in wording.dialect(line)
    ] == []


@pytest.mark.parametrize(
    "comment", ["We wrote it.", "nobody reads it", "it refuses", "Somebody's copy", "What is judged", "kept for ever"]
)
def test_a_comment_in_dialect_is_found(comment: str) -> None:
    assert wording.dialect(comment)
    source = f'"""A module."""\n\n\ndef f() -> None:\n    """{comment}"""\n    # {comment}\n'
    assert sum(bool(wording.dialect(line)) for _, line in comments.of_python(source)) == 2


def test_names_are_not_words() -> None:
    assert wording.dialect("the connection refused by a firewall; trusts the status of VMs") == []
