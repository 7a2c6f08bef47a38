"""Draws the README's pictures of a terminal from what the real commands print."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
# The commands of each picture, and their exit status.
PICTURES = {
    "decision": (
        ("kubevirt-webhook review examples/reviews/01-launcher-pod.yaml --cluster-from examples/cluster", 0),
        ("kubevirt-webhook review examples/reviews/02-owner-opted-out.yaml --cluster-from examples/cluster", 0),
    ),
}


def draw(name: str) -> str:
    """The SVG of a picture.

    Raises:
        RuntimeError: a command ends with another status.
    """
    console = Console(record=True, width=142, file=io.StringIO(), highlight=False)
    for command, status in PICTURES[name]:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        argv = [sys.executable, "-m", "webhook", *command.split()[1:]]
        ran = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
        if ran.returncode != status:
            raise RuntimeError(f"{command} ended with status {ran.returncode}: {ran.stderr}")
        for number, line in enumerate(ran.stdout.splitlines()):
            word = line.split(maxsplit=1)[0] if line.split() else ""
            text = Text(line)
            if number == 0:
                text.stylize("bold green" if word == "patched" else "bold cyan", 0, len(word))
            text.highlight_regex(r"→ .*$", "green")
            text.highlight_regex(r"\[[a-z-]+\]$", "dim")
            console.print(text)
        console.print()
    svg = console.export_svg(title="kubevirt-webhook", theme=DIMMED_MONOKAI, unique_id=name)
    # The viewer's own fonts, so that none is fetched.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"Fira Code,?", "", svg)


def main() -> None:
    """Write the pictures to docs/images."""
    for name in PICTURES:
        (ROOT / f"docs/images/{name}.svg").write_text(draw(name))


if __name__ == "__main__":
    main()
