"""Draws the README's picture of a decision from the real command's output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = (
    "kubevirt-webhook review examples/reviews/01-launcher-pod.yaml --cluster-from examples/cluster",
    "kubevirt-webhook review examples/reviews/02-owner-opted-out.yaml --cluster-from examples/cluster",
)


def main() -> None:
    """Run the commands and write docs/images/decision.svg."""
    console = Console(record=True, width=142, file=sys.stderr, highlight=False)
    for command in COMMANDS:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        argv = [sys.executable, "-m", "webhook", *command.split()[1:]]
        said = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for number, line in enumerate(said.splitlines()):
            word = line.split(maxsplit=1)[0] if line.split() else ""
            text = Text(line)
            if number == 0:
                text.stylize("bold green" if word == "patched" else "bold cyan", 0, len(word))
            text.highlight_regex(r"→ .*$", "green")
            text.highlight_regex(r"\[[a-z-]+\]$", "dim")
            console.print(text)
        console.print()
    svg = console.export_svg(title="kubevirt-webhook review", theme=DIMMED_MONOKAI)
    # The viewer's own fonts, so that none is fetched.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (ROOT / "docs/images/decision.svg").write_text(re.sub(r"Fira Code,?", "", svg))


if __name__ == "__main__":
    main()
