"""`make manifests`: each overlay's webhook configurations, what kustomize makes of the overlays, and the chart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = ROOT / "manifests"
HEADER = "# Printed by `kubevirt-webhook manifests webhooks --config settings.yaml`.\n"


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def main() -> None:
    """Write all files that are made of others."""
    binaries = Path(_output(sys.executable, "hack/controlplane/build.py").strip())
    for overlay in sorted((MANIFESTS / "overlays").iterdir()):
        settings = f"--config={overlay / 'settings.yaml'}"
        printed = _output(sys.executable, "-m", "webhook", "manifests", "webhooks", settings)
        (overlay / "webhooks.yaml").write_text(HEADER + printed)
        rendered = MANIFESTS / "rendered" / f"{overlay.name}.yaml"
        rendered.write_text(_output(binaries / "kubectl", "kustomize", overlay))
        print(f"{overlay.relative_to(ROOT)} and {rendered.relative_to(ROOT)}")
    print(_output(sys.executable, "-m", "hack.chart").strip())


if __name__ == "__main__":
    main()
