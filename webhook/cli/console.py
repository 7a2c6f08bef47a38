"""Decisions as text; colored only on a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from webhook.admission.credentials import scrub_prose
from webhook.admission.redaction import redact
from webhook.cli import write
from webhook.text import visible, visible_lines

Report = TypeVar("Report", bound=msgspec.Struct)
STYLES: Final = {
    "patched": "bold green",
    "would-patch": "green",
    "denied": "bold red",
    "invalid": "bold red",
    "would-deny": "red",
    "error": "bold yellow",
    "allowed": "cyan",
    "skipped": "dim",
}
# Of a terminal as it opens, and of output that goes into a file.
WIDTH: Final = 80
# Longer lines are hard to read, however wide the terminal is.
_WIDEST: Final = 100


class VisibleConsole(Console):
    """Escapes control sequences in every text, so that only the program's own styles reach the terminal."""

    def on_broken_pipe(self) -> NoReturn:
        """Pass a closed pipe on: it is no answer, and so not the exit status of a denial."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of anything."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def console() -> Console:
    """Standard output; without wrapping if it is not a terminal, so that lines can be searched."""
    result = VisibleConsole(highlight=False)
    return result if result.is_terminal else VisibleConsole(highlight=False, width=10_000, soft_wrap=True)


def change_line(change: dict[str, Any]) -> str:
    """``path: old → new``."""
    old, new = (
        "(none)" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in (change["old"], change["new"])
    )
    return f"{path_text(change['path'])}: {old} → {new}"


def path_text(path: Iterable[str]) -> str:
    """A path for people: ``metadata.annotations[example.com/a]``."""
    parts = (f"[{segment}]" if "." in segment or "/" in segment else f".{segment}" for segment in path)
    return "".join(parts).removeprefix(".")


class Paragraph(NamedTuple):
    """A line, or more where it is too long for one; an empty one separates others.

    Attributes:
        text: what it says; control characters and credentials in it are not shown.
        style: for the terminal.
        indent: what the first line begins with.
        hanging: how many spaces the others begin with; None: as many as the first one.
    """

    text: str = ""
    style: str = ""
    indent: str = ""
    hanging: int | None = None


def fill(paragraph: Paragraph, width: int) -> str:
    """The lines of a paragraph, of so many characters. No word is broken, so that names can be searched and copied."""
    hanging = len(paragraph.indent) if paragraph.hanging is None else paragraph.hanging
    # A line feed that a tenant wrote begins no line.
    return textwrap.fill(
        scrub_prose(visible(paragraph.text.replace("\n", " "))),
        width,
        initial_indent=paragraph.indent,
        # Below a long name there would be no room for a word.
        subsequent_indent=" " * min(hanging, width // 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_paragraphs(paragraphs: Iterable[Paragraph]) -> None:
    """Print paragraphs on standard output, as wide as the terminal is."""
    out = console()
    width = min(out.width, _WIDEST) if out.is_terminal else WIDTH
    for paragraph in paragraphs:
        # Lines end here alone: what is longer than the terminal is one word, which the terminal continues.
        out.print(Text(fill(paragraph, width), style=paragraph.style), soft_wrap=True)


def print_report(report: Report, output: str, paragraphs: Callable[[Report], Iterable[Paragraph]]) -> None:
    """Print what a command found out, without the secrets in it, as ``json``, ``yaml``, or ``text`` of paragraphs."""
    if output == "text":
        print_paragraphs(paragraphs(report))
        return
    plain = redact(msgspec.to_builtins(report))
    # Only without an indent does Python encode in C.
    write.data(msgspec.json.format(json.dumps(plain), indent=2) if output == "json" else write.dump([plain]))
