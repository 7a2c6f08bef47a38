"""Decisions as text; colored only on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from webhook.text import visible, visible_lines

STYLES: Final = {
    "patched": "bold green",
    "would-patch": "green",
    "denied": "bold red",
    "would-deny": "red",
    "error": "bold yellow",
    "allowed": "cyan",
    "skipped": "dim",
}


class _VisibleConsole(Console):
    """Escapes control sequences in every text, so that only the program's own styles reach the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of anything."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def console() -> Console:
    """Standard output; without wrapping if it is not a terminal, so that lines can be searched."""
    result = _VisibleConsole(highlight=False)
    return result if result.is_terminal else _VisibleConsole(highlight=False, width=10_000, soft_wrap=True)


def error_console() -> Console:
    """Standard error, for what moves on a terminal."""
    return _VisibleConsole(stderr=True, highlight=False)


def safe(text: str) -> str:
    """Untrusted text for a line on a terminal, with control characters escaped."""
    return visible(text)


def change_line(change: dict[str, Any]) -> str:
    """``path: old → new``."""
    old = "(none)" if change["old"] is None else change["old"]
    return f"{path_text(change['path'])}: {old} → {change['new']}"


def path_text(path: Iterable[str]) -> str:
    """A path for people: ``metadata.annotations[example.com/a]``."""
    text = ""
    for segment in path:
        text += f"[{segment}]" if "." in segment or "/" in segment else f".{segment}"
    return text.removeprefix(".")
