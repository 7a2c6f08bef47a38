"""The outputs of a review: each writes a fragment for every object, and a document around all fragments."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any, Final, Protocol

import click

from webhook.cli.review.remedies import remedies
from webhook.cli.review.result import Result
from webhook.cli.review.summary import Summary
from webhook.cli.show import change_line, console, safe
from webhook.cli.yamltext import dump
from webhook.errors import InputError

_NOTHING: Final = "the API server does not call kubevirt-webhook for any of these objects\n"
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "patched": {"fg": "green", "bold": True},
    "would-patch": {"fg": "green"},
    "denied": {"fg": "red", "bold": True},
    "would-deny": {"fg": "red"},
    "error": {"fg": "yellow", "bold": True},
    "allowed": {"fg": "cyan"},
    "skipped": {"dim": True},
}


class OutputFormat(Protocol):
    """An output. Fragments are made in several processes, the document in the one that prints it.

    Attributes:
        parts: the parts of results that it shows, whose secrets are redacted: ``object``, ``patch`` and ``changes``.
        partial: whether it says what is wrong with the input, so that it is printed even then.
    """

    parts: frozenset[str]
    partial: bool

    def fragment(self, result: Result) -> str:
        """What the output says about one object; empty if nothing."""

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """The whole output.

        Args:
            fragments: those of all objects, in their order, without empty ones.
            summary: the counts.
            mistakes: what is wrong with the input.
        """


class Text:
    """For people: a headline for each object, then reasons, changes and warnings.

    Args:
        width: of the terminal, in columns; None: lines are not broken.
        color: whether the terminal shows colors.
        quiet: whether objects are left out that are allowed without a warning.
    """

    parts = frozenset({"changes"})
    partial = True

    def __init__(self, width: int | None = None, *, color: bool = False, quiet: bool = False) -> None:
        self._width: Final = width
        self._color: Final = color
        self._quiet: Final = quiet

    @classmethod
    def of_terminal(cls, *, quiet: bool) -> Text:
        """The format for standard output as it is."""
        out = console()
        return cls(out.width if out.is_terminal else None, color=out.is_terminal and not out.no_color, quiet=quiet)

    def fragment(self, result: Result) -> str:
        """A headline, and what led to the decision."""
        if (self._quiet and result.severity == "fine") or not result.matched:
            return ""
        by = f"  by {result.user}" if result.user else ""
        made = f" of {result.origin}" if result.origin else ""
        head = f"  {result.operation} {result.title}{made}{by}  ({result.source})"
        lines = [self._headline(result.decision, safe(head))]
        if result.message:
            lines.append(self._line("  ", result.message))
        for evaluation in result.judgements:
            for reason in evaluation["reasons"]:
                text = f"{evaluation['policy']} ({evaluation['mode']}): {reason['text']} [{reason['code']}]"
                lines.append(self._line("  ", text))
            lines += [self._line("    ", change_line(change)) for change in evaluation["changes"]]
        lines += [self._line("  ", f"warning: {warning}", fg="yellow") for warning in result.warnings]
        lines += [self._line("  ", text) for text in remedies(result)]
        return "".join(f"{line}\n" for line in lines)

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """The fragments with an empty line between them."""
        if not fragments and summary.unmatched and not summary.decisions:
            return _NOTHING
        return "\n".join(fragments)

    def _headline(self, decision: str, text: str) -> str:
        line = self._wrap(decision + text, "  ")
        if not self._color:
            return line
        return click.style(decision, **_STYLES[decision]) + line[len(decision) :]

    def _line(self, indent: str, text: str, **style: Any) -> str:
        line = self._wrap(indent + safe(text), indent + "  ")
        return click.style(line, **style) if self._color and style else line

    def _wrap(self, text: str, indent: str) -> str:
        """A line, broken between words where the terminal ends."""
        if self._width is None or len(text) <= self._width:
            return text
        return textwrap.fill(
            text, self._width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )


class Json:
    """All that is known about each object."""

    parts = frozenset({"object", "patch", "changes"})
    partial = True

    def fragment(self, result: Result) -> str:
        """The result as a JSON object."""
        return json.dumps(self._value(result), indent=2)

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """A single fragment, or a list of several."""
        if not fragments:
            return "" if mistakes else "[]\n"
        if len(fragments) == 1:
            return f"{fragments[0]}\n"
        return "[\n" + ",\n".join(textwrap.indent(each, "  ") for each in fragments) + "\n]\n"

    def _value(self, result: Result) -> Any:
        return result.as_json()


class Patch(Json):
    """The JSON patches."""

    parts = frozenset({"patch"})
    partial = False

    def _value(self, result: Result) -> Any:
        return result.patch


class Yaml:
    """The patched objects; one that makes the reviewed object is shown itself, since nothing is changed in it."""

    parts = frozenset({"object"})
    partial = False

    def fragment(self, result: Result) -> str:
        """The object."""
        shown = result.object if result.given is None else result.given
        return "" if shown is None else dump([shown])

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """A stream of documents."""
        return "---\n".join(fragments)
