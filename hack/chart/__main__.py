"""`python -m hack.chart`: write the generated files of the chart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hack.chart.objects import ROOT
from hack.chart.write import CHART, generated


def main() -> None:
    """Write all files, and remove those that are not generated any more."""
    build = [sys.executable, "-m", "hack.controlplane.build"]
    binaries = Path(subprocess.run(build, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip())
    files = generated(binaries / "kubectl")
    for old in (CHART / "templates").glob("*.yaml"):
        if old not in files:
            old.unlink()
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    print(CHART.relative_to(ROOT))


if __name__ == "__main__":
    main()
