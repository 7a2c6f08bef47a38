"""Draws the pictures again: ``python -m hack.diagrams``; with ``--check`` says which of them are not up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from hack.diagrams import packages, review, ways

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURES: Final = {"packages.svg": packages.draw, "review.svg": review.draw, **ways.pictures()}


def outdated() -> list[str]:
    """The names of the pictures that do not show the code as it is."""
    images = ROOT / "docs" / "images"
    return [name for name, draw in PICTURES.items() if not _shows(images / name, draw(ROOT))]


def _shows(file: Path, drawn: str) -> bool:
    return file.is_file() and file.read_text() == drawn


def main() -> None:
    """Write the pictures, or check them."""
    if sys.argv[1:] == ["--check"]:
        names = outdated()
        sys.exit(f"not up to date: {', '.join(names)}; run python -m hack.diagrams" if names else 0)
    for name, draw in PICTURES.items():
        (ROOT / "docs" / "images" / name).write_text(draw(ROOT))


if __name__ == "__main__":
    main()
