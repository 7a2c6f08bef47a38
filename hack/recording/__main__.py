"""Records anew, ``python -m hack.recording``; with ``--check`` reports whether the recording is what commands print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from hack.recording.drawing import draw
from hack.recording.scenes import SCENES, output

PICTURE: Final = Path(__file__).resolve().parents[2] / "docs" / "images" / "recording.svg"


def recorded() -> str:
    """The picture of what the commands print now."""
    return draw(SCENES, [output(scene) for scene in SCENES])


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PICTURE.read_text() == recorded() else "not up to date: run python -m hack.recording")
    PICTURE.write_text(recorded())
