"""Writes the pages below `docs/reference`, and the fields of audit lines: ``python -m hack.reference``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.reference import audit, commands, controls, labels, metrics, settings

PAGES: Final = Path(__file__).resolve().parents[2] / "docs"
WRITERS: Final[dict[str, Callable[[], str]]] = {
    "audit.md": audit.page,
    "reference/commands.md": commands.page,
    "reference/controls.md": controls.page,
    "reference/labels.md": labels.page,
    "reference/metrics.md": metrics.page,
    "reference/settings.md": settings.page,
}


def outdated() -> list[str]:
    """The pages that do not describe the code as it is."""
    return [name for name, page in WRITERS.items() if not _is_current(PAGES / name, page())]


def write() -> None:
    """Write all pages."""
    (PAGES / "reference").mkdir(exist_ok=True)
    for name, page in WRITERS.items():
        (PAGES / name).write_text(page())


def _is_current(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text() == text
