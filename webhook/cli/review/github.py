"""Workflow commands of GitHub Actions, which become annotations in the pull request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from webhook.cli.review.remedies import remedies_of
from webhook.cli.review.result import Result
from webhook.cli.review.sarif import place_of
from webhook.cli.review.summary import Summary
from webhook.errors import InputError
from webhook.text import visible

_COMMANDS: Final = {"denied": "error", "unevaluated": "error", "warned": "warning"}
_WORDS: Final = {"denied": "denied", "unevaluated": "not evaluated", "warned": "warning"}


class Github:
    """An annotation for each object that needs attention."""

    parts: frozenset[str] = frozenset()
    partial = True

    def fragment(self, result: Result) -> str:
        """The annotation; empty for an object that is allowed without a warning."""
        if result.severity == "fine":
            return ""
        lines = result.warnings if result.severity == "warned" and result.warnings else [result.summary]
        # A denial ends with its code already.
        code = f" [{result.code}]" if result.code and f"[{result.code}]" not in lines[-1] else ""
        text = "\n".join(lines) + code
        made = f" of {result.origin}" if result.origin else ""
        title = f"{result.title}{made}: {_WORDS[result.severity]}"
        return command(
            _COMMANDS[result.severity], result.file, result.line, title, "\n".join([text, *remedies_of(text)])
        )

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """One command a line."""
        bad = [command("error", *place_of(each), "bad input", str(each)) for each in mistakes]
        return "".join(f"{each}\n" for each in (*fragments, *bad))


def command(name: str, file: str, line: int, title: str, text: str) -> str:
    """A workflow command, with all that could end it or begin another one escaped.

    Args:
        name: ``error`` or ``warning``.
        file: relative to the repository.
        line: from 1.
        title: one line.
        text: the message, which may have several lines.
    """
    message = "\n".join(visible(each) for each in text.split("\n"))
    return f"::{name} file={_property(file)},line={line},title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text)).replace(":", "%3A").replace(",", "%2C")
