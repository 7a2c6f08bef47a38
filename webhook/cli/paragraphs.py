"""Text in lines that fit the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final, NamedTuple

from rich.text import Text

from webhook.admission.credentials import scrub_prose
from webhook.cli.show import console, safe

# Of a terminal as it opens, and of output that goes into a file.
WIDTH: Final = 80
# Longer lines are hard to read, however wide the terminal is.
_WIDEST: Final = 100


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
    """The lines of a paragraph. No word is broken, so that names and labels can be searched and copied.

    Args:
        paragraph: what to write.
        width: of a line, in characters.
    """
    # A line feed that a tenant wrote begins no line.
    return textwrap.fill(
        scrub_prose(safe(paragraph.text.replace("\n", " "))),
        width,
        initial_indent=paragraph.indent,
        subsequent_indent=" " * (len(paragraph.indent) if paragraph.hanging is None else paragraph.hanging),
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
